// HorizontalPodAutoscaler: autoscaling/v1 knows one number, the CPU target; stored is v2. What v1
// cannot say travels in annotations.
#include <nlohmann/json.hpp>

#include "kube/kinds/logic_functions.h"
#include "kube/object.h"

namespace sublet::kube::logic {
namespace {

constexpr std::string_view kMetrics = "autoscaling.alpha.kubernetes.io/metrics";
constexpr std::string_view kCurrentMetrics = "autoscaling.alpha.kubernetes.io/current-metrics";
constexpr std::string_view kConditions = "autoscaling.alpha.kubernetes.io/conditions";
constexpr std::string_view kBehavior = "autoscaling.alpha.kubernetes.io/behavior";

bool IsCpuUtilization(const Json& metric, std::string_view side) {
  return FindString(metric, {"type"}) == "Resource" &&
         FindString(metric, {"resource", "name"}) == "cpu" &&
         Find(metric, {"resource", side, "averageUtilization"}) != nullptr;
}

// Moves an annotation's JSON to `key` of `object`; a broken one is dropped.
Json TakeAnnotation(Json* object, std::string_view annotation) {
  const std::string text(AnnotationOf(*object, annotation));
  RemoveAnnotation(object, annotation);
  auto parsed = ParseJson(text);
  return parsed.ok() && !text.empty() ? std::move(parsed).value() : Json();
}

// Differs: the annotations hold v2's own spelling of metrics, not the older one that Kubernetes
// writes there; nothing but this pair of functions reads them.
void PutAnnotation(std::string_view annotation, const Json& value, Json* object) {
  if (!value.is_null() && !value.empty()) {
    SetAnnotation(object, annotation, Dump(value));
  }
}

// Splits a metric list into the one CPU utilisation v1 can say and the rest.
Json Rest(const Json* list, std::string_view side, Json* cpu) {
  Json rest = Json::array();
  if (list != nullptr && list->is_array()) {
    for (const Json& metric : *list) {
      if (cpu->is_null() && IsCpuUtilization(metric, side)) {
        *cpu = *Find(metric, {"resource", side, "averageUtilization"});
      } else {
        rest.push_back(metric);
      }
    }
  }
  return rest;
}

}  // namespace

void AutoscalerToStorage(Json* object) {
  (*object)["apiVersion"] = "autoscaling/v2";
  Json metrics = TakeAnnotation(object, kMetrics);
  Json current = TakeAnnotation(object, kCurrentMetrics);
  Json conditions = TakeAnnotation(object, kConditions);
  Json behavior = TakeAnnotation(object, kBehavior);
  Json& spec = EnsureObject(object, "spec");
  metrics = metrics.is_array() ? std::move(metrics) : Json::array();
  if (const Json* target = Find(spec, {"targetCPUUtilizationPercentage"})) {
    const Json cpu = {{"type", "Resource"},
                      {"resource",
                       {{"name", "cpu"},
                        {"target", {{"type", "Utilization"}, {"averageUtilization", *target}}}}}};
    metrics.insert(metrics.begin(), cpu);
    EraseMember(&spec, "targetCPUUtilizationPercentage");
  }
  if (!metrics.empty()) {
    spec["metrics"] = std::move(metrics);
  }
  if (behavior.is_object()) {
    spec["behavior"] = std::move(behavior);
  }
  Json& status = EnsureObject(object, "status");
  current = current.is_array() ? std::move(current) : Json::array();
  if (const Json* value = Find(status, {"currentCPUUtilizationPercentage"})) {
    current.insert(
        current.begin(),
        Json{{"type", "Resource"},
             {"resource", {{"name", "cpu"}, {"current", {{"averageUtilization", *value}}}}}});
    EraseMember(&status, "currentCPUUtilizationPercentage");
  }
  if (FindInt(status, {"currentReplicas"}) == 0) {
    EraseMember(&status, "currentReplicas");
  }
  status["currentMetrics"] = current.empty() ? Json() : std::move(current);
  if (conditions.is_array()) {
    status["conditions"] = std::move(conditions);
  }
}

void AutoscalerFromStorage(Json* object) {
  (*object)["apiVersion"] = "autoscaling/v1";
  Json target;
  Json current;
  const Json metrics = Rest(Find(*object, {"spec", "metrics"}), "target", &target);
  const Json statuses = Rest(Find(*object, {"status", "currentMetrics"}), "current", &current);
  const Json* behavior = Find(*object, {"spec", "behavior"});
  const Json* conditions = Find(*object, {"status", "conditions"});
  const Json behavior_copy = behavior == nullptr ? Json() : *behavior;
  const Json conditions_copy = conditions == nullptr ? Json() : *conditions;
  PutAnnotation(kMetrics, metrics, object);
  PutAnnotation(kCurrentMetrics, statuses, object);
  PutAnnotation(kConditions, conditions_copy, object);
  PutAnnotation(kBehavior, behavior_copy, object);
  Json& spec = EnsureObject(object, "spec");
  EraseMember(&spec, "metrics");
  EraseMember(&spec, "behavior");
  if (!target.is_null()) {
    spec["targetCPUUtilizationPercentage"] = std::move(target);
  }
  Json& status = EnsureObject(object, "status");
  EraseMember(&status, "currentMetrics");
  EraseMember(&status, "conditions");
  if (!current.is_null()) {
    status["currentCPUUtilizationPercentage"] = std::move(current);
  }
  status.emplace("currentReplicas", 0);
  status.emplace("desiredReplicas", 0);
}

}  // namespace sublet::kube::logic
