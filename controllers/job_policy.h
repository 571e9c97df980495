// What a Job's policies say about a failed pod and about success. Pure.
// Source: kube-controller-manager pkg/controller/job/pod_failure_policy.go, success_policy.go.
#pragma once

#include <optional>
#include <string>

#include "client/informer.h"
#include "controllers/job_indexes.h"
#include "kube/json.h"

namespace sublet::controllers {

enum class FailureAction { kCount, kIgnore, kFailJob, kFailIndex };
struct FailureVerdict {
  FailureAction action = FailureAction::kCount;
  std::string message;  // of kFailJob
};
// The first rule of spec.podFailurePolicy that matches decides.
FailureVerdict JudgeFailure(const kube::Json& job, const client::CachedObject& pod);

// The message of the condition when spec.successPolicy is met by these indexes.
std::optional<std::string> SuccessPolicyMet(const kube::Json& job, const IndexSet& succeeded);

}  // namespace sublet::controllers
