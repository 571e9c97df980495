// PodDisruptionBudgets: how many of the selected pods may be evicted now.
// Source: kube-controller-manager pkg/controller/disruption.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeDisruptionController(const Context& context);

}  // namespace sublet::controllers
