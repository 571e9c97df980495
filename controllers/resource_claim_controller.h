// Resource claims of dynamic resource allocation: made from a ResourceClaimTemplate for a pod that
// names one, taken from pods that ended, deallocated when nobody uses them, and let go when they are
// being deleted. Source: kube-controller-manager pkg/controller/resourceclaim.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeResourceClaimController(const Context& context);

}  // namespace sublet::controllers
