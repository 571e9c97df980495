// How kinds of owners group their pods, between the files of the grouper; nobody else includes
// this. Threads: pure, any.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kube/object.h"
#include "scheduler/service/pod_grouper.h"

namespace sublet::scheduler::grouping {

// A plan named after the owner, which also owns the group.
GroupPlan PerOwner(const kube::Json& owner, std::int64_t min_member, const char* priority);
// The sum of replicas of a map {name: {replicas}} of replica specs (Kubeflow), or its override.
std::int64_t KubeflowMinimum(const kube::Json& job, const char* specs);
// A topologyConstraint, or null when no level is named.
kube::Json Constraint(const std::string& topology, const std::string& required,
                      const std::string& preferred);

// pod_grouper_gangs.cc: gangs of several sub groups.
GroupPlan PyTorchPlan(const kube::Json& pod, const kube::Json& job);
GroupPlan RayPlan(const kube::Json& pod, const kube::Json& top);
GroupPlan LeaderWorkerSetPlan(const kube::Json& pod, const kube::Json& set);
GroupPlan GrovePlan(const kube::Json& pod, const kube::Json& gang);

}  // namespace sublet::scheduler::grouping
