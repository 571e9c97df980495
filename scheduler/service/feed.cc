#include "scheduler/service/feed.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu/api/codec.h"
#include "kube/object.h"
#include "scheduler/convert.h"

namespace sublet::scheduler {
namespace {

using client::ObjectPtr;
using kube::Json;

constexpr std::string_view kUidIndex = "uid";
// Of pods by what they need: "claims", "claim/<namespace>/<name>",
// "map/<namespace>/<name>".
constexpr std::string_view kVolumeIndex = "volumes";
constexpr std::string_view kAnyClaim = "claims";

struct NodeRecord {
  NodeSpec spec;
};
struct GpuNodeRecord {
  std::vector<GpuDevice> devices;
  std::vector<std::int64_t> generations;  // of each device's ledger
};

std::map<std::string, std::string, std::less<>> AnnotationMap(const Json& object) {
  std::map<std::string, std::string, std::less<>> out;
  if (const Json* notes = kube::AnnotationsOf(object); notes != nullptr) {
    for (const auto& [key, value] : notes->items()) {
      if (value.is_string()) {
        out[key] = value.get<std::string>();
      }
    }
  }
  return out;
}

PodRecordPtr MakePodRecord(const Json& pod) {
  auto record = std::make_shared<PodRecord>();
  record->spec = PodFromJson(pod);
  record->scheduler_name = kube::FindString(pod, {"spec", "schedulerName"}, "default-scheduler");
  record->service_account = kube::FindString(pod, {"spec", "serviceAccountName"});
  record->group_annotation = kube::AnnotationOf(pod, "pod-group-name");
  record->queue_label = kube::LabelOf(pod, "kai.scheduler/queue");
  record->has_owner = kube::ControllerOf(pod).has_value();
  const auto phase = kube::FindString(pod, {"status", "phase"}, "Pending");
  record->unbound_pending = kube::FindString(pod, {"spec", "nodeName"}).empty() &&
                            phase == "Pending" && !kube::IsDeleting(pod);
  if (const Json* condition = kube::FindCondition(pod, "PodScheduled");
      condition != nullptr && kube::FindString(*condition, {"status"}) == "False") {
    record->condition_message = kube::FindString(*condition, {"message"});
    record->condition_reason = kube::FindString(*condition, {"reason"});
  }
  // A pod whose annotations do not parse was refused at admission; one that slipped in asks
  // nothing.
  if (auto request = gpu::ParseGpuRequest(AnnotationMap(pod)); request.ok()) {
    record->gpu = *request;
  }
  if (record->unbound_pending) {
    record->volumes = VolumesOf(pod);
    // The control plane makes this one in every namespace, and every pod with a token names it.
    std::erase(record->volumes.config_maps, "kube-root-ca.crt");
  } else if (phase != "Succeeded" && phase != "Failed") {
    record->volumes.claims = VolumesOf(pod).claims;  // what it attaches to its node
  }
  if (record->spec.request.gpu == GpuKind::kWhole) {
    record->whole_gpus = record->spec.request.gpu_count;
  }
  return record;
}

}  // namespace

Feed::Feed(client::InformerFactory& informers, const FeedOptions& options,
           std::function<void()> wake)
    : wake_(std::move(wake)),
      own_bytes_(options.own_bytes),
      devices_of_(options.devices_of),
      classes_known_(options.storage_classes_known) {
  WatchNamespaces(informers);
  WatchDevices(informers);
  WatchNodes(informers, options.gpu_nodes);
  if (options.kai) {
    WatchKai(informers);
  }
  WatchBudgets(informers);
  WatchVolumes(informers, options.kai);
  WatchClaims(informers);
  WatchPods(informers);
}

void Feed::Put(Kind kind, const std::string& key, Change change) {
  {
    MutexLock lock(mutex_);
    waiting_[kind][key] = std::move(change);
  }
  wake_();
}

std::size_t Feed::ApplyTo(Engine& engine) {
  std::map<std::string, Change> taken[kKinds];
  {
    MutexLock lock(mutex_);
    for (int kind = 0; kind < kKinds; ++kind) {
      taken[kind].swap(waiting_[kind]);
    }
  }
  std::size_t count = 0;
  for (const auto& changes : taken) {
    for (const auto& [key, change] : changes) {
      change(engine);
      ++count;
    }
  }
  return count;
}

// A node is the Node and, where there is one, its GpuNode.
void Feed::NodeChanged(const std::string& name) {
  const ObjectPtr node = nodes_->Get({"", name});
  if (node == nullptr) {
    Put(kNode, name, [name](Engine& engine) { engine.DeleteNode(name); });
    return;
  }
  NodeSpec spec = node->As<NodeRecord>().spec;
  if (const ObjectPtr gpus = gpu_nodes_ == nullptr ? nullptr : gpu_nodes_->Get({"", name});
      gpus != nullptr) {
    const auto& record = gpus->As<GpuNodeRecord>();
    spec.devices = record.devices;
    for (std::size_t i = 0; i < spec.devices.size(); ++i) {
      GpuDevice& device = spec.devices[i];
      if (own_bytes_) {
        device.free_bytes =
            std::min(device.memory_bytes,
                     device.free_bytes + own_bytes_(device.uuid, record.generations[i]));
      }
    }
    spec.gpus = static_cast<std::int64_t>(spec.devices.size());
  }
  if (const ObjectPtr csi = csi_nodes_->Get({"", name}); csi != nullptr) {
    spec.volume_limits = csi->As<std::map<std::string, std::int64_t>>();
  }
  if (const std::int64_t claimable = GpusInSlices(name); claimable > 0) {
    // The same devices may be shown by a device plugin too; they are not twice as many.
    spec.dra_gpus = spec.gpus == 0 ? claimable : 0;
    spec.gpus = std::max(spec.gpus, claimable);
  }
  Put(kNode, name, [spec = std::move(spec)](Engine& engine) { engine.Apply(spec); });
}

void Feed::WatchNodes(client::InformerFactory& informers, bool gpu_nodes) {
  auto options = InformerOf("", "v1", "nodes", "Node");
  options.make_record = [](const Json& node) {
    auto record = std::make_shared<NodeRecord>();
    record->spec = NodeFromJson(node);
    return record;
  };
  nodes_ = &informers.For(options);
  const auto changed = [this](const ObjectPtr& before, const ObjectPtr& after) {
    NodeChanged((after != nullptr ? after : before)->key.name);
  };
  auto csi = InformerOf("storage.k8s.io", "v1", "csinodes", "CSINode");
  csi.make_record = [](const Json& object) {
    return std::make_shared<const std::map<std::string, std::int64_t>>(
        VolumeLimitsFromJson(object));
  };
  csi_nodes_ = &informers.For(csi);
  csi_nodes_->AddHandler(changed);
  if (gpu_nodes) {
    auto gpus = InformerOf(gpu::kGroup.data(), gpu::kVersion.data(), gpu::kNodeResource.data(),
                           gpu::kNodeKind.data());
    gpus.make_record = [](const Json& object) {
      auto record = std::make_shared<GpuNodeRecord>();
      if (const auto node = gpu::NodeFromJson(object); node.ok()) {
        for (const auto& device : node->devices) {
          record->devices.push_back({device.uuid, device.model, device.memory_bytes,
                                     device.free_memory_bytes, device.is_healthy});
          record->generations.push_back(device.ledger_generation);
        }
      }
      return record;
    };
    gpu_nodes_ = &informers.For(gpus);
    gpu_nodes_->AddHandler(changed);
  }
  nodes_->AddHandler(changed);
}

void Feed::WatchPods(client::InformerFactory& informers) {
  auto options = InformerOf("", "v1", "pods", "Pod");
  options.make_record = MakePodRecord;
  pods_ = &informers.For(options);
  pods_->AddIndex(
      kUidIndex, [](const client::CachedObject& pod) { return std::vector<std::string>{pod.uid}; });
  pods_->AddIndex(kVolumeIndex, [](const client::CachedObject& pod) {
    std::vector<std::string> keys;
    const VolumeRefs& refs = pod.As<PodRecord>().volumes;
    for (const std::string& name : refs.claims) {
      keys.push_back("claim/" + pod.key.namespace_name + "/" + name);
    }
    for (const std::string& name : refs.config_maps) {
      keys.push_back("map/" + pod.key.namespace_name + "/" + name);
    }
    if (!refs.claims.empty()) {
      keys.emplace_back(kAnyClaim);
    }
    return keys;
  });
  pods_->AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    if (before != nullptr && (after == nullptr || after->uid != before->uid)) {
      Put(kPod, before->uid, [uid = before->uid](Engine& engine) { engine.DeletePod(uid); });
    }
    if (after != nullptr) {
      Put(kPod, after->uid, [this, after](Engine& engine) {
        const auto& pod = after->As<PodRecord>();
        engine.Apply(Resolved(pod, engine));
      });
    }
  });
}

