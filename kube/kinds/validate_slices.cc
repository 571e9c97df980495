// Resource slices: the devices that a driver offers.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_devices.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kDevicesMax = 128;
constexpr std::size_t kCounterSetsMax = 8;
constexpr std::size_t kAttributeMax = 64;

void Pool(const Json& spec, FieldErrors* errors) {
  const Path path = kSpec.Child("pool");
  const Json& pool = Get(spec, "pool");
  PoolName(path.Child("name"), Str(pool, "name"), errors);
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
      errors->InvalidShown(at.Child("nodeSelectorTerms"),
                           ShownAsGo("[]NodeSelectorTerm", Get(selector, "nodeSelectorTerms")),
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

// "1.2.3", "1.2.3-a.b+c" of semver.org.
bool IsVersion(std::string_view text) {
  const std::size_t plus = text.find('+');
  const std::string_view build = plus == std::string_view::npos ? "x" : text.substr(plus + 1);
  text = text.substr(0, plus);
  const std::size_t dash = text.find('-');
  const std::string_view before = dash == std::string_view::npos ? "x" : text.substr(dash + 1);
  text = text.substr(0, dash);
  const auto digits = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
  };
  const auto parts = [](std::string_view list, const auto& good) {
    for (std::size_t start = 0; start <= list.size();) {
      const std::size_t end = std::min(list.find('.', start), list.size());
      if (!good(list.substr(start, end - start))) {
        return false;
      }
      start = end + 1;
    }
    return true;
  };
  const auto word = [](std::string_view part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    });
  };
  const auto number = [&](std::string_view part) {
    return digits(part) && (part.size() == 1 || part[0] != '0');
  };
  const auto mark = [&](std::string_view part) {
    return word(part) && (!digits(part) || part.size() == 1 || part[0] != '0');
  };
  return std::count(text.begin(), text.end(), '.') == 2 && parts(text, number) &&
         parts(before, mark) && parts(build, word);
}

void Attribute(const Path& at, const Json& attribute, FieldErrors* errors) {
  const auto too_long = [&](const Path& path, const std::string& text) {
    if (text.size() > kAttributeMax) {
      errors->TooLong(path, static_cast<int>(kAttributeMax));
    }
  };
  if (Has(attribute, "string")) {
    too_long(at.Child("string"), Str(attribute, "string"));
  }
  if (Has(attribute, "version")) {
    const std::string version = Str(attribute, "version");
    if (!IsVersion(version)) {
      errors->Invalid(at.Child("version"), version,
                      "must be a string compatible with semver.org spec 2.0.0");
    }
    too_long(at.Child("version"), version);
  }
  if (attribute.empty()) {
    errors->Invalid(at, "", "exactly one value must be specified");
  } else if (attribute.size() > 1) {
    errors->InvalidShown(at, ShownAsGo("DeviceAttribute", attribute),
                         "exactly one value must be specified");
  }
}

void Device(const Path& at, const Json& device, FieldErrors* errors) {
  Check(at.Child("name"), Str(device, "name"), &IsDns1123Label, errors);
  for (const char* map : {"attributes", "capacity"}) {
    const Path path = at.Child(map);
    if (const Json& entries = Get(device, map); entries.is_object()) {
      for (const auto& [key, value] : entries.items()) {
        QualifiedName(path.Key(key), key, errors);
        if (std::string_view(map) == "attributes") {
          Attribute(path.Key(key), value, errors);
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

namespace {

void SliceSpec(const Json& spec, const Json* old, FieldErrors* errors) {
  CsiDriverName(kSpec.Child("driver"), Str(spec, "driver"), errors);
  Pool(spec, errors);
  if (old != nullptr) {
    const Path pool = kSpec.Child("pool");
    const std::string name = Str(Get(spec, "pool"), "name");
    if (name != Str(Get(*old, "pool"), "name")) {
      errors->Invalid(pool.Child("name"), name, kImmutable);
    }
    if (const std::string driver = Str(spec, "driver"); driver != Str(*old, "driver")) {
      errors->Invalid(kSpec.Child("driver"), driver, kImmutable);
    }
    Immutable(spec, *old, "nodeName", kSpec, errors);
  }
  SliceNodes(spec, errors);
  if (Has(spec, "sharedCounters") && Has(spec, "devices")) {
    errors->Invalid(kSpec, "", "only one of `sharedCounters` or `devices` is allowed");
  }
  Each(kSpec, spec, "devices", kDevicesMax, errors,
       [&](const Path& at, const Json& one) { Device(at, one, errors); });
  Repeated(kSpec, spec, "devices", errors);
  Each(kSpec, spec, "sharedCounters", kCounterSetsMax, errors,
       [&](const Path& at, const Json& one) {
         CheckRequired(at.Child("name"), Str(one, "name"), &IsDns1123Label, errors);
         const Path counters = at.Child("counters");
         if (Get(one, "counters").empty()) {
           errors->Required(counters);
         }
         for (const auto& [name, value] : Get(one, "counters").items()) {
           Check(counters.Key(name), name, &IsDns1123Label, errors);
         }
       });
  Repeated(kSpec, spec, "sharedCounters", errors);
}

}  // namespace

void ResourceSlice(const Json& object, FieldErrors* errors) {
  SliceSpec(Get(object, "spec"), nullptr, errors);
}

void ResourceSliceUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  SliceSpec(Get(object, "spec"), &Get(old, "spec"), errors);
}

}  // namespace sublet::kube::validate
