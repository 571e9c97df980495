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
// Of pods without a node, by what they need: "claims", "claim/<namespace>/<name>",
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
  }
  if (record->spec.request.gpu == GpuKind::kWhole) {
    record->whole_gpus = record->spec.request.gpu_count;
  }
  return record;
}

client::InformerOptions Options(const char* group, const char* version, const char* resource,
                                const char* kind) {
  client::InformerOptions options;
  options.resource = {group, version, resource};
  options.kind = kind;
  options.keep_bytes = false;
  return options;
}

}  // namespace

Feed::Feed(client::InformerFactory& informers, const FeedOptions& options,
           std::function<void()> wake)
    : wake_(std::move(wake)), own_bytes_(options.own_bytes), devices_of_(options.devices_of) {
  WatchNodes(informers, options.gpu_nodes);
  if (options.kai) {
    WatchKai(informers);
  }
  WatchBudgets(informers);
  WatchVolumes(informers, options.kai);
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
  Put(kNode, name, [spec = std::move(spec)](Engine& engine) { engine.Apply(spec); });
}

void Feed::WatchNodes(client::InformerFactory& informers, bool gpu_nodes) {
  auto options = Options("", "v1", "nodes", "Node");
  options.make_record = [](const Json& node) {
    auto record = std::make_shared<NodeRecord>();
    record->spec = NodeFromJson(node);
    return record;
  };
  nodes_ = &informers.For(options);
  const auto changed = [this](const ObjectPtr& before, const ObjectPtr& after) {
    NodeChanged((after != nullptr ? after : before)->key.name);
  };
  if (gpu_nodes) {
    auto gpus = Options(gpu::kGroup.data(), gpu::kVersion.data(), gpu::kNodeResource.data(),
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
  auto options = Options("", "v1", "pods", "Pod");
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
        if (!pod.volumes.empty()) {
          return engine.Apply(Resolved(pod, engine));
        }
        const PodSpec& spec = pod.spec;
        if (spec.node.empty() || spec.request.gpu != GpuKind::kWhole || !devices_of_) {
          return engine.Apply(spec);
        }
        // Which devices a pod with whole ones has is told by its slice, not by the pod.
        PodSpec placed = spec;
        placed.gpu_devices = devices_of_(spec.ns, spec.uid);
        engine.Apply(placed);
      });
    }
  });
}

// What is asked is looked up when the engine takes the pod, so that it is never older than the
// event that showed the pod again.
PodSpec Feed::Resolved(const PodRecord& pod, const Engine& engine) const {
  PodSpec spec = pod.spec;
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
  lookups.volume = [this](const std::string& name) -> std::optional<std::vector<NodeTerm>> {
    const ObjectPtr found = volumes_->Get({"", name});
    return found == nullptr ? std::nullopt : std::optional(found->As<std::vector<NodeTerm>>());
  };
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
  auto claims = Options("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
  claims.make_record = [](const Json& object) {
    return std::make_shared<const VolumeClaimFacts>(VolumeClaimFromJson(object));
  };
  volume_claims_ = &informers.For(claims);
  volume_claims_->AddHandler([this, key_of](const ObjectPtr& before, const ObjectPtr& after) {
    Reconsider("claim/" + key_of(before, after));
  });
  auto volumes = Options("", "v1", "persistentvolumes", "PersistentVolume");
  volumes.make_record = [](const Json& object) {
    return std::make_shared<const std::vector<NodeTerm>>(VolumeTermsFromJson(object));
  };
  volumes_ = &informers.For(volumes);
  volumes_->AddHandler(any_claim);
  auto classes = Options("storage.k8s.io", "v1", "storageclasses", "StorageClass");
  classes.make_record = [](const Json& object) {
    return std::make_shared<const StorageClassFacts>(StorageClassFromJson(object));
  };
  storage_classes_ = &informers.For(classes);
  storage_classes_->AddHandler(any_claim);
  if (config_maps) {
    auto maps = Options("", "v1", "configmaps", "ConfigMap");
    maps.metadata_only = true;
    config_maps_ = &informers.For(maps);
    config_maps_->AddHandler([this, key_of](const ObjectPtr& before, const ObjectPtr& after) {
      if (before == nullptr || after == nullptr) {
        Reconsider("map/" + key_of(before, after));
      }
    });
  }
}

void Feed::WatchKai(client::InformerFactory& informers) {
  auto classes = Options("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass");
  classes.make_record = [](const Json& object) {
    return std::make_shared<const int>(static_cast<int>(kube::FindInt(object, {"value"})));
  };
  priority_classes_ = &informers.For(classes);

  auto queues = Options("scheduling.run.ai", "v2", "queues", "Queue");
  queues.make_record = [](const Json& object) {
    return std::make_shared<const QueueSpec>(QueueFromJson(object));
  };
  queues_ = &informers.For(queues);
  queues_->AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string name = (after != nullptr ? after : before)->key.name;
    if (after == nullptr) {
      Put(kQueue, name, [name](Engine& engine) { engine.DeleteQueue(name); });
    } else {
      Put(kQueue, name, [after](Engine& engine) { engine.Apply(after->As<QueueSpec>()); });
    }
  });

  auto groups = Options("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup");
  groups.make_record = [this](const Json& object) {
    return std::make_shared<const PodGroupSpec>(
        PodGroupFromJson(object, [this](const std::string& name) -> std::optional<int> {
          const ObjectPtr found = priority_classes_->Get({"", name});
          return found == nullptr ? std::nullopt : std::optional(found->As<int>());
        }));
  };
  groups_ = &informers.For(groups);
  groups_->AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string key = (after != nullptr ? after : before)->key.Text();
    if (after == nullptr) {
      Put(kGroup, key, [key](Engine& engine) { engine.DeletePodGroup(key); });
    } else {
      Put(kGroup, key, [after](Engine& engine) { engine.Apply(after->As<PodGroupSpec>()); });
    }
  });

  auto topologies = Options("kai.scheduler", "v1alpha1", "topologies", "Topology");
  topologies.make_record = [](const Json& object) {
    return std::make_shared<const TopologySpec>(TopologyFromJson(object));
  };
  informers.For(topologies).AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string name = (after != nullptr ? after : before)->key.name;
    if (after == nullptr) {
      Put(kTopology, name, [name](Engine& engine) { engine.DeleteTopology(name); });
    } else {
      Put(kTopology, name, [after](Engine& engine) { engine.Apply(after->As<TopologySpec>()); });
    }
  });
}

void Feed::WatchBudgets(client::InformerFactory& informers) {
  auto options = Options("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget");
  options.make_record = [](const Json& object) {
    return std::make_shared<const DisruptionBudget>(BudgetFromJson(object));
  };
  informers.For(options).AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string key = (after != nullptr ? after : before)->key.Text();
    if (after == nullptr) {
      Put(kBudget, key, [key](Engine& engine) { engine.DeleteBudget(key); });
    } else {
      Put(kBudget, key, [after](Engine& engine) { engine.Apply(after->As<DisruptionBudget>()); });
    }
  });
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
