// CSI drivers, their nodes and capacities, volume attachments and attributes.
// Source: k8s.io/kubernetes pkg/apis/storage/validation.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"

namespace sublet::kube::validate {
void CsiDriver(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  Choice(kSpec, spec, "fsGroupPolicy", {"File", "None", "ReadWriteOnceWithFSType"}, errors);
  const Path modes = kSpec.Child("volumeLifecycleModes");
  std::size_t index = 0;
  for (const Json& mode : Items(spec, "volumeLifecycleModes")) {
    OneOf(modes.Index(index++), mode.get<std::string>(), {"Ephemeral", "Persistent"}, true, errors);
  }
}

void CsiDriverUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  CsiDriver(object, errors);
  for (const char* field : {"attachRequired", "volumeLifecycleModes"}) {
    if (!SameMember(Get(object, "spec"), Get(old, "spec"), field)) {
      errors->Invalid(kSpec.Child(field), Get(Get(object, "spec"), field), kImmutable);
    }
  }
}

void VolumeAttachment(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  if (Str(spec, "attacher").empty()) {
    errors->Required(kSpec.Child("attacher"));
  }
  const Json& source = Get(spec, "source");
  const bool inline_spec = Has(source, "inlineVolumeSpec");
  const bool named = Has(source, "persistentVolumeName");
  const Path at = kSpec.Child("source");
  if (!inline_spec && !named) {
    errors->Required(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
  } else if (inline_spec && named) {
    errors->Forbidden(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
  } else if (named && Str(source, "persistentVolumeName").empty()) {
    errors->Required(at.Child("persistentVolumeName"),
                     "must specify non empty persistentVolumeName");
  }
  Check(kSpec.Child("nodeName"), Str(spec, "nodeName"), &IsDns1123Subdomain, errors);
}

void VolumeAttachmentUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  VolumeAttachment(object, errors);
  if (Get(object, "spec") != Get(old, "spec")) {
    errors->Invalid(kSpec, Get(object, "spec"), "field is immutable");
  }
}

void CsiNode(const Json& object, FieldErrors* errors) {
  const Path drivers = kSpec.Child("drivers");
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& driver : Items(Get(object, "spec"), "drivers")) {
    const Path at = drivers.Index(index++);
    const std::string name = Str(driver, "name");
    CsiDriverName(at.Child("name"), name, errors);
    const std::string id = Str(driver, "nodeID");
    if (id.empty()) {
      errors->Required(at.Child("nodeID"));
    } else if (id.size() > 256) {
      errors->Invalid(at.Child("nodeID"), id, "must be 256 characters or less");
    }
    const Path allocatable = at.Child("allocatable");
    NotNegative(Get(driver, "allocatable"), "count", allocatable, errors);
    if (!names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
    std::set<std::string> keys;
    for (const Json& one : Items(driver, "topologyKeys")) {
      const std::string key = one.get<std::string>();
      if (key.empty()) {
        errors->Required(at);
      }
      if (!keys.insert(key).second) {
        errors->Duplicate(at, key);
      }
      Check(at, key, &IsQualifiedName, errors);
    }
  }
}

void CsiNodeUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  CsiNode(object, errors);
  for (const Json& before : Items(Get(old, "spec"), "drivers")) {
    for (const Json& driver : Items(Get(object, "spec"), "drivers")) {
      const bool same =
          SameMember(driver, before, "nodeID") && SameMember(driver, before, "topologyKeys");
      if (Str(driver, "name") == Str(before, "name") && !same) {
        errors->Invalid(kSpec.Child("drivers"), driver, kImmutable);
      }
    }
  }
}

void CsiStorageCapacity(const Json& object, FieldErrors* errors) {
  const Path topology("nodeTopology");
  LabelSelector(topology, Get(object, "nodeTopology"), errors);
  Check(Path("storageClassName"), Str(object, "storageClassName"), &IsDns1123Subdomain, errors);
  if (const std::string capacity = Str(object, "capacity"); capacity.starts_with('-')) {
    errors->Invalid(Path("capacity"), capacity, kNotNegative);
  }
}

void CsiStorageCapacityUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  for (const char* key : {"nodeTopology", "storageClassName"}) {
    if (!SameMember(object, old, key)) {
      errors->Invalid(Path(key), Get(object, key), kImmutable);
    }
  }
}

void VolumeAttributesClass(const Json& object, FieldErrors* errors) {
  constexpr std::size_t kParametersMax = 512;
  constexpr std::size_t kBytesMax = 256 * 1024;
  const std::string driver = Str(object, "driverName");
  std::string lower = driver;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  CheckRequired(Path("driverName"), lower, &IsQualifiedName, errors);
  const Path path("parameters");
  const Json& parameters = Get(object, "parameters");
  if (parameters.size() > kParametersMax) {
    return errors->TooLong(path, static_cast<int>(kParametersMax));
  }
  std::size_t bytes = 0;
  for (const auto& [key, value] : parameters.items()) {
    if (key.empty()) {
      errors->Invalid(path, key, "field can not be empty.");
    }
    bytes += key.size() + value.get_ref<const std::string&>().size();
  }
  if (bytes > kBytesMax) {
    errors->TooLong(path, static_cast<int>(kBytesMax));
  }
  if (parameters.empty()) {
    errors->Required(path, "must contain at least one key/value pair");
  }
}

void VolumeAttributesClassUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  for (const char* key : {"driverName", "parameters"}) {
    if (!SameMember(object, old, key)) {
      errors->Forbidden(Path(key), "updates to " + std::string(key) + " are forbidden.");
    }
  }
  VolumeAttributesClass(object, errors);
}

}  // namespace sublet::kube::validate
