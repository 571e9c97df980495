// CSI drivers, their nodes and capacities, volume attachments and attributes.
// Source: k8s.io/kubernetes pkg/apis/storage/validation.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

constexpr std::int64_t kTokenSecondsMin = 600;
constexpr std::int64_t kTokenSecondsMax = std::int64_t{1} << 32;
constexpr std::int64_t kPeriodMin = 10;
constexpr std::size_t kMetadataMax = 256 * 1024;
constexpr std::size_t kVolumeErrorMax = 1024;

void TokenRequests(const Json& spec, FieldErrors* errors) {
  const Path requests = kSpec.Child("tokenRequests");
  std::set<std::string> audiences;
  std::size_t index = 0;
  for (const Json& request : Items(spec, "tokenRequests")) {
    const Path at = requests.Index(index++);
    const std::string audience = Str(request, "audience");
    if (!audiences.insert(audience).second) {
      errors->Duplicate(at.Child("audience"), audience);
      continue;
    }
    const Json& seconds = Get(request, "expirationSeconds");
    if (!seconds.is_number_integer()) {
      continue;
    }
    const Path path = at.Child("expirationSeconds");
    if (seconds.get<std::int64_t>() < kTokenSecondsMin) {
      errors->Invalid(path, seconds, "may not specify a duration less than 10 minutes");
    }
    if (seconds.get<std::int64_t>() > kTokenSecondsMax) {
      errors->Invalid(path, seconds, "may not specify a duration larger than 2^32 seconds");
    }
  }
}

void VolumeError(const Path& path, const Json& error, FieldErrors* errors) {
  if (Str(error, "message").size() > kVolumeErrorMax) {
    errors->TooLong(path.Child("message"), static_cast<int>(kMetadataMax));
  }
  if (const std::int64_t code = FindInt(error, {"errorCode"}); code < 0) {
    errors->InvalidEach(path.Child("errorCode"), code, IsInRange(code, 0, INT32_MAX));
  }
}

void AttachmentStatus(const Json& object, FieldErrors* errors) {
  const Path path("status");
  const Json& status = Get(object, "status");
  std::size_t bytes = 0;
  for (const auto& [key, value] : Get(status, "attachmentMetadata").items()) {
    bytes += key.size() + value.get_ref<const std::string&>().size();
  }
  if (bytes > kMetadataMax) {
    errors->TooLong(path.Child("attachmentMetadata"), static_cast<int>(kMetadataMax));
  }
  for (const char* key : {"attachError", "detachError"}) {
    VolumeError(path.Child(key), Get(status, key), errors);
  }
}

}  // namespace

void CsiDriver(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  for (const auto& [key, shown] : {std::pair{"attachRequired", "attachedRequired"},
                                   std::pair{"podInfoOnMount", "podInfoOnMount"},
                                   std::pair{"storageCapacity", "storageCapacity"}}) {
    if (!Has(spec, key)) {
      errors->Required(kSpec.Child(shown));
    }
  }
  Choice(kSpec, spec, "fsGroupPolicy", {"File", "None", "ReadWriteOnceWithFSType"}, errors);
  TokenRequests(spec, errors);
  for (const Json& mode : Items(spec, "volumeLifecycleModes")) {
    const std::string name = mode.get<std::string>();
    if (name != "Persistent" && name != "Ephemeral") {
      errors->NotSupported(kSpec.Child("volumeLifecycleModes"), name, {"Persistent", "Ephemeral"});
    }
  }
  const Json& period = Get(spec, "nodeAllocatableUpdatePeriodSeconds");
  if (period.is_number_integer() && period.get<std::int64_t>() < kPeriodMin) {
    errors->Invalid(kSpec.Child("nodeAllocatableUpdatePeriodSeconds"), period,
                    "must be greater than or equal to 10 seconds");
  }
  if (Has(spec, "serviceAccountTokenInSecrets") && Items(spec, "tokenRequests").empty()) {
    errors->Invalid(kSpec.Child("serviceAccountTokenInSecrets"),
                    Get(spec, "serviceAccountTokenInSecrets"),
                    "serviceAccountTokenInSecrets is set but no tokenRequests are specified");
  }
}

void CsiDriverUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  CsiDriver(object, errors);
  for (const auto& [key, shown] : {std::pair{"attachRequired", "attachedRequired"},
                                   std::pair{"volumeLifecycleModes", "volumeLifecycleModes"}}) {
    if (!SameMember(Get(object, "spec"), Get(old, "spec"), key)) {
      errors->Invalid(kSpec.Child(shown), Get(Get(object, "spec"), key), kImmutable);
    }
  }
}

void VolumeAttachment(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  CsiDriverName(kSpec.Child("attacher"), Str(spec, "attacher"), errors);
  const Json& source = Get(spec, "source");
  const bool inline_spec = Has(source, "inlineVolumeSpec");
  const bool named = Has(source, "persistentVolumeName");
  const std::string name = Str(source, "persistentVolumeName");
  const Path at = kSpec.Child("source");
  if (!inline_spec && !named) {
    errors->Required(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
  } else if (inline_spec && named) {
    errors->Forbidden(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
  } else if (named && name.empty()) {
    errors->Required(at.Child("persistentVolumeName"),
                     "must specify non empty persistentVolumeName");
  }
  Check(kSpec.Child("nodeName"), Str(spec, "nodeName"), &IsDns1123Subdomain, errors);
  AttachmentStatus(object, errors);
  if (named) {
    Check(at.Child("persistentVolumeName"), name, &IsDns1123Subdomain, errors);
  }
}

void VolumeAttachmentUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  VolumeAttachment(object, errors);
  if (Get(object, "spec") != Get(old, "spec")) {
    errors->InvalidShown(kSpec, ShownAsGo("VolumeAttachmentSpec", Get(object, "spec")), kImmutable);
  }
}

void VolumeAttachmentStatus(const Json& object, const Json&, FieldErrors* errors) {
  VolumeAttachment(object, errors);
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
        Json shown = driver;
        EraseMember(&shown, "allocatable");
        errors->InvalidShown(kSpec.Child("drivers"), ShownAsGo("CSINodeDriver", shown), kImmutable);
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
      const bool selects = key == std::string_view("nodeTopology");
      errors->InvalidShown(Path(key), ShownAsGo(selects ? "*LabelSelector" : "s", Get(object, key)),
                           kImmutable);
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
