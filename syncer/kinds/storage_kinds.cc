// The rows of SimpleSyncer about storage: claims, and a tenant's own StorageClasses and
// PersistentVolumes when sync.toHost says so.
#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "syncer/kinds/mirror_syncer.h"
#include "syncer/kinds/simple_syncer.h"
#include "syncer/kinds/translate_fields.h"

namespace sublet::syncer {
namespace {

using kube::Json;

bool AlwaysToTenant(SyncContext&, const Json&) { return true; }

bool IsOwn(SyncContext&, const Json& object) {
  return kube::LabelOf(object, kMirroredLabel) != "true";
}

bool IsShownByHost(const SyncContext& context, std::string_view storage_class) {
  const auto found =
      context.VirtualInformer("storage.k8s.io", "v1", "storageclasses", "StorageClass")
          .Get({"", std::string(storage_class)});
  const std::pair<std::string, std::string> mark{std::string(kMirroredLabel), "true"};
  return found != nullptr &&
         std::find(found->labels.begin(), found->labels.end(), mark) != found->labels.end();
}

// The class on the host: the tenant's own have a name of their own there, the host's keep theirs.
std::string HostClass(const SyncContext& context, std::string_view storage_class) {
  const SyncConfig& config = context.config;
  const bool is_own = config.storage_classes_to_host ||
                      (config.persistent_volumes_to_host && !IsShownByHost(context, storage_class));
  return storage_class.empty() || !is_own ? std::string(storage_class)
                                          : HostNameCluster(context.tenant, storage_class);
}

void TranslateClass(const SyncContext& context, Json& spec) {
  if (const auto found = spec.find("storageClassName"); found != spec.end() && found->is_string()) {
    *found = HostClass(context, found->get_ref<const std::string&>());
  }
}

// ---- PersistentVolumeClaim ----

// A selector picks among the tenant's own volumes only.
Json VolumeSelector(const Tenant& tenant, const Json& selector) {
  Json out = HostLabelSelector(tenant, selector, "");
  out["matchLabels"][std::string(kLabelManagedBy)] = ManagedByValue(tenant, true);
  return out;
}

Result<Json> TranslateClaim(const SyncContext& context, const Json& claim) {
  Json spec = Json::object();
  CopyFields(claim.at("spec"), spec,
             {"accessModes", "resources", "storageClassName", "volumeMode"});
  TranslateClass(context, spec);
  if (context.config.persistent_volumes_to_host) {
    const auto volume = kube::FindString(claim, {"spec", "volumeName"});
    if (const auto host = context.mapping.HostNameOf(kOwnVolumes, {"", std::string(volume)})) {
      spec["volumeName"] = *host;
    }
    if (const Json* selector = kube::Find(claim, {"spec", "selector"}); selector != nullptr) {
      spec["selector"] = VolumeSelector(context.tenant, *selector);
    }
  }
  // A claim may be filled from another claim of the same tenant; nothing else is reachable.
  for (const char* source : {"dataSource", "dataSourceRef"}) {
    const Json* from = kube::Find(claim, {"spec", source});
    if (from != nullptr && kube::FindString(*from, {"kind"}) == "PersistentVolumeClaim") {
      Json copy = Json::object();
      CopyFields(*from, copy, {"apiGroup", "kind", "name"});
      TranslateName(copy, "name", context.tenant, kube::NamespaceOf(claim));
      spec[source] = std::move(copy);
    }
  }
  return Json{{"spec", std::move(spec)}};
}

Json ClaimBack(const SyncContext& context, const Json& claim, const Json& host) {
  const auto volume = kube::FindString(host, {"spec", "volumeName"});
  const bool is_bound = kube::AnnotationOf(claim, "pv.kubernetes.io/bind-completed") == "yes" &&
                        !kube::FindString(claim, {"spec", "volumeName"}).empty();
  if (volume.empty() || is_bound) {
    return {};
  }
  const auto own = context.mapping.VirtualOf(kOwnVolumes, volume);
  return {{"metadata", {{"annotations", {{"pv.kubernetes.io/bind-completed", "yes"}}}}},
          {"spec", {{"volumeName", own ? own->name : std::string(volume)}}}};
}

// ---- StorageClass ----

bool EndsWithLower(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() &&
         std::equal(tail.begin(), tail.end(), text.end() - static_cast<std::ptrdiff_t>(tail.size()),
                    [](char a, char b) {
                      return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b)));
                    });
}

