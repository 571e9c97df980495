// Limit ranges and resource quotas.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/quantity.h"

namespace sublet::kube::validate {
namespace {

constexpr std::string_view kPairs[] = {"BestEffort", "Terminating"};

void ResourceName(const Path& path, const std::string& name, FieldErrors* errors) {
  const std::size_t before = errors->size();
  Check(path, name, &IsQualifiedName, errors);
  if (errors->size() == before && name.find('/') == std::string::npos &&
      !IsStandardResource(name)) {
    errors->Invalid(path, name, "must be a standard resource type or fully qualified");
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
    const std::string ratio = text("maxLimitRequestRatio", name);
    if (ratio.empty()) {
      continue;
    }
    if (Amount(item, "maxLimitRequestRatio", name) < Quantity::FromInt(1)) {
      report("maxLimitRequestRatio", name, ratio, "ratio " + ratio + " is less than 1");
    }
    const double most = Amount(item, "max", name).AsDouble() / Amount(item, "min", name).AsDouble();
    if (!min.empty() && !max.empty() &&
        Amount(item, "maxLimitRequestRatio", name).AsDouble() > most) {
      report("maxLimitRequestRatio", name, ratio,
             "ratio " + ratio + " is greater than max/min = " + std::to_string(most));
    }
  }
}

void LimitNames(const Path& at, const Json& item, const std::string& type, FieldErrors* errors) {
  for (const char* list : {"max", "min", "default", "defaultRequest", "maxLimitRequestRatio"}) {
    const bool of_pod = type == "Pod" && std::string_view(list).starts_with("default");
    const Json& map = Get(item, list);
    const Path path = at.Child(list);
    if (of_pod && !map.empty()) {
      errors->Forbidden(path, "may not be specified when `type` is 'Pod'");
    }
    if (std::string_view(list) == "maxLimitRequestRatio" && type == "PersistentVolumeClaim" &&
        !Has(Get(item, "min"), "storage") && !Has(Get(item, "max"), "storage")) {
      errors->Required(at.Child("limits"),
                       "either minimum or maximum storage value is required, but neither was "
                       "provided");
    }
    for (const auto& [name, value] : map.items()) {
      if (of_pod) {
        break;
      }
      if (type == "Pod" || type == "Container") {
        ContainerResourceName(path.Key(name), name, errors);
      } else {
        ResourceName(path.Key(name), name, errors);
      }
    }
  }
}

void QuotaAmounts(const Path& path, const Json& list, FieldErrors* errors) {
  for (const auto& [name, value] : list.items()) {
    const Path at = path.Key(name);
    ResourceName(at, name, errors);
    if (name.find('/') == std::string::npos && !IsStandardQuotaResource(name)) {
      errors->Invalid(at, name, "must be a standard resource for quota");
    }
    QuantityValue(at, name, value.get<std::string>(), errors);
  }
}

bool IsKnownScope(std::string_view scope) {
  static constexpr std::string_view kScopes[] = {
      "Terminating",          "NotTerminating", "BestEffort",
      "NotBestEffort",        "PriorityClass",  "CrossNamespacePodAffinity",
      "VolumeAttributesClass"};
  return std::find(std::begin(kScopes), std::end(kScopes), scope) != std::end(kScopes);
}

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
  return !IsKnownScope(scope) ||
         std::find(std::begin(kOfPods), std::end(kOfPods), resource) != std::end(kOfPods);
}

// How often the quota counts what this scope has none of.
int Uncountable(const Json& spec, const std::string& scope) {
  int count = 0;
  for (const auto& [resource, value] : Get(spec, "hard").items()) {
    count += IsStandardQuotaResource(resource) && !ScopeCounts(scope, resource) ? 1 : 0;
  }
  return count;
}

void Scopes(const Json& spec, FieldErrors* errors) {
  const Path path = kSpec.Child("scopes");
  const Json& list = Get(spec, "scopes");
  std::set<std::string> scopes;
  for (const Json& scope : Items(spec, "scopes")) {
    const std::string name = scope.get<std::string>();
    if (!IsKnownScope(name)) {
      errors->Invalid(path, list, "unsupported scope");
    }
    for (int i = Uncountable(spec, name); i > 0; --i) {
      errors->Invalid(path, list, "unsupported scope applied to resource");
    }
    scopes.insert(name);
  }
  for (const std::string_view pair : kPairs) {
    if (scopes.contains(std::string(pair)) && scopes.contains("Not" + std::string(pair))) {
      errors->Invalid(path, list, "conflicting scopes");
    }
  }
}

void ScopeRequirement(const Path& path, const Json& requirement, FieldErrors* errors) {
  const std::string scope = Str(requirement, "scopeName");
  const std::string op = Str(requirement, "operator");
  const Json& values = Get(requirement, "values");
  if (IsKnownScope(scope) && scope != "PriorityClass" && scope != "VolumeAttributesClass" &&
      op != "Exists") {
    errors->Invalid(path.Child("operator"), op,
                    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
                    "ResourceQuotaScopeNotBestEffort or "
                    "ResourceQuotaScopeCrossNamespacePodAffinity");
  }
  if (op == "In" || op == "NotIn") {
    if (values.empty()) {
      errors->Required(path.Child("values"),
                       "must be at least one value when `operator` is 'In' or 'NotIn' for scope "
                       "selector");
    }
  } else if (op == "Exists" || op == "DoesNotExist") {
    if (!values.empty()) {
      errors->Invalid(path.Child("values"), values,
                      "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope "
                      "selector");
    }
  } else {
    errors->Invalid(path.Child("operator"), op, "not a valid selector operator");
  }
}

void ScopeSelector(const Json& spec, FieldErrors* errors) {
  const Json& selector = Get(spec, "scopeSelector");
  const Path at = kSpec.Child("scopeSelector");
  const Path path = at.Child("matchExpressions");
  std::set<std::string> scopes;
  for (const Json& requirement : Items(selector, "matchExpressions")) {
    const std::string scope = Str(requirement, "scopeName");
    if (!IsKnownScope(scope)) {
      errors->Invalid(path.Child("scopeName"), scope, "unsupported scope");
    }
    for (int i = Uncountable(spec, scope); i > 0; --i) {
      errors->InvalidShown(path, ShownAsGo("ScopeSelector", selector),
                           "unsupported scope applied to resource");
    }
    ScopeRequirement(path, requirement, errors);
    scopes.insert(scope);
  }
  for (const std::string_view pair : kPairs) {
    if (scopes.contains(std::string(pair)) && scopes.contains("Not" + std::string(pair))) {
      errors->Invalid(path, Get(spec, "scopes"), "conflicting scopes");
    }
  }
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
    LimitNames(at, item, type, errors);
    LimitPairs(at, item, errors);
  }
}

