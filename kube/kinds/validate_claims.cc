// CSI drivers, volume attachments, flow schemas and resource claims.
// Source: k8s.io/kubernetes pkg/apis/{storage,flowcontrol,resource}/validation.
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

const Path kSpec("spec");

void FlowRules(const Json& spec, FieldErrors* errors) {
  const Path rules = kSpec.Child("rules");
  std::size_t index = 0;
  for (const Json& rule : Items(spec, "rules")) {
    const Path at = rules.Index(index++);
    if (Items(rule, "subjects").empty()) {
      errors->Required(at.Child("subjects"), "subjects must contain at least one value");
    }
    if (Items(rule, "resourceRules").empty() && Items(rule, "nonResourceRules").empty()) {
      errors->Required(at,
                       "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
  }
}

void DeviceRequest(const Path& at, const Json& request, FieldErrors* errors) {
  CheckRequired(at.Child("name"), Str(request, "name"), &IsDns1123Label, errors);
  const bool exactly = Has(request, "exactly");
  const bool available = !Items(request, "firstAvailable").empty();
  if (exactly && available) {
    errors->Invalid(at, nullptr, "exactly one of `exactly` or `firstAvailable` is required");
  } else if (!exactly && !available) {
    errors->Required(at, "exactly one of `exactly` or `firstAvailable` is required");
  }
  if (exactly) {
    const Path inside = at.Child("exactly");
    CheckRequired(inside.Child("deviceClassName"), Str(Get(request, "exactly"), "deviceClassName"),
                  &IsDns1123Subdomain, errors);
  }
}

}  // namespace

void CsiDriver(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  if (Has(spec, "fsGroupPolicy")) {
    OneOf(kSpec.Child("fsGroupPolicy"), Str(spec, "fsGroupPolicy"),
          {"File", "None", "ReadWriteOnceWithFSType"}, true, errors);
  }
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

void FlowSchema(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const std::int64_t precedence = FindInt(spec, {"matchingPrecedence"});
  if (precedence <= 0) {
    errors->Invalid(kSpec.Child("matchingPrecedence"), precedence, "must be a positive value");
  } else if (precedence > 10000) {
    errors->Invalid(kSpec.Child("matchingPrecedence"), precedence,
                    "must not be greater than 10000");
  }
  if (Has(spec, "distinguisherMethod")) {
    const Path method = kSpec.Child("distinguisherMethod");
    OneOf(method, Str(Get(spec, "distinguisherMethod"), "type"), {"ByNamespace", "ByUser"}, true,
          errors);
  }
  const Path level = kSpec.Child("priorityLevelConfiguration");
  const std::string name = Str(Get(spec, "priorityLevelConfiguration"), "name");
  if (name.empty()) {
    errors->Required(level.Child("name"), "must reference a priority level");
  } else {
    Check(level.Child("name"), name, &IsDns1123Subdomain, errors);
  }
  FlowRules(spec, errors);
}

void FlowSchemaUpdate(const Json& object, const Json&, FieldErrors* errors) {
  FlowSchema(object, errors);
}

void ResourceClaim(const Json& object, FieldErrors* errors) {
  const Path devices = kSpec.Child("devices");
  const Path requests = devices.Child("requests");
  std::size_t index = 0;
  for (const Json& request : Items(Get(Get(object, "spec"), "devices"), "requests")) {
    DeviceRequest(requests.Index(index++), request, errors);
  }
}

void ResourceClaimUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  if (Get(object, "spec") != Get(old, "spec")) {
    errors->Invalid(kSpec, Get(object, "spec"), "field is immutable");
  }
}

}  // namespace sublet::kube::validate
