// SliceController: gpud's side of the slice protocol (DESIGN.md section 4) against an API server.
//
// One reconciler for everything it does: a key "namespace/name" is a GpuSlice, kNodeKey publishes
// the node, kLeaseKey keeps the right to do so. One key at a time, so the ledger needs no lock.
//
//   asked        → granted or denied, all devices in one status write; ready when the container's files
//                  and socket exist (the same write, unless opening failed)
//   deleted      → released when no process of the pod is left, then the finalizer goes
//   granted, but the pod never came for 60 s, or is gone, or has ended → the object is deleted
// At start every granted slice is put back into the ledger before anything is granted. Not being
// the node's gpud any more (the lease went to another) stops grants; running pods go on.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "client/client.h"
#include "client/events.h"
#include "client/informer.h"
#include "client/manager.h"
#include "gpu/api/types.h"
#include "gpu/gpud/cdi.h"
#include "gpu/gpud/engine.h"
#include "gpu/gpud/ledger.h"

namespace sublet::gpu {

struct SliceControllerOptions {
  std::string node_name;
  std::string identity;  // of this gpud process, for the lease
  std::string lease_namespace = "kube-system";
  CdiOptions cdi;
  std::chrono::seconds orphan_after{60};
  std::chrono::seconds heartbeat{10};
  std::chrono::seconds lease_duration{15};
  // Writes nvidia.com/gpu and the feature discovery labels to the Node of the same name.
  bool publishes_node = true;
};

class SliceController {
 public:
  // engine, clock outlive this. Registers its reconciler with `manager` and its informers with
  // `informers`; both are the caller's and are started and stopped by it.
  SliceController(SliceControllerOptions options, client::Client client,
                  client::InformerFactory& informers, client::Manager& manager, Engine& engine,
                  InstalledFiles files, DriverInventory inventory, const Clock& clock);
  ~SliceController();

  // An event of the engine becomes an Event of the pod. Threads: any.
  void OnEngineEvent(const EngineEvent& event);
  bool is_leader() const { return is_leader_.load(); }

  static constexpr const char* kNodeKey = "#node";
  static constexpr const char* kLeaseKey = "#lease";

 private:
  Result<client::Outcome> Reconcile(const kube::ObjectKey& key);
  Result<client::Outcome> ReconcileSlice(const kube::ObjectKey& key);
  Result<client::Outcome> Decide(const GpuSlice& slice);
  Result<client::Outcome> Keep(const GpuSlice& slice);
  Result<client::Outcome> Free(const GpuSlice& slice);
  Result<client::Outcome> ForgetGone(const kube::ObjectKey& key);
  Result<client::Outcome> PublishNode();
  Result<client::Outcome> RenewLease();
  Result<void> PublishHostNode();
  // Opens the slice's socket and writes its CDI spec.
  Result<void> Open(const GpuSlice& slice, const Grant& grant);
  void Close(const std::string& ledger_key, const std::string& name);
  Result<void> WriteStatus(const GpuSlice& slice, const GpuSliceStatus& status);
  void RestoreLedger();
  std::optional<GpuSlice> FindSlice(const kube::ObjectKey& key) const;
  // The pod that holds the slice, by its annotation or UID; nullptr: none on this node yet.
  client::ObjectPtr PodOf(const GpuSlice& slice) const;
  // True when a slice of the same name in another namespace holds devices of this node.
  bool IsNameTaken(const GpuSlice& slice) const;
  void EventOnPod(const GpuSlice& slice, std::string_view type, std::string_view reason,
                  std::string_view message);

  const SliceControllerOptions options_;
  const client::Client client_;
  Engine& engine_;
  const InstalledFiles files_;
  const DriverInventory inventory_;
  const std::vector<std::string> driver_libraries_;
  const Clock& clock_;
  client::Informer& slices_;
  client::Informer& pods_;
  client::WorkQueue* queue_ = nullptr;
  client::EventRecorder events_;

  std::atomic<bool> is_leader_{false};
  std::atomic<std::int64_t> epoch_{0};
  // The reconciler's only.
  Ledger ledger_;
  bool restored_ = false;
  std::map<std::string, WallTime> granted_at_;  // ledger key → first seen without its pod
  std::map<std::string, bool> pod_was_seen_;
};

}  // namespace sublet::gpu
