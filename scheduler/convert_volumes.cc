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
                        const std::optional<StorageClassFacts>& storage, bool classes_known) {
  if (claim.deleting) {
    return "persistentvolumeclaim \"" + name + "\" is being deleted";
  }
  if (claim.lost) {
    return "persistentvolumeclaim \"" + name + "\" bound to non-existent persistentvolume \"" +
           claim.volume + "\"";
  }
  return claim.volume.empty() && (storage ? !storage->waits : classes_known)
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

namespace {

void ResolveClaim(const std::string& name, const PodLookups& lookups, PodSpec* pod) {
  const bool placed = !pod->node.empty();
  const auto claim = lookups.volume_claim(pod->ns, name);
  if (!claim) {
    if (!placed) {
      pod->unschedulable_reason = "persistentvolumeclaim \"" + name + "\" not found";
    }
    return;
  }
  const auto storage =
      lookups.storage_class ? lookups.storage_class(claim->storage_class) : std::nullopt;
  const bool classes_known = lookups.storage_class && lookups.classes_known;
  if (std::string reason = ClaimReason(name, *claim, storage, classes_known);
      !placed && !reason.empty()) {
    pod->unschedulable_reason = std::move(reason);
    return;
  }
  if (claim->volume.empty()) {
    if (!placed && storage && !storage->topologies.empty()) {
      pod->constraints.volumes.push_back(storage->topologies);
    }
    if (storage && !storage->provisioner.empty()) {
      pod->attachments.emplace_back(storage->provisioner, claim->uid);
    }
    return;
  }
  const auto volume = lookups.volume ? lookups.volume(claim->volume) : std::nullopt;
  if (!volume) {
    return;
  }
  if (!placed && !volume->terms.empty()) {
    pod->constraints.volumes.push_back(volume->terms);
  }
  if (!volume->driver.empty()) {
    pod->attachments.emplace_back(volume->driver, volume->handle);
  }
}

}  // namespace

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
  if (!lookups.volume_claim) {
    return;
  }
  for (const std::string& name : refs.claims) {
    ResolveClaim(name, lookups, pod);
  }
  std::sort(pod->attachments.begin(), pod->attachments.end());
  pod->attachments.erase(std::unique(pod->attachments.begin(), pod->attachments.end()),
                         pod->attachments.end());
}

VolumeClaimFacts VolumeClaimFromJson(const Json& claim) {
  return {kube::IsDeleting(claim), FindString(claim, {"status", "phase"}) == "Lost",
          Text(claim, {"spec", "volumeName"}), Text(claim, {"spec", "storageClassName"}),
          std::string(kube::UidOf(claim))};
}

StorageClassFacts StorageClassFromJson(const Json& storage_class) {
  StorageClassFacts out;
  out.provisioner = Text(storage_class, {"provisioner"});
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

VolumeFacts VolumeFromJson(const Json& volume) {
  VolumeFacts out;
  for (const Json& term :
       Array(volume, {"spec", "nodeAffinity", "required", "nodeSelectorTerms"})) {
    out.terms.push_back(NodeTermFrom(term));
  }
  out.driver = Text(volume, {"spec", "csi", "driver"});
  out.handle = Text(volume, {"spec", "csi", "volumeHandle"});
  return out;
}

std::map<std::string, std::int64_t> VolumeLimitsFromJson(const Json& csi_node) {
  std::map<std::string, std::int64_t> out;
  for (const Json& driver : Array(csi_node, {"spec", "drivers"})) {
    if (Find(driver, {"allocatable", "count"}) != nullptr) {
      out[Text(driver, {"name"})] = kube::FindInt(driver, {"allocatable", "count"});
    }
  }
  return out;
}

}  // namespace sublet::scheduler
