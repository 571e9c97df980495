// Horizontal pod autoscalers and pod disruption budgets.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/int_or_string.h"
#include "kube/kinds/logic_functions.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/quantity.h"

namespace sublet::kube::validate {
namespace {

void Target(const Path& path, const Json& target, bool utilization, FieldErrors* errors) {
  const std::string type = Str(target, "type");
  if (type.empty()) {
    errors->Required(path.Child("type"), "must specify a metric target type");
  }
  if (type != "Utilization" && type != "Value" && type != "AverageValue") {
    errors->Invalid(path.Child("type"), type, "must be either Utilization, Value, or AverageValue");
  }
  const Json& percent = Get(target, "averageUtilization");
  if (percent.is_number_integer() && percent.get<std::int64_t>() < 1) {
    errors->Invalid(path.Child("averageUtilization"), percent, kPositive);
  }
  for (const char* field : {"value", "averageValue"}) {
    if (Has(target, field) && Quantity::ParseOrZero(Str(target, field)).Sign() <= 0) {
      errors->Invalid(path.Child(field), Str(target, field), "must be positive");
    }
  }
  if (utilization) {
    if (percent.is_null() && !Has(target, "averageValue")) {
      errors->Required(path.Child("averageUtilization"),
                       "must set either a target raw value or a target utilization");
    } else if (!percent.is_null() && Has(target, "averageValue")) {
      errors->Forbidden(path.Child("averageValue"),
                        "may not set both a target raw value and a target utilization");
    }
  }
}

// What is scaled or measured; the group may be left out of the latter.
void TargetReference(const Path& path, const Json& target, bool needs_group, FieldErrors* errors) {
  CheckRequired(path.Child("kind"), Str(target, "kind"), &IsPathSegmentName, errors);
  CheckRequired(path.Child("name"), Str(target, "name"), &IsPathSegmentName, errors);
  const std::string version = Str(target, "apiVersion");
  if (std::count(version.begin(), version.end(), '/') > 1) {
    errors->Invalid(path.Child("apiVersion"), version,
                    "unexpected GroupVersion string: " + version);
  } else if (needs_group && version != "v1" && version.find('/') == std::string::npos) {
    errors->Invalid(path.Child("apiVersion"), version, "apiVersion must specify API group");
  }
}

void MetricSpec(const Path& at, const Json& metric, FieldErrors* errors) {
  static constexpr std::pair<std::string_view, std::string_view> kSources[] = {
      {"ContainerResource", "containerResource"},
      {"External", "external"},
      {"Object", "object"},
      {"Pods", "pods"},
      {"Resource", "resource"}};
  const std::string type = Str(metric, "type");
  if (type.empty()) {
    errors->Required(at.Child("type"), "must specify a metric source type");
  }
  std::string_view expected;
  for (const auto& [name, member] : kSources) {
    expected = name == type ? member : expected;
  }
  if (expected.empty()) {
    // Said by the check of the type and by the one of the source.
    for (int i = 0; i < 2; ++i) {
      errors->NotSupported(at.Child("type"), type,
                           {"ContainerResource", "External", "Object", "Pods", "Resource"});
    }
    return;
  }
  for (const auto& [name, member] : kSources) {
    if (member != expected && Has(metric, member)) {
      errors->Forbidden(at.Child(member), "must populate the given metric source only");
    }
  }
  const Json& source = Get(metric, expected);
  const Path path = at.Child(expected);
  if (!source.is_object()) {
    errors->Required(path, "must populate information for the given metric source");
    return;
  }
  const Path target = path.Child("target");
  if (type == "Resource" || type == "ContainerResource") {
    if (Str(source, "name").empty()) {
      errors->Required(path.Child("name"), "must specify a resource name");
    } else if (type == "ContainerResource") {
      ContainerResourceName(path.Child("name"), Str(source, "name"), errors);
    }
    if (type == "ContainerResource") {
      const std::string container = Str(source, "container");
      if (container.empty()) {
        errors->Required(path.Child("container"), "must specify a container");
      } else {
        Check(path.Child("container"), container, &IsDns1123Label, errors);
      }
    }
    Target(target, Get(source, "target"), true, errors);
    return;
  }
  if (type == "Object") {
    const Path described = path.Child("describedObject");
    TargetReference(described, Get(source, "describedObject"), false, errors);
  }
  const Path metric_path = path.Child("metric");
  const Json& identifier = Get(source, "metric");
  if (const std::string name = Str(identifier, "name"); name.empty()) {
    errors->Required(metric_path.Child("name"), "must specify a metric name");
  } else {
    Check(metric_path.Child("name"), name, &IsPathSegmentName, errors);
  }
  Target(target, Get(source, "target"), false, errors);
  if (type != "Pods" && !Has(Get(source, "target"), "value") &&
      !Has(Get(source, "target"), "averageValue")) {
    errors->Required(target.Child("averageValue"),
                     type == "Object" ? "must set either a target value or averageValue"
                                      : "must set either a target value for metric or a per-pod "
                                        "target");
  }
  if (type == "Pods" && !Has(Get(source, "target"), "averageValue")) {
    errors->Required(target.Child("averageValue"), "must specify a positive target averageValue");
  }
}

void ScalingRules(const Path& path, const Json& rules, FieldErrors* errors) {
  if (!rules.is_object()) {
    return;
  }
  const Json& window = Get(rules, "stabilizationWindowSeconds");
  if (window.is_number_integer()) {
    if (window.get<std::int64_t>() < 0) {
      errors->Invalid(path.Child("stabilizationWindowSeconds"), window,
                      "must be greater than or equal to zero");
    } else if (window.get<std::int64_t>() > 3600) {
      errors->Invalid(path.Child("stabilizationWindowSeconds"), window,
                      "must be less than or equal to 3600");
    }
  }
  Choice(path, rules, "selectPolicy", {"Disabled", "Max", "Min"}, errors);
  const Path policies = path.Child("policies");
  const auto& items = Items(rules, "policies");
  if (items.empty()) {
    errors->Required(policies, "must specify at least one Policy");
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Path at = policies.Index(i);
    const std::string type = Str(items[i], "type");
    if (type != "Percent" && type != "Pods") {
      errors->NotSupported(at.Child("type"), type, {"Percent", "Pods"});
    }
    for (const char* field : {"value", "periodSeconds"}) {
      const std::int64_t number = FindInt(items[i], {field});
      if (number <= 0) {
        errors->Invalid(at.Child(field), number, "must be greater than zero");
      }
    }
    if (const std::int64_t period = FindInt(items[i], {"periodSeconds"}); period > 1800) {
      errors->Invalid(at.Child("periodSeconds"), period, "must be less than or equal to 1800");
    }
  }
  const std::string tolerance = Str(rules, "tolerance");
  if (Quantity::ParseOrZero(tolerance).Sign() < 0) {
    errors->Invalid(path.Child("tolerance"), tolerance, kNotNegative);
  }
}

void Budget(const Path& path, const Json& value, FieldErrors* errors) {
  if (value.is_string()) {
    Check(path, value.get<std::string>(), &IsPercent, errors);
    const auto share = IntOrString::FromJson(&value);
    const auto scaled = share->Scaled(100, true);
    if (scaled.ok() && *scaled > 100) {
      errors->Invalid(path, value, "must not be greater than 100%");
    }
  } else {
    NotNegative(path, value, errors);
  }
}

}  // namespace

void HorizontalPodAutoscaler(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& min = Get(spec, "minReplicas");
  const std::int64_t max = FindInt(spec, {"maxReplicas"});
  if (min.is_number_integer() && min.get<std::int64_t>() < 1) {
    errors->Invalid(kSpec.Child("minReplicas"), min, "must be greater than or equal to 1");
  }
  if (max == 0) {
    errors->Required(kSpec.Child("maxReplicas"), "must be set and greater than 0");
  } else if (max < 0) {
    errors->Invalid(kSpec.Child("maxReplicas"), max, "must be greater than or equal to 1");
  }
  if (min.is_number_integer() && max < min.get<std::int64_t>()) {
    errors->Invalid(kSpec.Child("maxReplicas"), max,
                    "must be greater than or equal to `minReplicas`");
  }
  const Json& target = Get(spec, "scaleTargetRef");
  const Path target_path = kSpec.Child("scaleTargetRef");
  TargetReference(target_path, target, true, errors);
  const Path metrics = kSpec.Child("metrics");
  std::size_t index = 0;
  bool external = false;
  for (const Json& metric : Items(spec, "metrics")) {
    MetricSpec(metrics.Index(index++), metric, errors);
    const std::string type = Str(metric, "type");
    external |= type == "Object" || type == "External";
  }
  if (min.is_number_integer() && min.get<std::int64_t>() == 0 && !external) {
    errors->Forbidden(metrics,
                      "must specify at least one Object or External metric to support scaling to "
                      "zero replicas");
  }
  const Path behavior = kSpec.Child("behavior");
  const Path up = behavior.Child("scaleUp");
  ScalingRules(up, Get(Get(spec, "behavior"), "scaleUp"), errors);
  const Path down = behavior.Child("scaleDown");
  ScalingRules(down, Get(Get(spec, "behavior"), "scaleDown"), errors);
}

void HorizontalPodAutoscalerUpdate(const Json& object, const Json&, FieldErrors* errors) {
  HorizontalPodAutoscaler(object, errors);
}

// Judged in the form in which it is kept.
void OldAutoscaler(const Json& object, FieldErrors* errors) {
  Json stored = object;
  logic::AutoscalerToStorage(&stored);
  HorizontalPodAutoscaler(stored, errors);
}

void OldAutoscalerUpdate(const Json& object, const Json&, FieldErrors* errors) {
  OldAutoscaler(object, errors);
}

void PodDisruptionBudget(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const bool min = Has(spec, "minAvailable");
  const bool max = Has(spec, "maxUnavailable");
  if (min && max) {
    const auto shown = [&](const char* key) { return Dump(Get(spec, key)); };
    errors->InvalidShown(
        kSpec,
        "{\"MinAvailable\":" + shown("minAvailable") +
            ",\"Selector\":" + ShownSelector(Get(spec, "selector")) +
            ",\"MaxUnavailable\":" + shown("maxUnavailable") +
            ",\"UnhealthyPodEvictionPolicy\":" + shown("unhealthyPodEvictionPolicy") + "}",
        "minAvailable and maxUnavailable cannot be both set");
  }
  if (min) {
    Budget(kSpec.Child("minAvailable"), Get(spec, "minAvailable"), errors);
  }
  if (max) {
    Budget(kSpec.Child("maxUnavailable"), Get(spec, "maxUnavailable"), errors);
  }
  const Path selector = kSpec.Child("selector");
  LabelSelector(selector, Get(spec, "selector"), errors);
  Choice(kSpec, spec, "unhealthyPodEvictionPolicy", {"AlwaysAllow", "IfHealthyBudget"}, errors);
}

void PodDisruptionBudgetUpdate(const Json& object, const Json&, FieldErrors* errors) {
  PodDisruptionBudget(object, errors);
}

}  // namespace sublet::kube::validate
