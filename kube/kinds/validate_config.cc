// Config maps, secrets, namespaces, nodes, events and the small policy kinds.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/base64.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kBytesMax = 1024 * 1024;
constexpr std::string_view kFrozen = "field is immutable when `immutable` is set";

std::size_t Keys(const Path& path, const Json& map, bool encoded, FieldErrors* errors) {
  std::size_t bytes = 0;
  if (!map.is_object()) {
    return 0;
  }
  for (const auto& [key, value] : map.items()) {
    Check(path.Key(key), key, &IsConfigMapKey, errors);
    const std::size_t size = value.is_string() ? value.get_ref<const std::string&>().size() : 0;
    bytes += encoded ? size / 4 * 3 : size;
  }
  return bytes;
}

// Data of an immutable object.
void Frozen(const Json& object, const Json& old, std::initializer_list<std::string_view> fields,
            FieldErrors* errors) {
  if (!FindBool(old, {"immutable"})) {
    return;
  }
  if (!FindBool(object, {"immutable"})) {
    errors->Forbidden(Path("immutable"), kFrozen);
  }
  for (const std::string_view field : fields) {
    const Json& now = Get(object, field);
    const Json& before = Get(old, field);
    if (now != before && !(now.empty() && before.empty())) {
      errors->Forbidden(Path(field), kFrozen);
    }
  }
}

void SecretType(const Json& object, FieldErrors* errors) {
  const std::string type = Str(object, "type");
  const Json& data = Get(object, "data");
  const Path path("data");
  const auto required = [&](std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) {
      if (!Has(data, key)) {
        errors->Required(path.Key(key));
      }
    }
  };
  const auto json = [&](std::string_view key) {
    if (!Has(data, key)) {
      errors->Required(path.Key(key));
      return;
    }
    const auto parsed = ParseJson(DecodeBase64(Str(data, key)).value_or(""));
    if (!parsed.ok()) {
      errors->Invalid(path.Key(key), "<secret contents redacted>", parsed.error().message());
    }
  };
  if (type == "kubernetes.io/service-account-token") {
    if (AnnotationOf(object, "kubernetes.io/service-account.name").empty()) {
      const Path metadata("metadata");
      const Path annotations = metadata.Child("annotations");
      errors->Required(annotations.Key("kubernetes.io/service-account.name"));
    }
  } else if (type == "kubernetes.io/dockercfg") {
    json(".dockercfg");
  } else if (type == "kubernetes.io/dockerconfigjson") {
    json(".dockerconfigjson");
  } else if (type == "kubernetes.io/basic-auth") {
    if (!Has(data, "username") && !Has(data, "password")) {
      required({"username", "password"});
    }
  } else if (type == "kubernetes.io/ssh-auth") {
    required({"ssh-privatekey"});
  } else if (type == "kubernetes.io/tls") {
    required({"tls.crt", "tls.key"});
  }
}

void Taints(const Json& spec, FieldErrors* errors) {
  const Path metadata("metadata");
  const Path taints = metadata.Child("taints");  // where upstream reports them
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& taint : Items(spec, "taints")) {
    const Path at = taints.Index(index++);
    const std::string key = Str(taint, "key");
    const std::string value = Str(taint, "value");
    const std::string effect = Str(taint, "effect");
    Check(at.Child("key"), key, &IsQualifiedName, errors);
    if (const Problems problems = IsLabelValue(value); !problems.empty()) {
      errors->Invalid(at.Child("value"), value, Join(problems, ";"));
    }
    OneOf(at.Child("effect"), effect, {"NoSchedule", "PreferNoSchedule", "NoExecute"}, true,
          errors);
    if (!seen.insert(key + "\n" + effect).second) {
      errors->DuplicateShown(at,
                             "{\"Key\":" + GoQuote(key) + ",\"Value\":" + GoQuote(value) +
                                 ",\"Effect\":" + GoQuote(effect) +
                                 ",\"TimeAdded\":null}: taints must be unique by key and effect "
                                 "pair");
    }
  }
}

