// Node lifecycle: a node whose lease runs out is Unknown; conditions become taints, so that nothing
// new is placed on a node that is not ready, unreachable, under pressure or cordoned. A lost node
// gets its NoExecute taint when it is its turn (zone_evictions.h); the taint eviction controller
// then takes its pods. Meanwhile they are not ready. Source: kube-controller-manager
// pkg/controller/nodelifecycle (taints by condition, lease monitor).
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeNodeLifecycleController(const Context& context);

// The taints of `node` that follow from its conditions, as an array. Pure.
kube::Json TaintsByCondition(const kube::Json& node);

}  // namespace sublet::controllers
