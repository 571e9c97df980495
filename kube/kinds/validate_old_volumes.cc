// The volume sources that pods and persistent volumes share: what each of them needs, as data, and
// the few that have rules of their own. Source: k8s.io/kubernetes pkg/apis/core/validation.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {
namespace {

struct Needed {
  std::string_view source;
  std::string_view field;
  std::string_view detail = "";
};

constexpr std::string_view kRegistry =
    "must be a host:port pair or multiple pairs separated by commas";

// In the order in which they are reported.
constexpr Needed kNeeded[] = {
    {"gcePersistentDisk", "pdName"},
    {"awsElasticBlockStore", "volumeID"},
    {"gitRepo", "repository"},
    {"nfs", "server"},
    {"nfs", "path"},
    {"iscsi", "targetPortal"},
    {"iscsi", "iqn"},
    {"glusterfs", "endpoints"},
    {"glusterfs", "path"},
    {"rbd", "monitors"},
    {"rbd", "image"},
    {"flexVolume", "driver"},
    {"cinder", "volumeID"},
    {"cephfs", "monitors"},
    {"azureFile", "secretName"},
    {"azureFile", "shareName"},
    {"vsphereVolume", "volumePath"},
    {"quobyte", "registry", kRegistry},
    {"quobyte", "volume"},
    {"azureDisk", "diskName"},
    {"azureDisk", "diskURI"},
    {"photonPersistentDisk", "pdID"},
    {"portworxVolume", "volumeID"},
    {"scaleIO", "gateway"},
    {"scaleIO", "system"},
    {"scaleIO", "volumeName"},
    {"storageos", "volumeName"},
};

void Partition(const Path& path, const Json& source, FieldErrors* errors) {
  const Json& partition = Get(source, "partition");
  if (partition.is_number_integer() &&
      (partition.get<std::int64_t>() < 0 || partition.get<std::int64_t>() > 255)) {
    errors->Invalid(path.Child("partition"), partition, "must be between 1 and 255, inclusive");
  }
}

void Lun(const Path& path, const Json& source, FieldErrors* errors) {
  const Json& lun = Get(source, "lun");
  const std::int64_t number = lun.is_number_integer() ? lun.get<std::int64_t>() : 0;
  if (number < 0 || number > 255) {
    errors->Invalid(path.Child("lun"), lun, "must be between 0 and 255, inclusive");
  }
}

void Iscsi(const Path& path, const Json& source, bool of_pv, FieldErrors* errors) {
  const std::string_view format =
      of_pv ? "must be valid format" : "must be valid format starting with iqn, eui, or naa";
  const auto known = [](const std::string& name) {
    return name.starts_with("iqn") || name.starts_with("eui") || name.starts_with("naa");
  };
  const std::string name = Str(source, "iqn");
  if (!name.empty() && !known(name)) {
    errors->Invalid(path.Child("iqn"), name, format);
  }
  Lun(path, source, errors);
  const bool authenticated =
      FindBool(source, {"chapAuthDiscovery"}) || FindBool(source, {"chapAuthSession"});
  if (authenticated && !Has(source, "secretRef")) {
    errors->Required(path.Child("secretRef"));
  }
  if (const std::string initiator = Str(source, "initiatorName");
      Has(source, "initiatorName") && !known(initiator)) {
    errors->Invalid(path.Child("initiatorname"), initiator, format);
  }
}

void AzureDisk(const Path& path, const Json& source, FieldErrors* errors) {
  Choice(path, source, "cachingMode", {"None", "ReadOnly", "ReadWrite"}, errors);
  Choice(path, source, "kind", {"Dedicated", "Managed", "Shared"}, errors);
  const std::string uri = Str(source, "diskURI");
  const bool managed = Str(source, "kind") == "Managed";
  if (managed && !uri.starts_with("/subscriptions/")) {
    errors->NotSupported(path.Child("diskURI"), uri,
                         {"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/"
                          "microsoft.compute/disks/{disk-id}"});
  } else if (!managed && !uri.starts_with("https://") && !uri.starts_with("http://")) {
    errors->NotSupported(
        path.Child("diskURI"), uri,
        {"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"});
  }
}

void FibreChannel(const Path& path, const Json& source, FieldErrors* errors) {
  const bool names = !Items(source, "targetWWNs").empty();
  const bool ids = !Items(source, "wwids").empty();
  if (!names && !ids) {
    errors->Required(path.Child("targetWWNs"),
                     "must specify either targetWWNs or wwids, but not both");
  } else if (names && ids) {
    errors->Invalid(path.Child("targetWWNs"), Get(source, "targetWWNs"),
                    "targetWWNs and wwids can not be specified simultaneously");
  }
  if (names && !Has(source, "lun")) {
    errors->Required(path.Child("lun"), "lun is required if targetWWNs is specified");
  } else if (names) {
    Lun(path, source, errors);
  }
}

void Flocker(const Path& path, const Json& source, FieldErrors* errors) {
  const std::string name = Str(source, "datasetName");
  const bool id = !Str(source, "datasetUUID").empty();
  if (name.empty() && !id) {
    errors->Required(path, "one of datasetName and datasetUUID is required");
  } else if (!name.empty() && id) {
    errors->Invalid(path, "resource", "datasetName and datasetUUID can not be specified at once");
  }
  if (name.find('/') != std::string::npos) {
    errors->Invalid(path.Child("datasetName"), name, "must not contain '/'");
  }
}

// The secret of a source; a persistent volume has no namespace of its own to look in.
void SecretOf(const Path& path, const Json& source, bool with_namespace, FieldErrors* errors) {
  const Json& secret = Get(source, "secretRef");
  const Path at = path.Child("secretRef");
  if (!secret.is_object()) {
    return;
  }
  for (const char* part : {"name", "namespace"}) {
    if ((part == std::string_view("name") || with_namespace) && Str(secret, part).empty()) {
      errors->Required(at.Child(part));
    }
  }
}

void StorageOs(const Path& path, const Json& source, bool of_pv, FieldErrors* errors) {
  for (const char* field : {"volumeName", "volumeNamespace"}) {
    if (const std::string value = Str(source, field); !value.empty()) {
      Check(path.Child(field), value, &IsDns1123Label, errors);
    }
  }
  SecretOf(path, source, of_pv, errors);
}

}  // namespace