void PodCidrs(const Json& spec, FieldErrors* errors) {
  Json list = Get(spec, "podCIDRs");
  if (const std::string one = Str(spec, "podCIDR"); !list.is_array() && !one.empty()) {
    list = Json::array({one});
  }
  if (!list.is_array()) {
    return;
  }
  const Path path = kSpec.Child("podCIDRs");
  for (std::size_t i = 0; i < list.size(); ++i) {
    Cidr(path.Index(i), list[i].get<std::string>(), errors);
  }
}

Quantity Amount(const Json& item, const char* list, const std::string& name) {
  return Quantity::ParseOrZero(Str(Get(item, list), name));
}

void LimitPairs(const Path& at, const Json& item, FieldErrors* errors) {
  const auto text = [&](const char* list, const std::string& name) {
    return Str(Get(item, list), name);
  };
  std::set<std::string> names;
  for (const char* list : {"max", "min", "default", "defaultRequest", "maxLimitRequestRatio"}) {
    if (const Json& map = Get(item, list); map.is_object()) {
      for (const auto& [name, value] : map.items()) {
        names.insert(name);
      }
    }
  }
  const auto above = [&](const char* a, const char* b, const std::string& name) {
    return Has(Get(item, a), name) && Has(Get(item, b), name) &&
           Amount(item, a, name) > Amount(item, b, name);
  };
  const auto report = [&](const char* field, const std::string& name, const std::string& shown,
                          const std::string& detail) {
    const Path list = at.Child(field);
    errors->Invalid(list.Key(name), shown, detail);
  };
  for (const std::string& name : names) {
    const std::string max = text("max", name);
    const std::string min = text("min", name);
    const std::string limit = text("default", name);
    const std::string request = text("defaultRequest", name);
    if (above("min", "max", name)) {
      report("min", name, min, "min value " + min + " is greater than max value " + max);
    }
    if (above("min", "defaultRequest", name)) {
      report("defaultRequest", name, request,
             "min value " + min + " is greater than default request value " + request);
    }
    if (above("defaultRequest", "max", name)) {
      report("defaultRequest", name, request,
             "default request value " + request + " is greater than max value " + max);
    }
    if (above("defaultRequest", "default", name)) {
      report("defaultRequest", name, request,
             "default request value " + request + " is greater than default limit value " + limit);
    }
    if (above("min", "default", name)) {
      report("default", name, min, "min value " + min + " is greater than default value " + limit);
    }
    if (above("default", "max", name)) {
      report("default", name, max, "default value " + limit + " is greater than max value " + max);
    }
  }
}

}  // namespace

void ConfigMap(const Json& object, FieldErrors* errors) {
  const Json& data = Get(object, "data");
  const Json& binary = Get(object, "binaryData");
  const Path data_path("data");
  std::size_t bytes = Keys(data_path, data, false, errors);
  if (data.is_object()) {
    for (const auto& [key, value] : data.items()) {
      if (Has(binary, key)) {
        errors->Invalid(data_path.Key(key), key, "duplicate of key present in binaryData");
      }
    }
  }
  bytes += Keys(Path("binaryData"), binary, true, errors);
  if (bytes > kBytesMax) {
    errors->TooLong("", kBytesMax);
  }
}

void ConfigMapUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  Frozen(object, old, {"data", "binaryData"}, errors);
  ConfigMap(object, errors);
}

void Secret(const Json& object, FieldErrors* errors) {
  const Path path("data");
  if (Keys(path, Get(object, "data"), true, errors) > kBytesMax) {
    errors->TooLong(path, kBytesMax);
  }
  SecretType(object, errors);
}

void SecretUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  if (!SameMember(object, old, "type")) {
    errors->Invalid(Path("type"), Get(object, "type"), kImmutable);
  }
  Frozen(object, old, {"data"}, errors);
  Secret(object, errors);
}

