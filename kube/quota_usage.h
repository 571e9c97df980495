// What an object takes from a ResourceQuota.
// Threads: any; pure functions.
// Source: k8s.io/kubernetes pkg/quota/v1/evaluator/core, k8s.io/apiserver pkg/quota/v1/generic.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"
#include "kube/pod_resources.h"

namespace sublet::kube {

// Everything the object counts as, by quota resource name ("pods", "requests.cpu",
// "count/deployments.apps"). Terminated pods take nothing but their count/ entry.
ResourceAmounts QuotaUsage(std::string_view group, std::string_view plural,
                           const kube::Json& object);

// True when the quota's scopes and scopeSelector take in the object. Only pods and claims have
// scopes.
bool MatchesScopes(const kube::Json& quota, std::string_view plural, const kube::Json& object);

// Compute resources that quotas on `limited` demand of every container of the pod and some
// container does not name: "limits.cpu for: c1,c2". Empty when nothing is missing.
std::string MissingResources(const kube::Json& pod, const ResourceAmounts& limited);

}  // namespace sublet::kube
