// KindSyncer: what the loop (sync_loop.h) asks of one kind: three verbs on the two sides of one
// object. A kind decides and writes; it owns no thread, no queue and no watch.
// Threads: the loop calls the same key from one worker at a time, different keys in parallel, so a
// kind keeps no unguarded state.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/informer.h"
#include "client/reconciler.h"
#include "syncer/config.h"
#include "syncer/name_mapping.h"
#include "syncer/names.h"
#include "syncer/reporter.h"

namespace sublet::syncer {

// What every kind may use. Made by the loop; lives as long as it.
struct SyncContext {
  const Tenant tenant;
  const SyncConfig& config;
  client::Client virtual_client;
  client::Client host_client;
  client::InformerFactory& virtual_informers;
  client::InformerFactory& host_informers;
  NameMapping& mapping;
  Reporter& reporter;
  const Clock& clock;
  // The tenant's Service on the host: owner of synced objects when config.set_owner. Null until
  // known.
  kube::Json owner_reference;
  std::string api_address;           // its ClusterIP
  std::string dns_address;           // the tenant's nameserver
  bool host_has_gpu = false;         // the host serves GpuSlice and GpuNode
  bool host_has_node_usage = false;  // and NodeUsage

  // The host informer of a resource: the tenant's own objects only, in its namespace unless the
  // kind has none.
  client::Informer& HostInformer(std::string_view group, std::string_view version,
                                 std::string_view resource, std::string_view kind,
                                 bool cluster_scoped = false);
  client::Informer& VirtualInformer(std::string_view group, std::string_view version,
                                    std::string_view resource, std::string_view kind) const;
};

struct KindInfo {
  std::string name;       // "pods": the mapping's kind and the log's
  std::string kind_text;  // "/v1, Kind=Pod"
  bool cluster_scoped = false;
};

// Asks the loop to work on a key of this kind.
using Enqueue = std::function<void(const kube::ObjectKey& virtual_key)>;

class KindSyncer {
 public:
  explicit KindSyncer(KindInfo info) : info_(std::move(info)) {}
  virtual ~KindSyncer() = default;
  const KindInfo& info() const { return info_; }

  // Registers informers and handlers (both sides and whatever else the kind depends on). Before the
  // informers start.
  virtual void Watch(Enqueue enqueue) = 0;
  // The two sides of a virtual key as the caches show them; nullptr = absent.
  virtual client::ObjectPtr Virtual(const kube::ObjectKey& key) const = 0;
  virtual client::ObjectPtr Host(const kube::ObjectKey& key) const = 0;

  // Both exist: what Sync would answer without a write, when the kind knows that it would make
  // none (the echo of its own last write). Asked before anything is parsed.
  virtual std::optional<client::Outcome> Settled(const client::CachedObject& virtual_object,
                                                 const client::CachedObject& host_object) {
    static_cast<void>(virtual_object);
    static_cast<void>(host_object);
    return std::nullopt;
  }

  // Only the virtual object exists.
  virtual Result<client::Outcome> SyncToHost(const kube::Json& virtual_object) = 0;
  // Both exist.
  virtual Result<client::Outcome> Sync(const kube::Json& virtual_object,
                                       const kube::Json& host_object) = 0;
  // Only the host object exists.
  virtual Result<client::Outcome> SyncToVirtual(const kube::ObjectKey& key,
                                                const kube::Json& host_object) = 0;
  // Neither exists any more.
  virtual Result<client::Outcome> Gone(const kube::ObjectKey& key) = 0;

 private:
  const KindInfo info_;
};

}  // namespace sublet::syncer