void Namespace(const Json& object, FieldErrors* errors) {
  const Path path = kSpec.Child("finalizers");
  for (const Json& finalizer : Items(Get(object, "spec"), "finalizers")) {
    const std::string name = finalizer.get<std::string>();
    Check(path, name, &IsQualifiedName, errors);
    if (name.find('/') == std::string::npos && name != "kubernetes" && name != "orphan" &&
        name != "foregroundDeletion") {
      errors->Invalid(path, name,
                      "name is neither a standard finalizer name nor is it fully "
                      "qualified");
    }
  }
}

void Node(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  Taints(spec, errors);
  PodCidrs(spec, errors);
}

void NodeUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& before = Get(old, "spec");
  if (!Items(before, "podCIDRs").empty() && !SameMember(spec, before, "podCIDRs")) {
    errors->Forbidden(kSpec.Child("podCIDRs"),
                      "node updates may not change podCIDR except from \"\" to valid");
  }
  if (!Str(before, "providerID").empty() && !SameMember(spec, before, "providerID")) {
    errors->Forbidden(kSpec.Child("providerID"),
                      "node updates may not change providerID except from \"\" to valid");
  }
  Taints(spec, errors);
}

namespace {

// Whether a quota with this scope may count the resource at all.
bool ScopeCounts(std::string_view scope, std::string_view resource) {
  if (scope == "BestEffort") {
    return resource == "pods";
  }
  if (scope == "VolumeAttributesClass") {
    return resource == "persistentvolumeclaims" || resource == "requests.storage";
  }
  static constexpr std::string_view kOfPods[] = {
      "pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"};
  return std::find(std::begin(kOfPods), std::end(kOfPods), resource) != std::end(kOfPods);
}

}  // namespace

void LimitRange(const Json& object, FieldErrors* errors) {
  const Path limits = kSpec.Child("limits");
  std::set<std::string> types;
  std::size_t index = 0;
  for (const Json& item : Items(Get(object, "spec"), "limits")) {
    const Path at = limits.Index(index++);
    const std::string type = Str(item, "type");
    const std::size_t before = errors->size();
    Check(at.Child("type"), type, &IsQualifiedName, errors);
    if (errors->size() == before && type != "Pod" && type != "Container" &&
        type != "PersistentVolumeClaim" && type.find('/') == std::string::npos) {
      errors->Invalid(at.Child("type"), type, "must be a standard limit type or fully qualified");
    }
    if (!types.insert(type).second) {
      errors->Duplicate(at.Child("type"), type);
    }
    if (type == "Pod") {
      for (const char* field : {"default", "defaultRequest"}) {
        if (!Get(item, field).empty()) {
          errors->Forbidden(at.Child(field), "may not be specified when `type` is 'Pod'");
        }
      }
    }
    LimitPairs(at, item, errors);
  }
}

void LimitRangeUpdate(const Json& object, const Json&, FieldErrors* errors) {
  LimitRange(object, errors);
}

