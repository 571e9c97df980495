// Persistent volumes and storage classes.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "kube/kinds/go_diff.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::kube::validate {
namespace {

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
        Check(at.Child(part), value, is_name ? &IsDns1123Subdomain : &IsDns1123Label, errors);
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
    // One source has another name where it is one too many.
    const bool too_many = kinds > 0 && kind == "cephfs";
    const Path at = kSpec.Child(too_many ? std::string_view("cephFS") : kind);
    // Upstream counts this one but never refuses it.
    if (kinds++ > 0 && kind != "flexVolume") {
      errors->Forbidden(at, "may not specify more than 1 volume type");
    } else if (kind == "hostPath") {
      HostPathSource(at, source, errors);
    } else if (kind == "local") {
      const std::string path = Str(source, "path");
      if (path.empty()) {
        errors->Required(at.Child("path"));
      } else {
        NoBacksteps(at.Child("path"), path, errors);
      }
      if (!Has(spec, "nodeAffinity")) {
        errors->Required(kSpec.Child("nodeAffinity"), "Local volume requires node affinity");
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
    errors->NotSupported(path, capacity, {"storage"});
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

// Terms name different keys, and different values under each; no two terms are the same.
void AllowedTopologies(const Json& object, FieldErrors* errors) {
  const Path path("allowedTopologies");
  // Upstream begins with as many empty terms as there are.
  std::vector<Json> terms(Items(object, "allowedTopologies").size(), Json::object());
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
    for (auto same = std::count(terms.begin(), terms.end(), keys); same > 0; --same) {
      errors->Duplicate(expressions, "");
    }
    terms.push_back(std::move(keys));
  }
}

}  // namespace

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
  constexpr std::size_t kPortalMax = 64;
  const Json& iscsi = Get(spec, "iscsi");
  const std::string portal = Str(iscsi, "targetPortal");
  if (Has(iscsi, "initiatorName") && NameOf(object).size() + 1 + portal.size() > kPortalMax) {
    const Path at = kSpec.Child("iscsi");
    errors->Invalid(at.Child("targetportal"), portal, kPortalTooLong);
  }
  if (const std::string name = Str(spec, "storageClassName"); !name.empty()) {
    Check(kSpec.Child("storageClassName"), name, &IsDns1123Subdomain, errors);
  }
  VolumeMode(kSpec, spec, errors);
}

void PersistentVolumeUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  // Twice, as upstream: messages do not show it, the list of causes does.
  PersistentVolume(object, errors);
  PersistentVolume(object, errors);
  const Json& spec = Get(object, "spec");
  const Json& before = Get(old, "spec");
  Json now = Json::object();
  Json then = Json::object();
  for (const std::string_view kind : kPersistentSources) {
    if (Has(spec, kind)) {
      now[std::string(kind)] = Get(spec, kind);
    }
    if (Has(before, kind)) {
      then[std::string(kind)] = Get(before, kind);
    }
  }
  // A secret for growing may be added.
  constexpr char kExpand[] = "controllerExpandSecretRef";
  if (Json* csi = Find(now, {"csi"});
      csi != nullptr && Has(then, "csi") && !Has(then["csi"], kExpand)) {
    EraseMember(csi, kExpand);
  }
  if (now != then) {
    errors->Forbidden(kSpec.Child("persistentvolumesource"),
                      "spec.persistentvolumesource is immutable after creation\n" +
                          GoDiff("PersistentVolumeSource", then, now));
  }
  if (Get(spec, "volumeMode") != Get(before, "volumeMode")) {
    errors->Invalid(Path("volumeMode"), Get(spec, "volumeMode"), kImmutable);
  }
  if (Has(before, "nodeAffinity") && !SameMember(spec, before, "nodeAffinity")) {
    errors->InvalidShown(Path("nodeAffinity"),
                         ShownAsGo("*VolumeNodeAffinity", Get(spec, "nodeAffinity")),
                         "field is immutable, except for updating from beta label to GA");
  }
  if (Has(before, "volumeAttributesClassName") && !Has(spec, "volumeAttributesClassName")) {
    errors->Forbidden(kSpec.Child("volumeAttributesClassName"),
                      "update from non-nil value to nil is forbidden");
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
