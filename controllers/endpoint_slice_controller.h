// EndpointSlices of Services with a selector, and slices mirrored from Endpoints that somebody
// wrote by hand for a Service without one. Source: kube-controller-manager
// pkg/controller/endpointslice, endpointslicemirroring.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeEndpointSliceController(const Context& context);
std::unique_ptr<Controller> MakeEndpointSliceMirroringController(const Context& context);

}  // namespace sublet::controllers