void ResourceQuota(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Path hard = kSpec.Child("hard");
  if (const Json& list = Get(spec, "hard"); list.is_object()) {
    for (const auto& [name, value] : list.items()) {
      const Path at = hard.Key(name);
      const std::size_t before = errors->size();
      Check(at, name, &IsQualifiedName, errors);
      const bool plain = name.find('/') == std::string::npos;
      if (errors->size() == before && plain && !IsStandardResource(name)) {
        errors->Invalid(at, name, "must be a standard resource type or fully qualified");
      }
      if (plain && !IsStandardQuotaResource(name)) {
        errors->Invalid(at, name, "must be a standard resource for quota");
      }
      QuantityValue(at, name, value.get<std::string>(), errors);
    }
  }
  static constexpr std::string_view kScopes[] = {
      "Terminating",          "NotTerminating", "BestEffort",
      "NotBestEffort",        "PriorityClass",  "CrossNamespacePodAffinity",
      "VolumeAttributesClass"};
  std::set<std::string> scopes;
  for (const Json& scope : Items(spec, "scopes")) {
    const std::string name = scope.get<std::string>();
    if (std::find(std::begin(kScopes), std::end(kScopes), name) == std::end(kScopes)) {
      errors->Invalid(kSpec.Child("scopes"), Get(spec, "scopes"), "unsupported scope");
      continue;
    }
    for (const auto& [resource, value] : Get(spec, "hard").items()) {
      if (IsStandardQuotaResource(resource) && !ScopeCounts(name, resource)) {
        errors->Invalid(kSpec.Child("scopes"), Get(spec, "scopes"),
                        "unsupported scope applied to resource");
      }
    }
    scopes.insert(name);
  }
  for (const char* pair : {"BestEffort", "Terminating"}) {
    if (scopes.contains(pair) && scopes.contains(std::string("Not") + pair)) {
      errors->Invalid(kSpec.Child("scopes"), Get(spec, "scopes"), "conflicting scopes");
    }
  }
}

void ResourceQuotaUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  ResourceQuota(object, errors);
  if (!SameMember(Get(object, "spec"), Get(old, "spec"), "scopes")) {
    errors->Invalid(kSpec.Child("scopes"), Get(Get(object, "spec"), "scopes"), kImmutable);
  }
}

void Lease(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& duration = Get(spec, "leaseDurationSeconds");
  if (duration.is_number_integer() && duration.get<std::int64_t>() <= 0) {
    errors->Invalid(kSpec.Child("leaseDurationSeconds"), duration, kPositive);
  }
  NotNegative(spec, "leaseTransitions", kSpec, errors);
}
void LeaseUpdate(const Json& object, const Json&, FieldErrors* errors) { Lease(object, errors); }

void PriorityClass(const Json& object, FieldErrors* errors) {
  constexpr std::int64_t kUserMax = 1'000'000'000;
  const std::string name(NameOf(object));
  const std::int64_t value = FindInt(object, {"value"});
  if (name.starts_with("system-")) {
    if (name != "system-cluster-critical" && name != "system-node-critical") {
      errors->Forbidden(Path("metadata").Child("name"),
                        "priority class names with 'system-' prefix are reserved for system use "
                        "only. error: " +
                            name + " is not a known system priority class");
    }
  } else if (value > kUserMax) {
    errors->Forbidden(Path("value"),
                      "maximum allowed value of a user defined priority is 1000000000");
  }
  if (Has(object, "preemptionPolicy")) {
    OneOf(Path("preemptionPolicy"), Str(object, "preemptionPolicy"),
          {"PreemptLowerPriority", "Never"}, true, errors);
  }
}

void PriorityClassUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  if (!SameMember(object, old, "value")) {
    errors->Forbidden(Path("value"), "may not be changed in an update.");
  }
  if (!SameMember(object, old, "preemptionPolicy")) {
    errors->Invalid(Path("preemptionPolicy"), Get(object, "preemptionPolicy"), kImmutable);
  }
}

void RuntimeClass(const Json& object, FieldErrors* errors) {
  CheckRequired(Path("handler"), Str(object, "handler"), &IsDns1123Label, errors);
  if (const Json& fixed = Get(Get(object, "overhead"), "podFixed"); fixed.is_object()) {
    const Path overhead("overhead");
    Resources(overhead, {{"limits", fixed}}, errors);
  }
  const Json& scheduling = Get(object, "scheduling");
  const Path path("scheduling");
  Labels(path.Child("nodeSelector"), Get(scheduling, "nodeSelector"), errors);
  const Path tolerations = path.Child("tolerations");
  Tolerations(tolerations, scheduling, errors);
}

void RuntimeClassUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  RuntimeClass(object, errors);
  if (!SameMember(object, old, "handler")) {
    errors->Invalid(Path("handler"), Get(object, "handler"), kImmutable);
  }
}

}  // namespace sublet::kube::validate
