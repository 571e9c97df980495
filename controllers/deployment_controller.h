// Deployments: one ReplicaSet per pod template, rolled from the old to the new one.
// Source: kube-controller-manager pkg/controller/deployment.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeDeploymentController(const Context& context);

}  // namespace sublet::controllers
