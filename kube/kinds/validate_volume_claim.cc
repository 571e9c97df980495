// Claims for volumes: their spec, what of it may change, and their status.
#include <nlohmann/json.hpp>

#include "kube/kinds/go_diff.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::kube::validate {
namespace {

constexpr char kClassAnnotation[] = "volume.beta.kubernetes.io/storage-class";

void DataSource(const Path& path, const Json& source, FieldErrors* errors) {
  if (!source.is_object()) {
    return;
  }
  const std::string kind = Str(source, "kind");
  const std::string group = Str(source, "apiGroup");
  if (Str(source, "name").empty()) {
    errors->Required(path.Child("name"));
  }
  if (kind.empty()) {
    errors->Required(path.Child("kind"));
  }
  if (group.empty() && kind != "PersistentVolumeClaim") {
    errors->Invalid(path, kind,
                    "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
  } else if (!group.empty()) {
    Check(path.Child("apiGroup"), group, &IsDns1123Subdomain, errors);
  }
}

Quantity StorageOf(const Json& owner, const char* list) {
  return Quantity::ParseOrZero(Str(Get(owner, list), "storage"));
}

// The class may come later, by name or from the annotation that once named it.
bool ClassMayCome(const Json& object, const Json& old) {
  const Json& name = Get(Get(object, "spec"), "storageClassName");
  const std::string before(AnnotationOf(old, kClassAnnotation));
  return !name.is_null() && !Has(Get(old, "spec"), "storageClassName") &&
         (before.empty() || name == Json(before));
}

// The new spec with everything that may change put back to what it was; `then` is what it may be
// compared with.
Json Unchanging(const Json& object, const Json& old, Json* then) {
  Json now = Get(object, "spec");
  *then = Get(old, "spec");
  const auto put = [](const Json& from, const char* key, Json* to) {
    if (Has(from, key)) {
      (*to)[key] = Get(from, key);
    } else {
      EraseMember(to, key);
    }
  };
  // Binding names the volume, once.
  if (Str(*then, "volumeName").empty()) {
    put(now, "volumeName", then);
  }
  if (ClassMayCome(object, old)) {
    put(*then, "storageClassName", &now);
  }
  if (FindString(object, {"status", "phase"}) == "Bound") {
    if (Json* requests = Find(now, {"resources", "requests"}); requests != nullptr) {
      put(Get(Get(*then, "resources"), "requests"), "storage", requests);
    }
    put(*then, "volumeAttributesClassName", &now);
  }
  return now;
}

void ResourceKey(const Path& path, const std::string& name, FieldErrors* errors) {
  const std::size_t before = errors->size();
  Check(path, name, &IsQualifiedName, errors);
  const bool native =
      name.find('/') == std::string::npos || name.find("kubernetes.io/") != std::string::npos;
  if (errors->size() == before && native && name != "storage") {
    errors->NotSupported(path, name, {"storage"});
  }
}

}  // namespace

void AccessModes(const Path& path, const Json& spec, FieldErrors* errors) {
  bool once_pod = false;
  bool other = false;
  for (const Json& mode : Items(spec, "accessModes")) {
    const std::string text = mode.get<std::string>();
    const bool known = text == "ReadOnlyMany" || text == "ReadWriteMany" ||
                       text == "ReadWriteOnce" || text == "ReadWriteOncePod";
    if (!known) {
      errors->NotSupported(path.Child("accessModes"), text,
                           {"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"});
    }
    once_pod |= text == "ReadWriteOncePod";
    other |= known && text != "ReadWriteOncePod";
  }
  if (once_pod && other) {
    errors->Forbidden(path.Child("accessModes"),
                      "may not use ReadWriteOncePod with other access modes");
  }
}

void VolumeMode(const Path& path, const Json& spec, FieldErrors* errors) {
  Choice(path, spec, "volumeMode", {"Block", "Filesystem"}, errors);
}

void ClaimSpec(const Path& path, const Json& spec, FieldErrors* errors) {
  if (Items(spec, "accessModes").empty()) {
    errors->Required(path.Child("accessModes"), "at least 1 access mode is required");
  }
  if (const Json& selector = Get(spec, "selector"); selector.is_object()) {
    const Path at = path.Child("selector");
    LabelSelector(at, selector, errors);
  }
  AccessModes(path, spec, errors);
  const std::string storage = Str(Get(Get(spec, "resources"), "requests"), "storage");
  const Path resources = path.Child("resources");
  if (storage.empty()) {
    errors->Required(resources.Key("storage"));
  } else if (Quantity::ParseOrZero(storage).Sign() <= 0) {
    errors->Invalid(resources.Key("storage"), storage, "must be greater than zero");
  }
  if (const std::string name = Str(spec, "storageClassName"); !name.empty()) {
    Check(path.Child("storageClassName"), name, &IsDns1123Subdomain, errors);
  }
  VolumeMode(path, spec, errors);
  DataSource(path.Child("dataSource"), Get(spec, "dataSource"), errors);
  const Json& source = Get(spec, "dataSource");
  const Json& reference = Get(spec, "dataSourceRef");
  DataSource(path.Child("dataSourceRef"), reference, errors);
  if (source.is_object() && reference.is_object() && source != reference) {
    errors->InvalidShown(path, "{}", "must match dataSourceRef");
  }
  if (const std::string name = Str(spec, "volumeAttributesClassName"); !name.empty()) {
    Check(path.Child("volumeAttributesClassName"), name, &IsDns1123Subdomain, errors);
  }
}

void PersistentVolumeClaim(const Json& object, FieldErrors* errors) {
  ClaimSpec(kSpec, Get(object, "spec"), errors);
}

void PersistentVolumeClaimUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& before = Get(old, "spec");
  // A group that was stored once is not looked at again.
  const bool bears_group =
      Has(Get(before, "dataSource"), "apiGroup") || Has(Get(before, "dataSourceRef"), "apiGroup");
  FieldErrors whole;
  PersistentVolumeClaim(object, &whole);
  for (const StatusCause& cause : whole.causes()) {
    if (!bears_group || !cause.field.ends_with(".apiGroup")) {
      errors->Add(cause);
    }
  }
  if (const std::string now(AnnotationOf(object, kClassAnnotation));
      now != AnnotationOf(old, kClassAnnotation)) {
    const Path metadata("metadata");
    const Path annotations = metadata.Child("annotations");
    errors->Invalid(annotations.Child(kClassAnnotation), now, kImmutable);
  }
  Json then;
  if (const Json now = Unchanging(object, old, &then); now != then) {
    errors->Forbidden(kSpec,
                      "spec is immutable after creation except resources.requests and "
                      "volumeAttributesClassName for bound claims\n" +
                          GoDiff("PersistentVolumeClaimSpec", then, now));
  }
  const Quantity size = StorageOf(Get(spec, "resources"), "requests");
  if (size < StorageOf(Get(before, "resources"), "requests") &&
      size <= StorageOf(Get(old, "status"), "capacity")) {
    const Path resources = kSpec.Child("resources");
    const Path requests = resources.Child("requests");
    errors->Forbidden(requests.Child("storage"), "field can not be less than status.capacity");
  }
  if (!SameMember(spec, before, "volumeMode")) {
    errors->Invalid(Path("volumeMode"), Get(spec, "volumeMode"), kImmutable);
  }
  constexpr char kClass[] = "volumeAttributesClassName";
  if (!SameMember(spec, before, kClass) &&
      Has(Get(old, "status"), "currentVolumeAttributesClassName") && Str(spec, kClass).empty()) {
    errors->Forbidden(kSpec.Child(kClass),
                      "update to " + std::string(Has(spec, kClass) ? "empty string" : "nil") +
                          " is forbidden when status.currentVolumeAttributesClassName is not nil");
  }
}

