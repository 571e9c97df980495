#include <nlohmann/json.hpp>

#include "kube/kinds/column_cells.h"
#include "kube/object.h"

namespace sublet::kube::cells {
namespace {

// "RWO,ROX": each mode once, in Kubernetes' order.
std::string AccessModes(const Json& modes) {
  static constexpr std::pair<std::string_view, std::string_view> kModes[] = {
      {"ReadWriteOnce", "RWO"},
      {"ReadOnlyMany", "ROX"},
      {"ReadWriteMany", "RWX"},
      {"ReadWriteOncePod", "RWOP"}};
  std::string out;
  for (const auto& [mode, shown] : kModes) {
    for (const Json& one : modes) {
      if (one == mode) {
        out.append(out.empty() ? "" : ",").append(shown);
        break;
      }
    }
  }
  return out;
}

std::string StorageClassOf(const Json& object) {
  const std::string_view old = AnnotationOf(object, "volume.beta.kubernetes.io/storage-class");
  return old.empty() ? Text(object, {"spec", "storageClassName"}) : std::string(old);
}

std::string Phase(const Json& object) {
  return IsDeleting(object) ? "Terminating" : Text(object, {"status", "phase"});
}

}  // namespace

Json PersistentVolume(const Json& object, WallTime now) {
  std::string claim;
  if (Find(object, {"spec", "claimRef"}) != nullptr) {
    claim = Text(object, {"spec", "claimRef", "namespace"}) + "/" +
            Text(object, {"spec", "claimRef", "name"});
  }
  return Json::array({NameText(object), Text(object, {"spec", "capacity", "storage"}, "0"),
                      AccessModes(List(object, {"spec", "accessModes"})),
                      Text(object, {"spec", "persistentVolumeReclaimPolicy"}), Phase(object), claim,
                      StorageClassOf(object),
                      Text(object, {"spec", "volumeAttributesClassName"}, "<unset>"),
                      Text(object, {"status", "reason"}), Age(object, now),
                      Text(object, {"spec", "volumeMode"}, "<unset>")});
}

Json PersistentVolumeClaim(const Json& object, WallTime now) {
  const std::string volume = Text(object, {"spec", "volumeName"});
  std::string capacity;
  std::string modes;
  if (!volume.empty()) {
    modes = AccessModes(List(object, {"status", "accessModes"}));
    capacity = Text(object, {"status", "capacity", "storage"}, "0");
  }
  return Json::array({NameText(object), Phase(object), volume, capacity, modes,
                      StorageClassOf(object),
                      Text(object, {"spec", "volumeAttributesClassName"}, "<unset>"),
                      Age(object, now), Text(object, {"spec", "volumeMode"}, "<unset>")});
}

Json StorageClass(const Json& object, WallTime now) {
  std::string name = NameText(object);
  if (AnnotationOf(object, "storageclass.kubernetes.io/is-default-class") == "true" ||
      AnnotationOf(object, "storageclass.beta.kubernetes.io/is-default-class") == "true") {
    name += " (default)";
  }
  return Json::array({name, Text(object, {"provisioner"}),
                      Text(object, {"reclaimPolicy"}, "Delete"),
                      Text(object, {"volumeBindingMode"}, "Immediate"),
                      FindBool(object, {"allowVolumeExpansion"}), Age(object, now)});
}

Json VolumeAttributesClass(const Json& object, WallTime now) {
  return Json::array({NameText(object), Text(object, {"driverName"}), Age(object, now)});
}

Json VolumeAttachment(const Json& object, WallTime now) {
  return Json::array({NameText(object), Text(object, {"spec", "attacher"}),
                      Text(object, {"spec", "source", "persistentVolumeName"}),
                      Text(object, {"spec", "nodeName"}), FindBool(object, {"status", "attached"}),
                      Age(object, now)});
}

Json CsiNode(const Json& object, WallTime now) {
  return Json::array(
      {NameText(object), List(object, {"spec", "drivers"}).size(), Age(object, now)});
}

Json CsiDriver(const Json& object, WallTime now) {
  std::string modes;
  for (const Json& mode : List(object, {"spec", "volumeLifecycleModes"})) {
    modes.append(modes.empty() ? "" : ",").append(mode.get<std::string>());
  }
  std::string tokens = Find(object, {"spec", "tokenRequests"}) == nullptr ? "<unset>" : "";
  for (const Json& request : List(object, {"spec", "tokenRequests"})) {
    tokens.append(tokens.empty() ? "" : ",").append(Text(request, {"audience"}));
  }
  return Json::array({NameText(object), FindBool(object, {"spec", "attachRequired"}, true),
                      FindBool(object, {"spec", "podInfoOnMount"}),
                      FindBool(object, {"spec", "storageCapacity"}), tokens,
                      FindBool(object, {"spec", "requiresRepublish"}),
                      modes.empty() ? "<none>" : modes, Age(object, now)});
}

Json ResourceClaim(const Json& object, WallTime now) {
  std::string state = IsDeleting(object) ? "deleted" : "";
  if (Find(object, {"status", "allocation"}) == nullptr) {
    state = state.empty() ? "pending" : state;
  } else {
    state += state.empty() ? "allocated" : ",allocated";
    state += List(object, {"status", "reservedFor"}).empty() ? "" : ",reserved";
  }
  return Json::array({NameText(object), state, Age(object, now)});
}

Json ResourceSlice(const Json& object, WallTime now) {
  return Json::array({NameText(object), Text(object, {"spec", "nodeName"}),
                      Text(object, {"spec", "driver"}), Text(object, {"spec", "pool", "name"}),
                      Age(object, now)});
}

}  // namespace sublet::kube::cells
