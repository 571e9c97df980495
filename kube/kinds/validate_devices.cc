// Resource claims, their templates, device classes and resource slices. Differs: expressions in CEL
// are not compiled.
// Source: k8s.io/kubernetes pkg/apis/resource/validation.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kListMax = 32;  // requests, constraints, configs, selectors
constexpr std::size_t kFirstAvailableMax = 8;
constexpr std::size_t kTaintsMax = 16;
constexpr std::size_t kDevicesMax = 128;
constexpr std::size_t kExpressionMax = 10 * 1024;

using ItemRule = std::function<void(const Path&, const Json&)>;

// Each item of a list that is not too long.
void Each(const Path& path, const Json& owner, const char* key, std::size_t max,
          FieldErrors* errors, const ItemRule& rule) {
  const auto& items = Items(owner, key);
  const Path list = path.Child(key);
  if (items.size() > max) {
    errors->TooMany(list, static_cast<std::int64_t>(items.size()), static_cast<std::int64_t>(max));
    return;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    rule(list.Index(i), items[i]);
  }
}

// Names of items, or the items themselves, that occur again.
void Repeated(const Path& path, const Json& owner, const char* key, FieldErrors* errors) {
  const Path list = path.Child(key);
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& item : Items(owner, key)) {
    const std::string name = item.is_string() ? item.get<std::string>() : Str(item, "name");
    if (!seen.insert(name).second) {
      errors->Duplicate(list.Index(index), name);
    }
    ++index;
  }
}

void Identifier(const Path& path, const std::string& name, FieldErrors* errors) {
  constexpr std::size_t kMax = 32;
  if (name.size() > kMax) {
    errors->TooLong(path, static_cast<int>(kMax));
  }
  Check(path, name, &IsCIdentifier, errors);
}

// "name" or "domain/name" of an attribute or a capacity.
void QualifiedName(const Path& path, const std::string& name, FieldErrors* errors) {
  const auto slashes = std::count(name.begin(), name.end(), '/');
  if (slashes == 0) {
    Identifier(path, name, errors);
    return;
  }
  if (slashes > 1) {
    return;
  }
  const std::size_t slash = name.find('/');
  if (slash == 0) {
    errors->Invalid(path, "", "the domain must not be empty");
  } else {
    CsiDriverName(path, name.substr(0, slash), errors);
  }
  if (slash + 1 == name.size()) {
    errors->Invalid(path, "", "the name must not be empty");
  } else {
    Identifier(path, name.substr(slash + 1), errors);
  }
}

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

