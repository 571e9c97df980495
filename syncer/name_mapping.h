// NameMapping: which host object stands for which virtual object, kept in the tenant's file outside
// its revisions, so that a later change of the naming rule orphans nothing and a rollback of the
// tenant does not change what is true on the host. Holds the last synced values of two-way fields
// too, so that after a restart "the host changed while we were down" is still seen.
//
// Invariants
//  1. A pair, once made, stays until Forget; lookups beat the formula.
//  2. Two virtual objects never share a host name: the second Claim is refused (the naming rule is
//     not injective: `a-x-b` in `c` and `a` in `b-x-c` collide).
// Threads: any.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "kube/names.h"

namespace sublet::syncer {

// Where facts are kept: the store's local table in `serve`, a map in tests.
class LocalFacts {
 public:
  virtual ~LocalFacts() = default;
  // Durable when it returns. nullopt removes.
  virtual Result<void> Put(
      const std::vector<std::pair<std::string, std::optional<std::string>>>& entries) = 0;
  virtual Result<std::vector<std::pair<std::string, std::string>>> List(
      std::string_view prefix) = 0;
};

class NameMapping {
 public:
  // facts outlives the mapping.
  explicit NameMapping(LocalFacts& facts) : facts_(facts) {}

  // Reads what is stored. Once, before use.
  Result<void> Load();

  // The host name of (kind, key), made from `formula` and stored when there is none yet.
  // Errors: Forbidden, when another virtual object holds that host name (its key is in the message,
  // which is for the tenant: it names virtual objects only); InternalError (disk).
  Result<std::string> Claim(std::string_view kind, const kube::ObjectKey& key,
                            std::string_view formula);
  std::optional<std::string> HostNameOf(std::string_view kind, const kube::ObjectKey& key) const;
  std::optional<kube::ObjectKey> VirtualOf(std::string_view kind, std::string_view host_name) const;
  // Whoever holds `host_name`, of whatever kind: for texts of the host that mention names.
  std::optional<kube::ObjectKey> VirtualOfAny(std::string_view host_name) const;
  // Both objects are gone.
  Result<void> Forget(std::string_view kind, const kube::ObjectKey& key);

  // The two-way fields as they were when both sides last agreed ("" = never).
  std::string LastSynced(std::string_view kind, const kube::ObjectKey& key) const;
  Result<void> NoteSynced(std::string_view kind, const kube::ObjectKey& key, std::string fields);

  std::size_t size() const;

 private:
  struct Entry {
    std::string host_name;
    std::string last_synced;
  };
  using Id = std::pair<std::string, kube::ObjectKey>;  // kind, virtual key

  LocalFacts& facts_;
  mutable Mutex mutex_;
  std::map<Id, Entry> by_virtual_ SUBLET_GUARDED_BY(mutex_);
  // Host name, then kind.
  std::map<std::pair<std::string, std::string>, kube::ObjectKey> by_host_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::syncer
