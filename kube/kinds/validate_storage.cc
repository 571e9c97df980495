// Volumes, claims and storage classes.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::kube::validate {
namespace {

void AccessModes(const Path& path, const Json& spec, FieldErrors* errors) {
  bool once_pod = false;
  bool other = false;
  for (const Json& mode : Items(spec, "accessModes")) {
    const std::string text = mode.get<std::string>();
    OneOf(path.Child("accessModes"), text,
          {"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"}, true, errors);
    once_pod |= text == "ReadWriteOncePod";
    other |= text != "ReadWriteOncePod";
  }
  if (once_pod && other) {
    errors->Forbidden(path.Child("accessModes"),
                      "may not use ReadWriteOncePod with other access modes");
  }
}

void VolumeMode(const Path& path, const Json& spec, FieldErrors* errors) {
  Choice(path, spec, "volumeMode", {"Block", "Filesystem"}, errors);
}

constexpr std::string_view kPersistentSources[] = {"hostPath",
                                                   "gcePersistentDisk",
                                                   "awsElasticBlockStore",
                                                   "glusterfs",
                                                   "nfs",
                                                   "rbd",
                                                   "quobyte",
                                                   "cephfs",
                                                   "iscsi",
                                                   "cinder",
                                                   "fc",
                                                   "flocker",
                                                   "flexVolume",
                                                   "azureFile",
                                                   "vsphereVolume",
                                                   "azureDisk",
                                                   "photonPersistentDisk",
                                                   "portworxVolume",
                                                   "scaleIO",
                                                   "local",
                                                   "storageos",
                                                   "csi"};

// The secrets that a driver is given; both parts of a name are needed.
void SecretReferences(const Path& path, const Json& source, FieldErrors* errors) {
  for (const char* key : {"controllerPublishSecretRef", "controllerExpandSecretRef",
                          "nodePublishSecretRef", "nodeExpandSecretRef"}) {
    const Json& secret = Get(source, key);
    if (!secret.is_object()) {
      continue;
    }
    const Path at = path.Child(key);
    for (const char* part : {"name", "namespace"}) {
      const std::string value = Str(secret, part);
      const bool is_name = part == std::string_view("name");
      if (value.empty()) {
        errors->Required(at.Child(part));
      } else {
        Check(at.Child("name"), value, is_name ? &IsDns1123Subdomain : &IsDns1123Label, errors);
      }
    }
  }
}

void VolumeSources(const Json& spec, FieldErrors* errors) {
  int kinds = 0;
  for (const std::string_view kind : kPersistentSources) {
    const Json& source = Get(spec, kind);
    if (!source.is_object()) {
      continue;
    }
    const Path at = kSpec.Child(kind);
    if (kinds++ > 0) {
      errors->Forbidden(at, "may not specify more than 1 volume type");
    } else if (kind == "hostPath" || kind == "local") {
      const std::string path = Str(source, "path");
      if (path.empty()) {
        errors->Required(at.Child("path"));
      } else {
        NoBacksteps(at.Child("path"), path, errors);
      }
    } else if (kind == "csi") {
      CsiDriverName(at.Child("driver"), Str(source, "driver"), errors);
      if (Str(source, "volumeHandle").empty()) {
        errors->Required(at.Child("volumeHandle"));
      }
      SecretReferences(at, source, errors);
    } else {
      SharedSource(kSpec, kind, source, errors);
    }
  }
  if (kinds == 0) {
    errors->Required(kSpec, "must specify a volume type");
  }
  if (Str(Get(spec, "hostPath"), "path") == "/" &&
      Str(spec, "persistentVolumeReclaimPolicy") == "Recycle") {
    errors->Forbidden(kSpec.Child("persistentVolumeReclaimPolicy"),
                      "may not be 'recycle' for a hostPath mount of '/'");
  }
}

void Capacity(const Json& spec, FieldErrors* errors) {
  const Json& capacity = Get(spec, "capacity");
  const Path path = kSpec.Child("capacity");
  const bool empty = !capacity.is_object() || capacity.empty();
  if (empty) {
    errors->Required(path);
  }
  if (empty || !Has(capacity, "storage") || capacity.size() > 1) {
    errors->NotSupported(path, empty ? Json::object() : capacity, {"storage"});
  }
  if (empty) {
    return;
  }
  for (const auto& [name, value] : capacity.items()) {
    const Path at = path.Key(name);
    const std::string text = value.get<std::string>();
    const Quantity quantity = Quantity::ParseOrZero(text);
    if (quantity.Value() < 0) {
      errors->Invalid(at, quantity.Value(), "must be a valid resource quantity");
    }
    if (quantity.Sign() <= 0) {
      errors->Invalid(at, text, "must be greater than zero");
    }
  }
}

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

// Terms name different keys, and different values under each; no two terms are the same.
void AllowedTopologies(const Json& object, FieldErrors* errors) {
  const Path path("allowedTopologies");
  std::vector<Json> terms;
  std::size_t index = 0;
  for (const Json& term : Items(object, "allowedTopologies")) {
    const Path at = path.Index(index++);
    const Path expressions = at.Child("matchLabelExpressions");
    Json keys = Json::object();
    std::size_t i = 0;
    for (const Json& one : Items(term, "matchLabelExpressions")) {
      const Path here = expressions.Index(i++);
      const Path values = here.Child("values");
      const auto& items = Items(one, "values");
      if (items.empty()) {
        errors->Required(values);
      }
      std::set<std::string> seen;
      for (std::size_t v = 0; v < items.size(); ++v) {
        if (!seen.insert(items[v].get<std::string>()).second) {
          errors->Duplicate(values.Index(v), items[v]);
        }
      }
      const std::string key = Str(one, "key");
      Check(here.Child("key"), key, &IsQualifiedName, errors);
      if (keys.contains(key)) {
        errors->Duplicate(here.Child("key"), key);
      }
      keys[key] = seen;
    }
    if (std::find(terms.begin(), terms.end(), keys) != terms.end()) {
      errors->Duplicate(expressions, "");
    }
    terms.push_back(std::move(keys));
  }
}

}  // namespace

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
  DataSource(path.Child("dataSourceRef"), Get(spec, "dataSourceRef"), errors);
  if (const std::string name = Str(spec, "volumeAttributesClassName"); !name.empty()) {
    Check(path.Child("volumeAttributesClassName"), name, &IsDns1123Subdomain, errors);
  }
}

