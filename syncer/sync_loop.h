// SyncLoop: the one loop of the syncer. For every kind of registry.cc it watches both sides, works
// on virtual keys and calls one of the kind's verbs by which side exists. Errors of the host become
// Events on the tenant's object; conflicts come back quietly; everything else with back-off.
// Threads: Start and Stop from one thread; the manager's workers call the kinds.
#pragma once

#include <memory>
#include <vector>

#include "client/manager.h"
#include "syncer/kind_syncer.h"

namespace sublet::syncer {

class SyncLoop {
 public:
  // `context` and `manager` outlive the loop; the manager belongs to the virtual informers, the
  // host informers are started and stopped here.
  SyncLoop(SyncContext& context, client::Manager& manager);
  ~SyncLoop();

  // Registers the kinds that the configuration enables. Once, before Start.
  void AddKinds(std::vector<std::unique_ptr<KindSyncer>> kinds);

  // Works on one key of one kind: what the workers call; tests call it directly.
  Result<client::Outcome> Reconcile(KindSyncer& kind, const kube::ObjectKey& key);

  void Start();
  void Stop();  // idempotent

 private:
  Result<client::Outcome> Dispatch(KindSyncer& kind, const kube::ObjectKey& key,
                                   const client::ObjectPtr& virtual_object,
                                   const client::ObjectPtr& host_object);

  SyncContext& context_;
  client::Manager& manager_;
  std::vector<std::unique_ptr<KindSyncer>> kinds_;
};

}  // namespace sublet::syncer
