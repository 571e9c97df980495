// DaemonSets: one pod on every node that fits, bound by the scheduler through node affinity.
// Source: kube-controller-manager pkg/controller/daemon.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeDaemonSetController(const Context& context);

}  // namespace sublet::controllers
