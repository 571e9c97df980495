// Endpoints of Services with a selector, in the old form (one object, at most 1,000 addresses).
// Source: kube-controller-manager pkg/controller/endpoint.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeEndpointsController(const Context& context);

}  // namespace sublet::controllers