void PersistentVolume(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  if (Items(spec, "accessModes").empty()) {
    errors->Required(kSpec.Child("accessModes"));
  }
  AccessModes(kSpec, spec, errors);
  Capacity(spec, errors);
  OneOf(kSpec.Child("persistentVolumeReclaimPolicy"), Str(spec, "persistentVolumeReclaimPolicy"),
        {"Delete", "Recycle", "Retain"}, false, errors);
  if (const Json& affinity = Get(spec, "nodeAffinity"); affinity.is_object()) {
    const Path at = kSpec.Child("nodeAffinity");
    if (!Has(affinity, "required")) {
      errors->Required(at.Child("required"), "must specify required node constraints");
    } else {
      const Path required = at.Child("required");
      NodeSelector(required, Get(affinity, "required"), errors);
    }
  }
  VolumeSources(spec, errors);
  if (const std::string name = Str(spec, "storageClassName"); !name.empty()) {
    Check(kSpec.Child("storageClassName"), name, &IsDns1123Subdomain, errors);
  }
  VolumeMode(kSpec, spec, errors);
}

void PersistentVolumeUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  PersistentVolume(object, errors);
  const Json& spec = Get(object, "spec");
  const Json& before = Get(old, "spec");
  for (const std::string_view kind : kPersistentSources) {
    if (!SameMember(spec, before, kind)) {
      errors->Forbidden(kSpec.Child("persistentvolumesource"),
                        "spec.persistentvolumesource is immutable after creation\n");
      break;
    }
  }
  if (Get(spec, "volumeMode") != Get(before, "volumeMode")) {
    errors->Invalid(Path("volumeMode"), Get(spec, "volumeMode"), kImmutable);
  }
}

void PersistentVolumeClaim(const Json& object, FieldErrors* errors) {
  ClaimSpec(kSpec, Get(object, "spec"), errors);
}

void PersistentVolumeClaimUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  PersistentVolumeClaim(object, errors);
  Json spec = Get(object, "spec");
  const Json& before = Get(old, "spec");
  // Binding sets the volume once.
  if (Str(before, "volumeName").empty()) {
    EraseMember(&spec, "volumeName");
  }
  if (FindString(object, {"status", "phase"}) == "Bound") {
    if (const Json* requests = Find(before, {"resources", "requests"})) {
      EnsureObject(&spec, "resources")["requests"] = *requests;
    }
    for (const char* field : {"volumeAttributesClassName"}) {
      if (Has(before, field)) {
        spec[field] = Get(before, field);
      } else {
        EraseMember(&spec, field);
      }
    }
  }
  if (Str(before, "storageClassName").empty() && !Has(before, "storageClassName")) {
    EraseMember(&spec, "storageClassName");  // a default class may come later
  }
  if (spec != before) {
    errors->Forbidden(kSpec,
                      "spec is immutable after creation except resources.requests and "
                      "volumeAttributesClassName for bound claims\n");
  }
  const auto size = [](const Json& one, const char* where) {
    return Quantity::ParseOrZero(Str(Get(one, where), "storage"));
  };
  const Quantity now = size(Get(Get(object, "spec"), "resources"), "requests");
  const Quantity then = size(Get(before, "resources"), "requests");
  const Quantity actual = size(Get(old, "status"), "capacity");
  if (now < then && now <= actual) {
    const Path resources = kSpec.Child("resources");
    const Path requests = resources.Child("requests");
    errors->Forbidden(requests.Child("storage"), "field can not be less than status.capacity");
  }
  if (Get(Get(object, "spec"), "volumeMode") != Get(before, "volumeMode")) {
    errors->Invalid(Path("volumeMode"), Get(Get(object, "spec"), "volumeMode"), kImmutable);
  }
}

void StorageClass(const Json& object, FieldErrors* errors) {
  std::string provisioner = Str(object, "provisioner");
  std::transform(provisioner.begin(), provisioner.end(), provisioner.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  CheckRequired(Path("provisioner"), provisioner, &IsQualifiedName, errors);
  if (const Json& parameters = Get(object, "parameters"); parameters.is_object()) {
    for (const auto& [key, value] : parameters.items()) {
      if (key.empty()) {
        errors->Invalid(Path("parameters"), key, "field can not be empty.");
      }
    }
  }
  OneOf(Path("reclaimPolicy"), Str(object, "reclaimPolicy"), {"Delete", "Retain"}, false, errors);
  const std::string mode = Str(object, "volumeBindingMode");
  if (!Has(object, "volumeBindingMode")) {
    errors->Required(Path("volumeBindingMode"));
  } else if (mode != "Immediate" && mode != "WaitForFirstConsumer") {
    errors->NotSupported(Path("volumeBindingMode"), mode, {"Immediate", "WaitForFirstConsumer"});
  }
  AllowedTopologies(object, errors);
}

void StorageClassUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  StorageClass(object, errors);
  for (const char* field : {"parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"}) {
    if (!SameMember(object, old, field)) {
      errors->Invalid(Path(field), Get(object, field), kImmutable);
    }
  }
}

}  // namespace sublet::kube::validate
