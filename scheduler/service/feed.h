// Feed: what the API server shows, as changes for the engine. Objects are converted on the
// informers' thread, once per event; the scheduler's thread takes the latest state of everything
// that changed in one go, in an order in which nothing refers to what the engine does not know yet.
// Bound: one waiting change per object. Threads: handlers on the informers' thread, Take on the
// scheduler's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/informer.h"
#include "gpu/api/request.h"
#include "scheduler/convert.h"
#include "scheduler/engine.h"

namespace sublet::scheduler {

// A pod as the service needs it: the engine's part and what binding and grouping look at.
struct PodRecord {
  PodSpec spec;
  std::string scheduler_name;
  std::string service_account;
  std::string group_annotation;  // pod-group-name
  std::string queue_label;
  bool has_owner = false;
  bool unbound_pending = false;   // no node, not finished, not being deleted
  std::string condition_message;  // of PodScheduled=False, "" otherwise
  std::string condition_reason;
  std::optional<gpu::GpuRequest> gpu;  // the sharing annotations, when they parse
  std::int64_t whole_gpus = 0;
  VolumeRefs volumes;  // of a pod with a node: only its claims; of one that ended: empty
};
using PodRecordPtr = std::shared_ptr<const PodRecord>;

struct FeedOptions {
  bool kai = true;                    // Queue, PodGroup and Topology are served
  bool gpu_nodes = true;              // GpuNode is served
  bool storage_classes_known = true;  // PodLookups::classes_known
  // Bytes of a device that slices of our own hold and that its ledger counts at `generation`;
  // unset: none. What GpuNode calls free plus these is what our pods may use.
  std::function<std::int64_t(const std::string& uuid, std::int64_t generation)> own_bytes;
  // UUIDs of the devices that a bound pod with whole devices was granted; unset where no slices
  // are.
  std::function<std::vector<std::string>(const std::string& ns, const std::string& uid)> devices_of;
};

// Options of an informer that keeps records only.
client::InformerOptions InformerOf(const char* group, const char* version, const char* resource,
                                   const char* kind);

class Feed {
 public:
  // Registers the informers; `wake` is called (any thread) when there is something to take.
  Feed(client::InformerFactory& informers, const FeedOptions& options, std::function<void()> wake);

  // Applies everything that changed since the last call. Returns the number of changes.
  std::size_t ApplyTo(Engine& engine) SUBLET_EXCLUDES(mutex_);

  client::Informer& pods() { return *pods_; }
  // The latest record of a pod by uid; nullptr when it is gone.
  PodRecordPtr FindPod(const std::string& uid) const;
  client::ObjectPtr FindPodObject(const std::string& uid) const;
  // Device memory in bytes by UUID, from GpuNode; 0 = unknown.
  std::int64_t DeviceMemory(const std::string& node, const std::string& uuid) const;
  bool HasGpuNode(const std::string& node) const;
  // The value of a PriorityClass; nullopt when there is none.
  std::optional<int> PriorityOf(const std::string& name) const;
  bool HasQueues() const { return queues_ != nullptr; }

 private:
  // In the order in which they are applied.
  enum Kind { kNamespace, kNode, kQueue, kTopology, kGroup, kBudget, kSlice, kClaim, kPod, kKinds };
  using Change = std::function<void(Engine&)>;

  void Put(Kind kind, const std::string& key, Change change) SUBLET_EXCLUDES(mutex_);
  void WatchNodes(client::InformerFactory& informers, bool gpu_nodes);
  void WatchPods(client::InformerFactory& informers);
  void WatchKai(client::InformerFactory& informers);
  void WatchBudgets(client::InformerFactory& informers);
  void WatchNamespaces(client::InformerFactory& informers);
  // feed_devices.cc: ResourceSlices, ResourceClaims and DeviceClasses.
  void WatchDevices(client::InformerFactory& informers);
  void WatchClaims(client::InformerFactory& informers);
  // Devices of the node's slices that a class whose name says GPU may hand out.
  std::int64_t GpusInSlices(const std::string& node) const;
  void WatchVolumes(client::InformerFactory& informers, bool config_maps);
  // Shows the engine again the pods that refer to something (kVolumeIndex).
  void Reconsider(std::string_view reference);
  PodSpec Resolved(const PodRecord& pod, const Engine& engine) const;
  PodLookups Lookups(bool config_maps) const;
  void NodeChanged(const std::string& name);

  std::function<void()> wake_;
  std::function<std::int64_t(const std::string&, std::int64_t)> own_bytes_;
  std::function<std::vector<std::string>(const std::string&, const std::string&)> devices_of_;
  const bool classes_known_;
  client::Informer* nodes_ = nullptr;
  client::Informer* csi_nodes_ = nullptr;
  client::Informer* gpu_nodes_ = nullptr;
  client::Informer* pods_ = nullptr;
  client::Informer* queues_ = nullptr;
  client::Informer* groups_ = nullptr;
  client::Informer* priority_classes_ = nullptr;
  client::Informer* volume_claims_ = nullptr;
  client::Informer* volumes_ = nullptr;
  client::Informer* storage_classes_ = nullptr;
  client::Informer* config_maps_ = nullptr;
  client::Informer* device_slices_ = nullptr;
  client::Informer* device_classes_ = nullptr;
  client::Informer* resource_claims_ = nullptr;

  Mutex mutex_;
  std::map<std::string, Change> waiting_[kKinds] SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::scheduler