void Config(const Path& at, const Json& config, FieldErrors* errors) {
  const Path opaque = at.Child("opaque");
  const Json& inside = Get(config, "opaque");
  if (!inside.is_object()) {
    errors->Required(opaque);
    return;
  }
  CsiDriverName(opaque.Child("driver"), Str(inside, "driver"), errors);
  const Path parameters = opaque.Child("parameters");
  if (!Has(inside, "parameters")) {
    errors->Required(parameters);
  } else if (!Get(inside, "parameters").is_object()) {
    errors->Invalid(parameters, "<value omitted>", "parameters must be a valid JSON object");
  }
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

// The names by which constraints and configs speak of requests: "a" and "a/b".
std::set<std::string> RequestNames(const Json& devices) {
  std::set<std::string> names;
  for (const Json& request : Items(devices, "requests")) {
    names.insert(Str(request, "name"));
    for (const Json& one : Items(request, "firstAvailable")) {
      names.insert(Str(request, "name") + "/" + Str(one, "name"));
    }
  }
  return names;
}

void RequestReferences(const Path& at, const Json& owner, const std::set<std::string>& names,
                       FieldErrors* errors) {
  constexpr std::string_view kUnknown =
      "must be the name of a request in the claim or the name of a request and a subrequest "
      "separated by '/'";
  Each(at, owner, "requests", kListMax, errors, [&](const Path& path, const Json& one) {
    const std::string name = one.get<std::string>();
    if (std::count(name.begin(), name.end(), '/') > 1) {
      errors->Invalid(path, name, kUnknown);
      return;
    }
    const std::size_t slash = name.find('/');
    Check(path, name.substr(0, slash), &IsDns1123Label, errors);
    if (slash != std::string::npos) {
      Check(path, name.substr(slash + 1), &IsDns1123Label, errors);
    }
    if (!names.contains(name)) {
      errors->Invalid(path, name, kUnknown);
    }
  });
  Repeated(at, owner, "requests", errors);
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

void Pool(const Json& spec, FieldErrors* errors) {
  const Path path = kSpec.Child("pool");
  const Json& pool = Get(spec, "pool");
  std::string rest = Str(pool, "name");
  if (rest.empty()) {
    errors->Required(path.Child("name"));
  } else {
    if (rest.size() > 253) {
      errors->TooLong(path.Child("name"), 253);
    }
    for (bool more = true; more;) {
      const std::size_t slash = rest.find('/');
      Check(path.Child("name"), rest.substr(0, slash), &IsDns1123Subdomain, errors);
      more = slash != std::string::npos;
      rest = more ? rest.substr(slash + 1) : "";
    }
  }
  const std::int64_t slices = FindInt(pool, {"resourceSliceCount"});
  if (slices <= 0) {
    errors->Invalid(path.Child("resourceSliceCount"), slices, "must be greater than zero");
  }
  const std::int64_t generation = FindInt(pool, {"generation"});
  if (generation < 0) {
    errors->Invalid(path.Child("generation"), generation, "must be greater than or equal to zero");
  }
}

// Which nodes see the devices of a slice.
void SliceNodes(const Json& spec, FieldErrors* errors) {
  std::vector<std::string> set;
  if (Has(spec, "nodeName")) {
    const std::string name = Str(spec, "nodeName");
    if (name.empty()) {
      errors->Invalid(kSpec.Child("nodeName"), name,
                      "must be either unset or set to a non-empty string");
    } else {
      set.push_back("`nodeName`");
      Check(kSpec.Child("nodeName"), name, &IsDns1123Subdomain, errors);
    }
  }
  if (const Json& selector = Get(spec, "nodeSelector"); selector.is_object()) {
    set.push_back("`nodeSelector`");
    const Path at = kSpec.Child("nodeSelector");
    NodeSelector(at, selector, errors);
    if (Items(selector, "nodeSelectorTerms").size() != 1) {
      errors->Invalid(at.Child("nodeSelectorTerms"), Get(selector, "nodeSelectorTerms"),
                      "must have exactly one node selector term");
    }
  }
  for (const char* key : {"allNodes", "perDeviceNodeSelection"}) {
    if (FindBool(spec, {key})) {
      set.push_back("`" + std::string(key) + "`");
    } else if (Has(spec, key)) {
      errors->Invalid(kSpec.Child(key), false, "must be either unset or set to true");
    }
  }
  const std::string one =
      "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
  if (set.empty()) {
    errors->Required(kSpec, one);
  } else if (set.size() > 1) {
    errors->Invalid(kSpec, "{" + Join(set, ", ") + "}", one + ", but multiple fields are set");
  }
}

void Device(const Path& at, const Json& device, FieldErrors* errors) {
  Check(at.Child("name"), Str(device, "name"), &IsDns1123Label, errors);
  for (const char* map : {"attributes", "capacity"}) {
    const Path path = at.Child(map);
    if (const Json& entries = Get(device, map); entries.is_object()) {
      for (const auto& [key, value] : entries.items()) {
        QualifiedName(path.Key(key), key, errors);
        if (std::string_view(map) == "attributes" && value.empty()) {
          errors->Required(path.Key(key), "exactly one value must be specified");
        }
      }
    }
  }
  Each(at, device, "taints", kTaintsMax, errors, [&](const Path& path, const Json& taint) {
    Check(path.Child("key"), Str(taint, "key"), &IsQualifiedName, errors);
    Check(path.Child("value"), Str(taint, "value"), &IsLabelValue, errors);
    OneOf(path.Child("effect"), Str(taint, "effect"), {"NoExecute", "NoSchedule", "None"}, true,
          errors);
  });
}

}  // namespace

void ResourceClaim(const Json& object, FieldErrors* errors) {
  Claim(kSpec, Get(object, "spec"), errors);
}

void ResourceClaimUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  if (Get(object, "spec") != Get(old, "spec")) {
    errors->Invalid(kSpec, Get(object, "spec"), kImmutable);
  }
}

void ResourceClaimTemplate(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& metadata = Get(spec, "metadata");
  const Path path = kSpec.Child("metadata");
  const Path labels = path.Child("labels");
  Labels(labels, Get(metadata, "labels"), errors);
  const Path inside = kSpec.Child("spec");
  Claim(inside, Get(spec, "spec"), errors);
}

void ResourceClaimTemplateUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  ResourceClaimUpdate(object, old, errors);
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

void ResourceSlice(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  CsiDriverName(kSpec.Child("driver"), Str(spec, "driver"), errors);
  Pool(spec, errors);
  SliceNodes(spec, errors);
  if (Has(spec, "sharedCounters") && Has(spec, "devices")) {
    errors->Invalid(kSpec, "", "only one of `sharedCounters` or `devices` is allowed");
  }
  Each(kSpec, spec, "devices", kDevicesMax, errors,
       [&](const Path& at, const Json& one) { Device(at, one, errors); });
  Repeated(kSpec, spec, "devices", errors);
}

void ResourceSliceUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  ResourceSlice(object, errors);
  const Path pool = kSpec.Child("pool");
  Immutable(Get(Get(object, "spec"), "pool"), Get(Get(old, "spec"), "pool"), "name", pool, errors);
  for (const char* key : {"driver", "nodeName"}) {
    Immutable(Get(object, "spec"), Get(old, "spec"), key, kSpec, errors);
  }
}

}  // namespace sublet::kube::validate
