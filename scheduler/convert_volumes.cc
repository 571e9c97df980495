// What a pod's volumes and configuration ask of the cluster (scheduler/convert.h).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "scheduler/convert.h"
#include "scheduler/convert_internal.h"

namespace sublet::scheduler {

using internal::Array;
using internal::NodeTermFrom;
using internal::Strings;
using internal::Text;
using kube::Find;
using kube::FindBool;
using kube::FindString;
using kube::Json;

namespace {

void SortUnique(std::vector<std::string>* names) {
  std::sort(names->begin(), names->end());
  names->erase(std::unique(names->begin(), names->end()), names->end());
}

void AddConfigMap(const Json* reference, std::vector<std::string>* names) {
  if (reference != nullptr && !FindBool(*reference, {"optional"})) {
    if (std::string name = Text(*reference, {"name"}); !name.empty()) {
      names->push_back(std::move(name));
    }
  }
}

void AddEnvironment(const Json& container, std::vector<std::string>* names) {
  for (const Json& variable : Array(container, {"env"})) {
    AddConfigMap(Find(variable, {"valueFrom", "configMapKeyRef"}), names);
  }
  for (const Json& source : Array(container, {"envFrom"})) {
    AddConfigMap(Find(source, {"configMapRef"}), names);
  }
}

bool Mounted(const Json& pod, const std::string& volume) {
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : Array(pod, {"spec", list})) {
      for (const Json& mount : Array(container, {"volumeMounts"})) {
        if (FindString(mount, {"name"}) == volume) {
          return true;
        }
      }
    }
  }
  return false;
}

std::string ClaimReason(const std::string& name, const VolumeClaimFacts& claim,
                        const std::optional<StorageClassFacts>& storage) {
  if (claim.deleting) {
    return "persistentvolumeclaim \"" + name + "\" is being deleted";
  }
  if (claim.lost) {
    return "persistentvolumeclaim \"" + name + "\" bound to non-existent persistentvolume \"" +
           claim.volume + "\"";
  }
  return claim.volume.empty() && storage && !storage->waits
             ? "pod has unbound immediate PersistentVolumeClaims"
             : "";
}

}  // namespace

VolumeRefs VolumesOf(const Json& pod) {
  VolumeRefs refs;
  const std::string owner = Text(pod, {"metadata", "name"});
  for (const Json& volume : Array(pod, {"spec", "volumes"})) {
    const std::string name = Text(volume, {"name"});
    if (Find(volume, {"ephemeral"}) != nullptr) {
      refs.claims.push_back(owner + "-" + name);
    } else if (std::string claim = Text(volume, {"persistentVolumeClaim", "claimName"});
               !claim.empty()) {
      refs.claims.push_back(std::move(claim));
    }
    const Json& projected = Array(volume, {"projected", "sources"});
    if ((Find(volume, {"configMap"}) == nullptr && projected.empty()) || !Mounted(pod, name)) {
      continue;  // as KAI: a volume that nobody mounts keeps no pod waiting
    }
    AddConfigMap(Find(volume, {"configMap"}), &refs.config_maps);
    for (const Json& source : projected) {
      AddConfigMap(Find(source, {"configMap"}), &refs.config_maps);
    }
  }
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    for (const Json& container : Array(pod, {"spec", list})) {
      AddEnvironment(container, &refs.config_maps);
    }
  }
  SortUnique(&refs.claims);
  SortUnique(&refs.config_maps);
  return refs;
}

void ResolveVolumes(const VolumeRefs& refs, const PodLookups& lookups, PodSpec* pod) {
  std::string missing;
  for (const std::string& name : refs.config_maps) {
    if (lookups.config_map_exists && !lookups.config_map_exists(pod->ns, name)) {
      missing += (missing.empty() ? "" : " ") + name;
    }
  }
  if (!missing.empty()) {
    pod->unschedulable_reason = "Missing required configmaps: [" + missing + "]";
  }
  for (const std::string& name : refs.claims) {
    if (!lookups.volume_claim) {
      return;
    }
    const auto claim = lookups.volume_claim(pod->ns, name);
    if (!claim) {
      pod->unschedulable_reason = "persistentvolumeclaim \"" + name + "\" not found";
      continue;
    }
    const auto storage =
        lookups.storage_class ? lookups.storage_class(claim->storage_class) : std::nullopt;
    if (std::string reason = ClaimReason(name, *claim, storage); !reason.empty()) {
      pod->unschedulable_reason = std::move(reason);
      continue;
    }
    if (!claim->volume.empty()) {
      const auto terms = lookups.volume ? lookups.volume(claim->volume) : std::nullopt;
      if (terms && !terms->empty()) {
        pod->constraints.volumes.push_back(*terms);
      }
    } else if (storage && !storage->topologies.empty()) {
      pod->constraints.volumes.push_back(storage->topologies);
    }
  }
}

VolumeClaimFacts VolumeClaimFromJson(const Json& claim) {
  return {kube::IsDeleting(claim), FindString(claim, {"status", "phase"}) == "Lost",
          Text(claim, {"spec", "volumeName"}), Text(claim, {"spec", "storageClassName"})};
}

StorageClassFacts StorageClassFromJson(const Json& storage_class) {
  StorageClassFacts out;
  out.waits =
      FindString(storage_class, {"volumeBindingMode"}, "Immediate") == "WaitForFirstConsumer";
  for (const Json& topology : Array(storage_class, {"allowedTopologies"})) {
    NodeTerm term;
    for (const Json& item : Array(topology, {"matchLabelExpressions"})) {
      term.labels.push_back(
          {Text(item, {"key"}), SelectorOperator::kIn, Strings(Array(item, {"values"}))});
    }
    out.topologies.push_back(std::move(term));
  }
  return out;
}

std::vector<NodeTerm> VolumeTermsFromJson(const Json& volume) {
  std::vector<NodeTerm> out;
  for (const Json& term :
       Array(volume, {"spec", "nodeAffinity", "required", "nodeSelectorTerms"})) {
    out.push_back(NodeTermFrom(term));
  }
  return out;
}

}  // namespace sublet::scheduler
