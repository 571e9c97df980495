// Resource claims, their templates and device classes. Differs: expressions in CEL are not
// compiled.
// Source: k8s.io/kubernetes pkg/apis/resource/validation.
#include "kube/kinds/validate_devices.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kFirstAvailableMax = 8;
constexpr std::size_t kExpressionMax = 10 * 1024;

void FullName(const Path& path, const std::string& name, FieldErrors* errors) {
  QualifiedName(path, name, errors);
  if (name.find('/') == std::string::npos) {
    errors->Invalid(path, name,
                    "a fully qualified name must be a domain and a name separated by a slash");
  }
}

void Selectors(const Path& path, const Json& owner, FieldErrors* errors) {
  Each(path, owner, "selectors", kListMax, errors, [&](const Path& at, const Json& selector) {
    const Path cel = at.Child("cel");
    if (!Has(selector, "cel")) {
      errors->Required(cel);
    } else if (Str(Get(selector, "cel"), "expression").size() > kExpressionMax) {
      errors->TooLong(cel.Child("expression"), static_cast<int>(kExpressionMax));
    }
  });
}

void DeviceToleration(const Path& at, const Json& toleration, FieldErrors* errors) {
  if (const std::string key = Str(toleration, "key"); !key.empty()) {
    Check(at.Child("key"), key, &IsQualifiedName, errors);
  }
  const std::string op = Str(toleration, "operator");
  const std::string value = Str(toleration, "value");
  if (op == "Exists") {
    if (!value.empty()) {
      errors->Invalid(at.Child("value"), value, "must be empty for operator `Exists`");
    }
  } else if (op == "Equal") {
    Check(at.Child("value"), value, &IsLabelValue, errors);
  } else {
    OneOf(at.Child("operator"), op, {"Equal", "Exists"}, true, errors);
  }
  OneOf(at.Child("effect"), Str(toleration, "effect"), {"NoExecute", "NoSchedule", "None"}, false,
        errors);
}

// What a request asks for, with or without a name of its own.
void Asked(const Path& at, const Json& request, FieldErrors* errors) {
  CheckRequired(at.Child("deviceClassName"), Str(request, "deviceClassName"), &IsDns1123Subdomain,
                errors);
  Selectors(at, request, errors);
  const std::string mode = Str(request, "allocationMode");
  const std::int64_t count = FindInt(request, {"count"});
  if (mode == "All") {
    if (count != 0) {
      errors->Invalid(at.Child("count"), count,
                      "must not be specified when allocationMode is 'All'");
    }
  } else if (mode == "ExactCount") {
    if (count <= 0) {
      errors->Invalid(at.Child("count"), count, "must be greater than zero");
    }
  } else {
    errors->NotSupported(at.Child("allocationMode"), mode, {"All", "ExactCount"});
  }
  Each(at, request, "tolerations", kTaintsMax, errors,
       [&](const Path& path, const Json& one) { DeviceToleration(path, one, errors); });
}

void DeviceRequest(const Path& at, const Json& request, FieldErrors* errors) {
  Check(at.Child("name"), Str(request, "name"), &IsDns1123Label, errors);
  const bool exactly = Has(request, "exactly");
  const bool available = !Items(request, "firstAvailable").empty();
  if (exactly && available) {
    errors->Invalid(at, nullptr,
                    "exactly one of `exactly` or `firstAvailable` is required, but multiple "
                    "fields are set");
  } else if (exactly) {
    const Path inside = at.Child("exactly");
    Asked(inside, Get(request, "exactly"), errors);
  } else if (available) {
    Each(at, request, "firstAvailable", kFirstAvailableMax, errors,
         [&](const Path& path, const Json& one) {
           Check(path.Child("name"), Str(one, "name"), &IsDns1123Label, errors);
           Asked(path, one, errors);
         });
    Repeated(at, request, "firstAvailable", errors);
  } else {
    errors->Required(at, "exactly one of `exactly` or `firstAvailable` is required");
  }
}

void Claim(const Path& spec_path, const Json& spec, FieldErrors* errors) {
  const Path path = spec_path.Child("devices");
  const Json& devices = Get(spec, "devices");
  const std::set<std::string> names = RequestNames(devices);
  Each(path, devices, "requests", kListMax, errors,
       [&](const Path& at, const Json& one) { DeviceRequest(at, one, errors); });
  Repeated(path, devices, "requests", errors);
  Each(path, devices, "constraints", kListMax, errors, [&](const Path& at, const Json& one) {
    RequestReferences(at, one, names, errors);
    if (Has(one, "matchAttribute")) {
      FullName(at.Child("matchAttribute"), Str(one, "matchAttribute"), errors);
    } else if (Has(one, "distinctAttribute")) {
      FullName(at.Child("distinctAttribute"), Str(one, "distinctAttribute"), errors);
    } else {
      errors->Required(at,
                       "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, "
                       "but multiple fields are set");
    }
  });
  Each(path, devices, "config", kListMax, errors, [&](const Path& at, const Json& one) {
    RequestReferences(at, one, names, errors);
    Config(at, one, errors);
  });
}

}  // namespace

void ResourceClaim(const Json& object, FieldErrors* errors) {
  Claim(kSpec, Get(object, "spec"), errors);
}

void ResourceClaimUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  if (Get(object, "spec") != Get(old, "spec")) {
    errors->InvalidShown(kSpec, ShownAsGo("ResourceClaimSpec", Get(object, "spec")), kImmutable);
  }
}

void ResourceClaimTemplate(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& metadata = Get(spec, "metadata");
  const Path path = kSpec.Child("metadata");
  TemplateMetadata(path, metadata, errors);
  const Path inside = kSpec.Child("spec");
  Claim(inside, Get(spec, "spec"), errors);
}

void ResourceClaimTemplateUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  ResourceClaimTemplate(object, errors);
  if (Get(object, "spec") != Get(old, "spec")) {
    errors->InvalidShown(kSpec, ShownAsGo("ResourceClaimTemplateSpec", Get(object, "spec")),
                         kImmutable);
  }
}

void DeviceClass(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  Selectors(kSpec, spec, errors);
  Each(kSpec, spec, "config", kListMax, errors,
       [&](const Path& at, const Json& one) { Config(at, one, errors); });
  if (Has(spec, "extendedResourceName")) {
    const std::string name = Str(spec, "extendedResourceName");
    if (!IsExtendedResource(name)) {
      errors->Invalid(kSpec.Child("extendedResourceName"), name,
                      "must be a valid extended resource name");
    }
  }
}

void DeviceClassUpdate(const Json& object, const Json&, FieldErrors* errors) {
  DeviceClass(object, errors);
}

}  // namespace sublet::kube::validate
