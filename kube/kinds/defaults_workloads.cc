#include <nlohmann/json.hpp>

#include "kube/kinds/default_functions.h"
#include "kube/object.h"

namespace sublet::kube::defaults {

void Deployment(Json* object) {
  Json& spec = EnsureObject(object, "spec");
  SetIfAbsent(&spec, "replicas", 1);
  Json& strategy = EnsureObject(&spec, "strategy");
  SetIfEmpty(&strategy, "type", "RollingUpdate");
  if (FindString(strategy, {"type"}) == "RollingUpdate") {
    Json& rolling = EnsureObject(&strategy, "rollingUpdate");
    SetIfAbsent(&rolling, "maxUnavailable", "25%");
    SetIfAbsent(&rolling, "maxSurge", "25%");
  }
  SetIfAbsent(&spec, "revisionHistoryLimit", 10);
  SetIfAbsent(&spec, "progressDeadlineSeconds", 600);
}

void DaemonSet(Json* object) {
  Json& annotations = EnsureObject(&EnsureObject(object, "metadata"), "annotations");
  SetIfAbsent(&annotations, kTemplateGeneration, "0");
  Json& spec = EnsureObject(object, "spec");
  Json& strategy = EnsureObject(&spec, "updateStrategy");
  SetIfEmpty(&strategy, "type", "RollingUpdate");
  if (FindString(strategy, {"type"}) == "RollingUpdate") {
    Json& rolling = EnsureObject(&strategy, "rollingUpdate");
    SetIfAbsent(&rolling, "maxUnavailable", 1);
    SetIfAbsent(&rolling, "maxSurge", 0);
  }
  SetIfAbsent(&spec, "revisionHistoryLimit", 10);
}

void StatefulSet(Json* object) {
  Json& spec = EnsureObject(object, "spec");
  SetIfEmpty(&spec, "podManagementPolicy", "OrderedReady");
  Json& strategy = EnsureObject(&spec, "updateStrategy");
  if (FindString(strategy, {"type"}).empty()) {
    strategy["type"] = "RollingUpdate";
    EnsureObject(&strategy, "rollingUpdate");
  }
  if (Json* rolling = Find(strategy, {"rollingUpdate"});
      rolling != nullptr && FindString(strategy, {"type"}) == "RollingUpdate") {
    SetIfAbsent(rolling, "partition", 0);
  }
  Json& retention = EnsureObject(&spec, "persistentVolumeClaimRetentionPolicy");
  SetIfEmpty(&retention, "whenDeleted", "Retain");
  SetIfEmpty(&retention, "whenScaled", "Retain");
  SetIfAbsent(&spec, "replicas", 1);
  SetIfAbsent(&spec, "revisionHistoryLimit", 10);
  if (Json* claims = Find(spec, {"volumeClaimTemplates"});
      claims != nullptr && claims->is_array()) {
    for (Json& claim : *claims) {
      claim["apiVersion"] = "v1";
      claim["kind"] = "PersistentVolumeClaim";
    }
  }
}

void ReplicaSet(Json* object) { SetIfAbsent(&EnsureObject(object, "spec"), "replicas", 1); }

void Job(Json* object) {
  Json& spec = EnsureObject(object, "spec");
  if (Find(spec, {"completions"}) == nullptr && Find(spec, {"parallelism"}) == nullptr) {
    spec["completions"] = 1;
  }
  SetIfAbsent(&spec, "parallelism", 1);
  SetIfAbsent(&spec, "backoffLimit",
              Find(spec, {"backoffLimitPerIndex"}) != nullptr ? INT32_MAX : 6);
  const Json* labels = Find(spec, {"template", "metadata", "labels"});
  if (labels != nullptr && labels->is_object()) {
    const Json copy = *labels;
    if (const Json* own = LabelsOf(*object); own == nullptr || own->empty()) {
      EnsureObject(object, "metadata")["labels"] = copy;
    }
  }
  SetIfAbsent(&spec, "completionMode", "NonIndexed");
  SetIfAbsent(&spec, "suspend", false);
  SetIfAbsent(&spec, "podReplacementPolicy",
              Find(spec, {"podFailurePolicy"}) != nullptr ? "Failed" : "TerminatingOrFailed");
  SetIfAbsent(&spec, "manualSelector", false);
}

void CronJob(Json* object) {
  Json& spec = EnsureObject(object, "spec");
  SetIfEmpty(&spec, "concurrencyPolicy", "Allow");
  SetIfAbsent(&spec, "suspend", false);
  SetIfAbsent(&spec, "successfulJobsHistoryLimit", 3);
  SetIfAbsent(&spec, "failedJobsHistoryLimit", 1);
}

void PodFailureCondition(Json* pattern) { SetIfEmpty(pattern, "status", "True"); }

void HorizontalPodAutoscalerV1(Json* object) {
  SetIfAbsent(&EnsureObject(object, "spec"), "minReplicas", 1);
}

void HorizontalPodAutoscalerV2(Json* object) {
  Json& spec = EnsureObject(object, "spec");
  SetIfAbsent(&spec, "minReplicas", 1);
  if (const Json* metrics = Find(spec, {"metrics"}); metrics == nullptr || metrics->empty()) {
    spec["metrics"] = Json::array(
        {{{"type", "Resource"},
          {"resource",
           {{"name", "cpu"}, {"target", {{"type", "Utilization"}, {"averageUtilization", 80}}}}}}});
  }
  Json* behavior = Find(spec, {"behavior"});
  if (behavior == nullptr || !behavior->is_object()) {
    return;
  }
  Json& up = EnsureObject(behavior, "scaleUp");
  SetIfAbsent(&up, "stabilizationWindowSeconds", 0);
  SetIfAbsent(&up, "selectPolicy", "Max");
  SetIfAbsent(&up, "policies",
              Json::array({{{"type", "Pods"}, {"value", 4}, {"periodSeconds", 15}},
                           {{"type", "Percent"}, {"value", 100}, {"periodSeconds", 15}}}));
  Json& down = EnsureObject(behavior, "scaleDown");
  SetIfAbsent(&down, "selectPolicy", "Max");
  SetIfAbsent(&down, "policies",
              Json::array({{{"type", "Percent"}, {"value", 100}, {"periodSeconds", 15}}}));
}

}  // namespace sublet::kube::defaults