// Differs: vCluster copies the parameters. A namespace in them would let a tenant name Secrets that
// are not its own, so Secrets are looked for among the tenant's.
Json ClassParameters(const Tenant& tenant, const Json& parameters) {
  Json out = parameters;
  for (const auto& [key, value] : parameters.items()) {
    if (!value.is_string()) {
      continue;
    }
    for (const auto& [space_tail, name_tail] :
         {std::pair<std::string_view, std::string_view>{"secret-namespace", "secret-name"},
          {"secretnamespace", "secretname"}}) {
      if (EndsWithLower(key, space_tail)) {
        out[key] = tenant.host_namespace;
      } else if (EndsWithLower(key, name_tail)) {
        const auto& name = value.get_ref<const std::string&>();
        const std::string space_key =
            key.substr(0, key.size() - 4) +
            (space_tail.find('-') == std::string_view::npos ? "Namespace" : "namespace");
        const auto space = kube::FindString(parameters, {space_key}, "default");
        out[key] = name.find('$') == std::string::npos ? HostName(tenant, name, space) : name;
      }
    }
  }
  return out;
}

Result<Json> TranslateStorageClass(const SyncContext& context, const Json& object) {
  Json out = Json::object();
  CopyFields(object, out,
             {"provisioner", "reclaimPolicy", "mountOptions", "allowVolumeExpansion",
              "volumeBindingMode", "allowedTopologies"});
  if (const auto parameters = object.find("parameters");
      parameters != object.end() && parameters->is_object()) {
    out["parameters"] = ClassParameters(context.tenant, *parameters);
  }
  return out;
}

// ---- PersistentVolume ----

struct SourceKind {
  const char* name;
  std::vector<std::string_view> fields;
};

// Not rbd and cephfs, as in volume_translate.cc: a file of the node may be their credential.
const std::array<SourceKind, 4>& VolumeSources() {
  static const std::array<SourceKind, 4> kSources = {
      {{"csi",
        {"driver", "volumeHandle", "readOnly", "fsType", "volumeAttributes",
         "controllerPublishSecretRef", "nodeStageSecretRef", "nodePublishSecretRef",
         "controllerExpandSecretRef", "nodeExpandSecretRef"}},
       {"nfs", {"server", "path", "readOnly"}},
       {"iscsi",
        {"targetPortal", "iqn", "lun", "iscsiInterface", "fsType", "readOnly", "portals",
         "chapAuthDiscovery", "chapAuthSession", "secretRef", "initiatorName"}},
       {"fc", {"targetWWNs", "lun", "fsType", "readOnly", "wwids"}}}};
  return kSources;
}

constexpr std::array<const char*, 2> kNodeSources = {"hostPath", "local"};

Status Refused(const Json& volume, std::string_view why) {
  return Forbidden({"", "persistentvolumes"}, kube::NameOf(volume), why);
}

// {name, namespace} of a Secret, wherever a source names one.
void TranslateSecretReferences(const Tenant& tenant, Json& source) {
  for (auto& [key, value] : source.items()) {
    if (EndsWithLower(key, "secretref") && value.is_object()) {
      TranslateName(value, "name", tenant, kube::FindString(value, {"namespace"}, "default"));
      value["namespace"] = tenant.host_namespace;
    }
  }
}