void LimitRangeUpdate(const Json& object, const Json&, FieldErrors* errors) {
  LimitRange(object, errors);
}

void ResourceQuota(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  QuotaAmounts(kSpec.Child("hard"), Get(spec, "hard"), errors);
  Scopes(spec, errors);
  ScopeSelector(spec, errors);
  const Path status("status");
  for (const char* list : {"hard", "used"}) {
    QuotaAmounts(status.Child(list), Get(Get(object, "status"), list), errors);
  }
}

void ResourceQuotaUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  QuotaAmounts(kSpec.Child("hard"), Get(spec, "hard"), errors);
  Scopes(spec, errors);
  ScopeSelector(spec, errors);
  const auto names = [](const Json& owner) {
    const auto& list = Items(owner, "scopes");
    return std::set<Json>(list.begin(), list.end());
  };
  if (names(spec) != names(Get(old, "spec"))) {
    errors->Invalid(kSpec.Child("scopes"), Get(spec, "scopes"), kImmutable);
  }
}

void ResourceQuotaStatus(const Json& object, const Json&, FieldErrors* errors) {
  const Path status("status");
  for (const char* list : {"hard", "used"}) {
    QuotaAmounts(status.Child(list), Get(Get(object, "status"), list), errors);
  }
}

}  // namespace sublet::kube::validate
