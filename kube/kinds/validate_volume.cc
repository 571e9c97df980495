// spec.volumes of a pod.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/quantity.h"

namespace sublet::kube::validate {
namespace {

constexpr std::string_view kFileMode =
    "must be a number between 0 and 0777 (octal), both inclusive";

void FileMode(const Json& object, std::string_view key, const Path& parent, FieldErrors* errors) {
  const Json& mode = Get(object, key);
  if (mode.is_number_integer() &&
      (mode.get<std::int64_t>() > 0777 || mode.get<std::int64_t>() < 0)) {
    errors->Invalid(parent.Child(key), mode, kFileMode);
  }
}

void KeyToPath(const Path& at, const Json& item, FieldErrors* errors) {
  if (Str(item, "key").empty()) {
    errors->Required(at.Child("key"));
  }
  if (Str(item, "path").empty()) {
    errors->Required(at.Child("path"));
  }
  LocalPath(at.Child("path"), Str(item, "path"), errors);
  FileMode(item, "mode", at, errors);
}

void KeyItems(const Path& path, const Json& source, FieldErrors* errors) {
  const Path items = path.Child("items");
  std::size_t index = 0;
  for (const Json& item : Items(source, "items")) {
    KeyToPath(items.Index(index++), item, errors);
  }
}

// Files of the downward API are reported at the list, without an index.
void DownwardFile(const Path& path, const Json& file, FieldErrors* errors) {
  if (Str(file, "path").empty()) {
    errors->Required(path.Child("path"));
  }
  LocalPath(path.Child("path"), Str(file, "path"), errors);
  if (const Json& reference = Get(file, "fieldRef"); reference.is_object()) {
    FieldRef(path.Child("fieldRef"), reference,
             {"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace",
              "metadata.uid"},
             errors);
    if (Has(file, "resourceFieldRef")) {
      errors->Invalid(path, "resource",
                      "fieldRef and resourceFieldRef can not be specified simultaneously");
    }
  } else if (const Json& resource = Get(file, "resourceFieldRef"); resource.is_object()) {
    ResourceFieldRef(path.Child("resourceFieldRef"), resource, true, errors);
  } else {
    errors->Required(path, "one of fieldRef and resourceFieldRef is required");
  }
  FileMode(file, "mode", path, errors);
}

void NoteTarget(const Path& path, const std::string& target, const std::string& shown,
                std::set<std::string>* targets, FieldErrors* errors) {
  if (!target.empty() && !targets->insert(target).second) {
    errors->Invalid(path, shown, "conflicting duplicate paths");
  }
}

void TokenSource(const Path& path, const Path& at, const Json& token, FieldErrors* errors) {
  const std::int64_t seconds = FindInt(token, {"expirationSeconds"});
  if (seconds < 600) {
    errors->Invalid(at.Child("expirationSeconds"), seconds,
                    "may not specify a duration less than 10 minutes");
  }
  if (seconds > (std::int64_t{1} << 32)) {
    errors->Invalid(at.Child("expirationSeconds"), seconds,
                    "may not specify a duration larger than 2^32 seconds");
  }
  if (Str(token, "path").empty()) {
    errors->Required(path.Child("path"));
  } else {
    LocalPath(path.Child("path"), Str(token, "path"), errors);
  }
}

void Projected(const Path& path, const Json& source, FieldErrors* errors) {
  FileMode(source, "defaultMode", path, errors);
  const Path sources = path.Child("sources");
  std::set<std::string> targets;
  std::size_t index = 0;
  for (const Json& one : Items(source, "sources")) {
    const Path at = sources.Index(index++);
    int kinds = 0;
    for (const char* kind : {"secret", "configMap"}) {
      const Json& projection = Get(one, kind);
      if (!projection.is_object()) {
        continue;
      }
      ++kinds;
      const Path here = at.Child(kind);
      if (Str(projection, "name").empty()) {
        errors->Required(here.Child("name"));
      }
      KeyItems(here, projection, errors);
      for (const Json& item : Items(projection, "items")) {
        NoteTarget(path, Str(item, "path"), Str(projection, "name"), &targets, errors);
      }
    }
    if (const Json& api = Get(one, "downwardAPI"); api.is_object()) {
      ++kinds;
      const Path here = at.Child("downwardAPI");
      for (const Json& file : Items(api, "items")) {
        DownwardFile(here, file, errors);
        NoteTarget(path, Str(file, "path"), Str(file, "path"), &targets, errors);
      }
    }
    if (const Json& token = Get(one, "serviceAccountToken"); token.is_object()) {
      ++kinds;
      const Path here = at.Child("serviceAccountToken");
      TokenSource(path, here, token, errors);
    }
    if (kinds > 1) {
      errors->Forbidden(at, "may not specify more than 1 volume type per source");
    }
  }
}

void Ephemeral(const Path& path, const Json& source, FieldErrors* errors) {
  const Json& claim = Get(source, "volumeClaimTemplate");
  if (!claim.is_object()) {
    errors->Required(path.Child("volumeClaimTemplate"));
    return;
  }
  const Path at = path.Child("volumeClaimTemplate");
  TemplateMetadata(at.Child("metadata"), Get(claim, "metadata"), errors);
  const Path spec = at.Child("spec");
  ClaimSpec(spec, Get(claim, "spec"), errors);
}

// Sources in upstream's order; only one may be set.
constexpr std::string_view kPodSources[] = {"emptyDir",
                                            "hostPath",
                                            "gitRepo",
                                            "gcePersistentDisk",
                                            "awsElasticBlockStore",
                                            "secret",
                                            "nfs",
                                            "iscsi",
                                            "glusterfs",
                                            "flocker",
                                            "rbd",
                                            "cinder",
                                            "cephfs",
                                            "quobyte",
                                            "downwardAPI",
                                            "fc",
                                            "azureFile",
                                            "flexVolume",
                                            "configMap",
                                            "vsphereVolume",
                                            "persistentVolumeClaim",
                                            "azureDisk",
                                            "storageos",
                                            "projected",
                                            "portworxVolume",
                                            "scaleIO",
                                            "csi",
                                            "ephemeral",
                                            "image",
                                            "photonPersistentDisk"};

void Source(const Path& path, std::string_view kind, const Json& source, FieldErrors* errors) {
  if (kind == "emptyDir") {
    if (const std::string limit = Str(source, "sizeLimit");
        Quantity::ParseOrZero(limit).Sign() < 0) {
      errors->Forbidden(path.Child("sizeLimit"),
                        "SizeLimit field must be a valid resource quantity");
    }
  } else if (kind == "hostPath") {
    HostPathSource(path, source, errors);
  } else if (kind == "secret" || kind == "configMap") {
    const char* name = kind == "secret" ? "secretName" : "name";
    if (Str(source, name).empty()) {
      errors->Required(path.Child(name));
    }
    FileMode(source, "defaultMode", path, errors);
    KeyItems(path, source, errors);
  } else if (kind == "downwardAPI") {
    FileMode(source, "defaultMode", path, errors);
    for (const Json& file : Items(source, "items")) {
      DownwardFile(path, file, errors);
    }
  } else if (kind == "projected") {
    Projected(path, source, errors);
  } else if (kind == "persistentVolumeClaim") {
    if (Str(source, "claimName").empty()) {
      errors->Required(path.Child("claimName"));
    }
  } else if (kind == "csi") {
    CsiDriverName(path.Child("driver"), Str(source, "driver"), errors);
    if (const Json& secret = Get(source, "nodePublishSecretRef"); secret.is_object()) {
      const std::string name = Str(secret, "name");
      const Path reference = path.Child("nodePublishSecretRef");
      if (name.empty()) {
        errors->Required(reference.Child("name"));
      } else {
        Check(path.Child("name"), name, &IsDns1123Subdomain, errors);
      }
    }
  } else if (kind == "ephemeral") {
    Ephemeral(path, source, errors);
  } else if (kind == "image") {
    if (Str(source, "reference").empty()) {
      errors->Required(path.Child("reference"));
    }
    OneOf(path.Child("pullPolicy"), Str(source, "pullPolicy"), {"Always", "IfNotPresent", "Never"},
          true, errors);
  }
}

void VolumeSource(const Path& at, const Json& volume, FieldErrors* errors) {
  int kinds = 0;
  for (const std::string_view kind : kPodSources) {
    const Json& source = Get(volume, kind);
    if (!source.is_object()) {
      continue;
    }
    const Path here = at.Child(kind);
    if (kinds++ > 0) {
      errors->Forbidden(here, "may not specify more than 1 volume type");
    } else {
      SharedSource(at, kind, source, errors);
      Source(here, kind, source, errors);
    }
  }
  if (kinds == 0) {
    errors->Required(at, "must specify a volume type");
  }
}

}  // namespace

std::vector<std::string> Volumes(const Path& path, const Json& spec, const std::string& pod_name,
                                 FieldErrors* errors) {
  std::vector<std::string> names;
  const auto& volumes = Items(spec, "volumes");
  std::set<std::string> made_claims;
  for (const Json& volume : volumes) {
    if (Has(volume, "ephemeral") && !pod_name.empty()) {
      made_claims.insert(pod_name + "-" + Str(volume, "name"));
    }
  }
  for (std::size_t i = 0; i < volumes.size(); ++i) {
    const Path at = path.Index(i);
    const std::string name = Str(volumes[i], "name");
    const std::size_t before = errors->size();
    VolumeSource(at, volumes[i], errors);
    if (Has(volumes[i], "ephemeral") && !pod_name.empty()) {
      const std::string made = pod_name + "-" + name;
      for (const std::string& problem : IsDns1123Subdomain(made)) {
        errors->Invalid(at.Child("name"), name, "PVC name " + GoQuote(made) + ": " + problem);
      }
    }
    constexpr std::size_t kPortalMax = 64;
    const Json& iscsi = Get(volumes[i], "iscsi");
    if (Has(iscsi, "initiatorName") &&
        name.size() + 1 + Str(iscsi, "targetPortal").size() > kPortalMax) {
      errors->Invalid(at.Child("name"), name, kPortalTooLong);
    }
    CheckRequired(at.Child("name"), name, &IsDns1123Label, errors);
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      errors->Duplicate(at.Child("name"), name);
    }
    // A volume with a mistake counts as absent for the mounts.
    if (errors->size() == before) {
      names.push_back(name);
    }
    const std::string claim(FindString(volumes[i], {"persistentVolumeClaim", "claimName"}));
    if (made_claims.contains(claim)) {
      const Path source = at.Child("persistentVolumeClaim");
      errors->Invalid(source.Child("claimName"), claim,
                      "must not reference a PVC that gets created for an ephemeral volume");
    }
  }
  return names;
}

}  // namespace sublet::kube::validate