void PersistentVolumeClaimStatus(const Json& object, const Json&, FieldErrors* errors) {
  const Path path("status");
  const Json& status = Get(object, "status");
  const Path capacity = path.Child("capacity");
  for (const auto& [name, value] : Get(status, "capacity").items()) {
    const std::int64_t amount = Quantity::ParseOrZero(value.get<std::string>()).Value();
    if (amount < 0) {
      errors->Invalid(capacity.Key(name), amount, "must be a valid resource quantity");
    }
  }
  const Path states = path.Child("allocatedResourceStatuses");
  for (const auto& [name, value] : Get(status, "allocatedResourceStatuses").items()) {
    ResourceKey(states, name, errors);
    const std::string state = value.get<std::string>();
    if (state != "ControllerResizeInProgress" && state != "ControllerResizeInfeasible" &&
        state != "NodeResizePending" && state != "NodeResizeInProgress" &&
        state != "NodeResizeInfeasible") {
      errors->NotSupported(states, name,
                           {"ControllerResizeInProgress", "ControllerResizeInfeasible",
                            "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"});
    }
  }
  const Path allocated = path.Child("allocatedResources");
  for (const auto& [name, value] : Get(status, "allocatedResources").items()) {
    const std::size_t before = errors->size();
    ResourceKey(allocated, name, errors);
    if (errors->size() != before) {
      continue;
    }
    const std::string text = value.get<std::string>();
    if (const std::int64_t amount = Quantity::ParseOrZero(text).Value(); amount < 0) {
      errors->Invalid(allocated.Key(name), amount, "must be a valid resource quantity");
    } else {
      QuantityValue(allocated.Key(name), "storage", text, errors);
    }
  }
}

}  // namespace sublet::kube::validate
