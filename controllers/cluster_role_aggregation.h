// ClusterRole aggregation: the rules of a ClusterRole with an aggregationRule are those of all
// ClusterRoles its selectors match.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

// Source: kube-controller-manager pkg/controller/clusterroleaggregation.
std::unique_ptr<Controller> MakeClusterRoleAggregation(const Context& context);

}  // namespace sublet::controllers