// What is asked is looked up when the engine takes the pod, so that it is never older than the
// event that showed the pod again.
PodSpec Feed::Resolved(const PodRecord& pod, const Engine& engine) const {
  PodSpec spec = pod.spec;
  if (!spec.node.empty() && spec.request.gpu == GpuKind::kWhole && devices_of_) {
    // Which devices a pod with whole ones has is told by its slice, not by the pod.
    spec.gpu_devices = devices_of_(spec.ns, spec.uid);
  }
  if (pod.volumes.empty()) {
    return spec;
  }
  const int profile = engine.ProfileFor(pod.scheduler_name);
  // kube-scheduler leaves a missing ConfigMap to the kubelet; KAI does not.
  const bool kai = profile != kNone && !engine.profiles()[static_cast<std::size_t>(profile)].kube;
  ResolveVolumes(pod.volumes, Lookups(kai), &spec);
  return spec;
}

PodLookups Feed::Lookups(bool config_maps) const {
  PodLookups lookups;
  lookups.volume_claim = [this](const std::string& ns,
                                const std::string& name) -> std::optional<VolumeClaimFacts> {
    const ObjectPtr found = volume_claims_->Get({ns, name});
    return found == nullptr ? std::nullopt : std::optional(found->As<VolumeClaimFacts>());
  };
  lookups.volume = [this](const std::string& name) -> std::optional<VolumeFacts> {
    const ObjectPtr found = volumes_->Get({"", name});
    return found == nullptr ? std::nullopt : std::optional(found->As<VolumeFacts>());
  };
  lookups.classes_known = classes_known_;
  lookups.storage_class = [this](const std::string& name) -> std::optional<StorageClassFacts> {
    const ObjectPtr found = storage_classes_->Get({"", name});
    return found == nullptr ? std::nullopt : std::optional(found->As<StorageClassFacts>());
  };
  if (config_maps && config_maps_ != nullptr) {
    lookups.config_map_exists = [this](const std::string& ns, const std::string& name) {
      return config_maps_->Get({ns, name}) != nullptr;
    };
  }
  return lookups;
}

