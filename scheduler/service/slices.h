// SliceBroker: asks nodes for devices. A GpuSlice named by the pod's UID is created in the host
// namespace, gpud of that node grants or denies it, and the answer comes back here. On a host the
// client is the host's own; in a tenant it is the tenant's credential on the host.
// Source: DESIGN.md section 4, the seven steps.
// Threads: any; answers come on the informers' thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/client.h"
#include "client/informer.h"
#include "gpu/api/types.h"

namespace sublet::scheduler {

struct SliceAnswer {
  std::string pod_uid;
  bool granted = false;
  std::string reason;   // of a denial: InsufficientMemory, ...
  std::string message;  // for people
};

struct SliceBrokerOptions {
  client::Client client;
  // Where the slice of a pod in `pod_namespace` stands: the tenant's host namespace, or the pod's
  // own.
  std::function<std::string(const std::string& pod_namespace)> slice_namespace;
  std::string only_namespace;  // watch only this one; "" = all
  std::string tenant;          // written into the slices
  // policies.gpu: what all slices together may hold; -1 = no bound. Devices in thousandths.
  std::int64_t devices_milli_max = -1;
  std::int64_t memory_bytes_max = -1;
};

class SliceBroker {
 public:
  // `on_answer` is called for every grant and denial, also of slices asked for before a restart.
  SliceBroker(SliceBrokerOptions options, std::function<void(const SliceAnswer&)> on_answer);
  ~SliceBroker();

  void Start();
  void Stop();  // idempotent
  // Until the slices that stand are known, at most until `deadline`.
  bool WaitSynced(Deadline deadline) { return informers_.WaitSynced(deadline); }

  // Creates the slice; one that exists with the same node and devices is taken over. Errors:
  // Forbidden (policies.gpu would be exceeded: with the amounts), Conflict (another slice of this
  // pod is still being released), the host's.
  Result<void> Ask(const std::string& pod_namespace, gpu::GpuSliceSpec spec);
  // Bytes of `uuid` that granted slices of ours hold and that the device's ledger counts at
  // `generation` (an older generation does not know them yet).
  std::int64_t OwnBytes(const std::string& uuid, std::int64_t generation) const;
  // UUIDs of the devices that were granted to a pod; empty when none were.
  std::vector<std::string> DevicesOf(const std::string& pod_namespace,
                                     const std::string& pod_uid) const;
  // Gives it back; none is fine.
  Result<void> Release(const std::string& pod_namespace, const std::string& pod_uid);

 private:
  Result<void> CheckPolicy(const gpu::GpuSliceSpec& spec);
  void Seen(const client::ObjectPtr& object);

  const SliceBrokerOptions options_;
  const std::function<void(const SliceAnswer&)> on_answer_;
  client::InformerFactory informers_;
  client::Informer* slices_ = nullptr;
  Mutex policy_mutex_;  // one Ask at a time decides about the bound
};

}  // namespace sublet::scheduler
