// The pod's status as kubelet would show it: phase, conditions, container statuses. Pure.
// Source: kubelet kubelet_pods.go (getPhase, convertToAPIContainerStatuses), status/generate.go.
#pragma once

#include <string>
#include <vector>

#include "kube/json.h"
#include "node/pod/decide.h"
#include "node/pod/plan.h"
#include "node/pod/state.h"

namespace sublet::node {

struct StatusContext {
  std::vector<std::string> host_ips;
  std::string runtime_name;  // "podman": the scheme of container IDs
  WallTime now{};
};

// The `status` member of the pod. `old_status` is what was shown last (its conditions keep their
// transition times and those of other owners stay; containers that the engine no longer has keep
// their last word); may be null.
kube::Json MakePodStatus(const PodPlan& plan, const PodRecord& record, const kube::Json& old_status,
                         const StatusContext& context);

// "back-off 10s restarting failed container=c pod=p_ns(uid)".
std::string CrashLoopMessage(const PodPlan& plan, const ContainerPlan& container, seconds backoff);

}  // namespace sublet::node
