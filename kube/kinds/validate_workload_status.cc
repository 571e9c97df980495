// What controllers may say in the status of the workloads they run.
// Source: k8s.io/kubernetes pkg/apis/apps/validation, pkg/apis/core/validation.
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/kinds/validate_status.h"

namespace sublet::kube::validate {
namespace {

void AllNotNegative(const Json& object, std::initializer_list<const char*> fields,
                    FieldErrors* errors) {
  for (const char* field : fields) {
    NotNegative(Get(object, "status"), field, kStatus, errors);
  }
}

// `field` counts some of what `of` counts.
void AtMost(const Json& object, const char* field, const char* of, std::string_view text,
            FieldErrors* errors) {
  const std::int64_t count = FindInt(object, {"status", field});
  if (count > FindInt(object, {"status", of})) {
    errors->Invalid(kStatus.Child(field), count, "cannot be greater than " + std::string(text));
  }
}

void OnlyRises(const Json& object, const Json& old, const char* field, FieldErrors* errors) {
  const std::int64_t now = FindInt(object, {"status", field});
  const bool was_there = Has(Get(old, "status"), field);
  if (was_there && (!Has(Get(object, "status"), field) || now < FindInt(old, {"status", field}))) {
    errors->Invalid(kStatus.Child(field), now, "cannot be decremented");
  }
}

}  // namespace

void DeploymentStatus(const Json& object, const Json& old, FieldErrors* errors) {
  AllNotNegative(
      object,
      {"observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
       "unavailableReplicas", "terminatingReplicas", "collisionCount"},
      errors);
  for (const char* field : {"updatedReplicas", "readyReplicas", "availableReplicas"}) {
    AtMost(object, field, "replicas", "status.replicas", errors);
  }
  AtMost(object, "availableReplicas", "readyReplicas", "readyReplicas", errors);
  OnlyRises(object, old, "collisionCount", errors);
}

void ReplicaSetStatus(const Json& object, const Json&, FieldErrors* errors) {
  AllNotNegative(object,
                 {"replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas",
                  "observedGeneration", "terminatingReplicas"},
                 errors);
  for (const char* field : {"fullyLabeledReplicas", "readyReplicas", "availableReplicas"}) {
    AtMost(object, field, "replicas", "status.replicas", errors);
  }
  AtMost(object, "availableReplicas", "readyReplicas", "readyReplicas", errors);
}

void DaemonSetStatus(const Json& object, const Json& old, FieldErrors* errors) {
  AllNotNegative(object,
                 {"currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled",
                  "numberReady", "observedGeneration", "updatedNumberScheduled", "numberAvailable",
                  "numberUnavailable", "collisionCount"},
                 errors);
  OnlyRises(object, old, "collisionCount", errors);
}

void StatefulSetStatus(const Json& object, const Json& old, FieldErrors* errors) {
  AllNotNegative(object,
                 {"replicas", "readyReplicas", "currentReplicas", "updatedReplicas",
                  "availableReplicas", "observedGeneration", "collisionCount"},
                 errors);
  for (const char* field :
       {"readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"}) {
    AtMost(object, field, "replicas", "status.replicas", errors);
  }
  AtMost(object, "availableReplicas", "readyReplicas", "status.readyReplicas", errors);
  OnlyRises(object, old, "collisionCount", errors);
}

}  // namespace sublet::kube::validate