Result<Json> VolumeSource(const SyncContext& context, const Json& volume) {
  const Json& spec = volume.at("spec");
  for (const SourceKind& kind : VolumeSources()) {
    if (const auto found = spec.find(kind.name); found != spec.end()) {
      Json source = Json::object();
      for (const std::string_view field : kind.fields) {
        CopyFields(*found, source, {field});
      }
      TranslateSecretReferences(context.tenant, source);
      return Json{{kind.name, std::move(source)}};
    }
  }
  for (const char* kind : kNodeSources) {
    // Differs: vCluster lets a tenant's volume be any folder of a node.
    if (spec.contains(kind) && context.config.pod_security == "privileged") {
      return Json{{kind, spec[kind]}};
    }
  }
  return Refused(volume,
                 "its source does not reach the host; csi, nfs, iscsi and fc do, "
                 "hostPath and local where policies.podSecurityStandard is privileged");
}

Result<Json> TranslateVolume(const SyncContext& context, const Json& volume) {
  const Json& from = volume.at("spec");
  SUBLET_TRY(Json spec, VolumeSource(context, volume));
  CopyFields(from, spec,
             {"accessModes", "capacity", "mountOptions", "nodeAffinity",
              "persistentVolumeReclaimPolicy", "storageClassName", "volumeMode"});
  TranslateClass(context, spec);
  const Json* claim = kube::Find(volume, {"spec", "claimRef"});
  const auto own_class = kube::FindString(from, {"storageClassName"});
  if (claim != nullptr) {
    spec["claimRef"] = {{"apiVersion", "v1"},
                        {"kind", "PersistentVolumeClaim"},
                        {"namespace", context.tenant.host_namespace},
                        {"name", HostName(context.tenant, kube::FindString(*claim, {"name"}),
                                          kube::FindString(*claim, {"namespace"}))}};
  } else if (own_class == kube::FindString(spec, {"storageClassName"})) {
    // Under a class that others know it would be anybody's.
    return Refused(volume,
                   "any tenant's claim could take it; give it a storageClassName of your own or a "
                   "claimRef");
  }
  return Json{{"spec", std::move(spec)}};
}

Json VolumeBack(const SyncContext& context, const Json& volume, const Json& host) {
  const auto name = kube::FindString(host, {"spec", "claimRef", "name"});
  if (name.empty() || !kube::FindString(volume, {"spec", "claimRef", "uid"}).empty()) {
    return {};
  }
  const auto key = context.mapping.VirtualOf("persistentvolumeclaims", name);
  const auto claim =
      key ? context.VirtualInformer("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
                .Get(*key)
          : nullptr;
  if (claim == nullptr) {
    return {};
  }
  return {{"spec",
           {{"claimRef",
             {{"apiVersion", "v1"},
              {"kind", "PersistentVolumeClaim"},
              {"namespace", key->namespace_name},
              {"name", key->name},
              {"uid", claim->uid}}}}}};
}

}  // namespace

SimpleKind PersistentVolumeClaimKind() {
  return {{"persistentvolumeclaims", "/v1, Kind=PersistentVolumeClaim", false},
          {"", "v1", "persistentvolumeclaims"},
          "PersistentVolumeClaim",
          AlwaysToTenant,
          TranslateClaim,
          {"/spec/resources"},
          /*status_back=*/true,
          ClaimBack};
}

SimpleKind StorageClassToHostKind() {
  return {{"storageclasses-to-host", "storage.k8s.io/v1, Kind=StorageClass", true},
          {"storage.k8s.io", "v1", "storageclasses"},
          "StorageClass",
          IsOwn,
          TranslateStorageClass,
          {"/allowVolumeExpansion"},
          /*status_back=*/false,
          nullptr};
}

SimpleKind PersistentVolumeToHostKind() {
  return {{std::string(kOwnVolumes), "/v1, Kind=PersistentVolume", true},
          {"", "v1", "persistentvolumes"},
          "PersistentVolume",
          IsOwn,
          TranslateVolume,
          {"/spec/capacity", "/spec/persistentVolumeReclaimPolicy", "/spec/mountOptions"},
          /*status_back=*/true,
          VolumeBack};
}

}  // namespace sublet::syncer
