// Syncer: one tenant's synchronisation, as `sublet serve` starts it. Finds the tenant's own Service
// on the host (owner of everything synced, address of the tenant's API), looks which of our
// resources the host serves, then runs the loop. Also answers the two questions the API server asks
// about the host: where a pod really is, and which address a new Service gets. Threads: Start
// returns at once; "syncer-start" waits for the host; the manager's workers sync.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "client/events.h"
#include "client/manager.h"
#include "syncer/kinds/registry.h"
#include "syncer/sync_loop.h"

namespace sublet::syncer {

struct SyncerOptions {
  Tenant tenant;
  SyncConfig config;
  client::Client virtual_client;
  client::Client host_client;
  std::string dns_address;  // nameserver for ClusterFirst pods; "" = that of the tenant's Service
  int threads = 8;          // each waits for one answer of the host at a time
};

class Syncer {
 public:
  // facts and clock outlive the syncer.
  Syncer(SyncerOptions options, LocalFacts& facts, const Clock& clock);
  ~Syncer();

  void Start();
  void Stop();  // idempotent; joins

  // True once the host's state is known and the kinds run.
  bool running() const { return running_.load(std::memory_order_acquire); }
  // Why not yet, in one line for people; "" when running.
  std::string WaitingFor() const;

  // The path of a virtual pod on the host: "/api/v1/namespaces/HNS/pods/HOSTNAME". Only pods of
  // this tenant have one, so no crafted name leads anywhere else. Errors: NotFound (no such pod, or
  // it is not on the host), ServiceUnavailable (not running yet).
  Result<std::string> HostPodPath(const kube::ObjectKey& virtual_pod) const;
  client::Client& host_client() { return options_.host_client; }
  client::Client& virtual_client() { return options_.virtual_client; }
  // A text of the host with its names turned into the tenant's.
  std::string ForTenant(std::string_view text, std::string_view virtual_namespace) const {
    return reporter_.Sanitise(text, virtual_namespace);
  }

  // The spec of the host Service made for `virtual_service`, which is being written in the tenant.
  // Errors: ServiceUnavailable (not running yet, or services are not synced), Timeout, the host's
  // with its names turned into the tenant's.
  Result<kube::Json> AllocateService(const kube::Json& virtual_service, Deadline deadline);

 private:
  // Errors: whatever keeps the host from answering; tried again with back-off.
  Result<void> Connect();
  void Run();
  bool Serves(std::string_view group, std::string_view version, std::string_view resource) const;

  SyncerOptions options_;
  const Clock& clock_;
  NameMapping mapping_;
  client::EventRecorder recorder_;
  Reporter reporter_;
  client::InformerFactory virtual_informers_;
  client::InformerFactory host_informers_;
  client::Manager manager_;
  std::unique_ptr<SyncContext> context_;
  std::unique_ptr<SyncLoop> loop_;
  ServiceSyncer* services_ = nullptr;
  std::atomic<bool> running_{false};

  mutable Mutex mutex_;
  CondVar stopping_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::string waiting_for_ SUBLET_GUARDED_BY(mutex_) = "the syncer has not been started";
  std::thread thread_;
};

}  // namespace sublet::syncer
