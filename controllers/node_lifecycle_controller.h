// Node lifecycle: a node whose lease runs out is Unknown; conditions become taints, so that nothing
// new is placed on a node that is not ready, unreachable, under pressure or cordoned.
// Source: kube-controller-manager pkg/controller/nodelifecycle (taints by condition, lease monitor).
// Differs: pods on a lost node are not evicted by this controller yet; they keep running where they are
// and are shown as they were last seen.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeNodeLifecycleController(const Context& context);

// The taints of `node` that follow from its conditions, as an array. Pure.
kube::Json TaintsByCondition(const kube::Json& node);

}  // namespace sublet::controllers