void Feed::Reconsider(std::string_view reference) {
  for (const ObjectPtr& pod : pods_->ByIndex(kVolumeIndex, reference)) {
    Put(kPod, pod->uid,
        [this, pod](Engine& engine) { engine.Apply(Resolved(pod->As<PodRecord>(), engine)); });
  }
}

void Feed::WatchVolumes(client::InformerFactory& informers, bool config_maps) {
  const auto key_of = [](const ObjectPtr& before, const ObjectPtr& after) {
    return (after != nullptr ? after : before)->key.Text();
  };
  const auto any_claim = [this](const ObjectPtr&, const ObjectPtr&) { Reconsider(kAnyClaim); };
  auto claims = InformerOf("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
  claims.make_record = [](const Json& object) {
    return std::make_shared<const VolumeClaimFacts>(VolumeClaimFromJson(object));
  };
  volume_claims_ = &informers.For(claims);
  volume_claims_->AddHandler([this, key_of](const ObjectPtr& before, const ObjectPtr& after) {
    Reconsider("claim/" + key_of(before, after));
  });
  auto volumes = InformerOf("", "v1", "persistentvolumes", "PersistentVolume");
  volumes.make_record = [](const Json& object) {
    return std::make_shared<const VolumeFacts>(VolumeFromJson(object));
  };
  volumes_ = &informers.For(volumes);
  volumes_->AddHandler(any_claim);
  auto classes = InformerOf("storage.k8s.io", "v1", "storageclasses", "StorageClass");
  classes.make_record = [](const Json& object) {
    return std::make_shared<const StorageClassFacts>(StorageClassFromJson(object));
  };
  storage_classes_ = &informers.For(classes);
  storage_classes_->AddHandler(any_claim);
  if (config_maps) {
    auto maps = InformerOf("", "v1", "configmaps", "ConfigMap");
    maps.metadata_only = true;
    config_maps_ = &informers.For(maps);
    config_maps_->AddHandler([this, key_of](const ObjectPtr& before, const ObjectPtr& after) {
      if (before == nullptr || after == nullptr) {
        Reconsider("map/" + key_of(before, after));
      }
    });
  }
}

client::ObjectPtr Feed::FindPodObject(const std::string& uid) const {
  const auto found = pods_->ByIndex(kUidIndex, uid);
  return found.empty() ? nullptr : found.front();
}

PodRecordPtr Feed::FindPod(const std::string& uid) const {
  const auto object = FindPodObject(uid);
  return object == nullptr ? nullptr : PodRecordPtr(object, &object->As<PodRecord>());
}

std::int64_t Feed::DeviceMemory(const std::string& node, const std::string& uuid) const {
  const ObjectPtr gpus = gpu_nodes_ == nullptr ? nullptr : gpu_nodes_->Get({"", node});
  if (gpus != nullptr) {
    for (const GpuDevice& device : gpus->As<GpuNodeRecord>().devices) {
      if (device.uuid == uuid) {
        return device.memory_bytes;
      }
    }
  }
  return 0;
}

std::optional<int> Feed::PriorityOf(const std::string& name) const {
  const ObjectPtr found =
      priority_classes_ == nullptr ? nullptr : priority_classes_->Get({"", name});
  return found == nullptr ? std::nullopt : std::optional(found->As<int>());
}

bool Feed::HasGpuNode(const std::string& node) const {
  return gpu_nodes_ != nullptr && gpu_nodes_->Get({"", node}) != nullptr;
}

}  // namespace sublet::scheduler