void HostPathSource(const Path& path, const Json& source, FieldErrors* errors) {
  const std::string host_path = Str(source, "path");
  if (host_path.empty()) {
    errors->Required(path.Child("path"));
    return;
  }
  NoBacksteps(path.Child("path"), host_path, errors);
  const std::string type = Str(source, "type");
  static constexpr std::string_view kTypes[] = {
      "",     "BlockDevice",  "CharDevice", "Directory", "DirectoryOrCreate",
      "File", "FileOrCreate", "Socket"};
  if (std::find(std::begin(kTypes), std::end(kTypes), type) == std::end(kTypes)) {
    errors->NotSupported(path.Child("type"), type,
                         std::vector<std::string_view>(std::begin(kTypes), std::end(kTypes)));
  }
}

void SharedSource(const Path& parent, std::string_view kind, const Json& source,
                  FieldErrors* errors) {
  // One source has another name in errors.
  const Path path = parent.Child(kind == "gcePersistentDisk" ? "persistentDisk" : kind);
  const bool of_pv = parent.Text() == "spec";
  for (const Needed& row : kNeeded) {
    if (row.source != kind) {
      continue;
    }
    const Json& value = Get(source, row.field);
    const bool empty = value.is_string() ? value.get_ref<const std::string&>().empty()
                                         : value.is_null() || value.empty();
    if (empty) {
      errors->Required(path.Child(row.field), row.detail);
    } else if (row.field == "registry" && value.get<std::string>().find(':') == std::string::npos) {
      errors->Invalid(path.Child(row.field), value, kRegistry);
    }
  }
  if (kind == "gcePersistentDisk" || kind == "awsElasticBlockStore") {
    Partition(path, source, errors);
  } else if (kind == "nfs" && !Str(source, "path").starts_with('/')) {
    errors->Invalid(path.Child("path"), Str(source, "path"), "must be an absolute path");
  } else if (kind == "gitRepo") {
    LocalPath(path.Child("directory"), Str(source, "directory"), errors);
  } else if (kind == "iscsi") {
    Iscsi(path, source, of_pv, errors);
    if (of_pv) {
      SecretOf(path, source, false, errors);
    }
  } else if (kind == "glusterfs" && Has(source, "endpointsNamespace")) {
    const std::string space = Str(source, "endpointsNamespace");
    if (!IsDns1123Label(space).empty()) {
      errors->Invalid(path.Child("endpointsNamespace"), space,
                      "if the endpointnamespace is set, it must be a valid namespace name");
    }
  } else if (kind == "cinder") {
    SecretOf(path, source, of_pv, errors);
  } else if (kind == "storageos") {
    StorageOs(path, source, of_pv, errors);
  } else if (kind == "azureFile" && Has(source, "secretNamespace") &&
             Str(source, "secretNamespace").empty()) {
    errors->Required(path.Child("secretNamespace"));
  } else if (kind == "azureDisk") {
    AzureDisk(path, source, errors);
  } else if (kind == "fc") {
    FibreChannel(path, source, errors);
  } else if (kind == "flocker") {
    Flocker(path, source, errors);
  }
}

}  // namespace sublet::kube::validate
