// StatefulSets: pods with stable names and storage, created, updated and deleted in order.
// Source: kube-controller-manager pkg/controller/statefulset.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeStatefulSetController(const Context& context);

}  // namespace sublet::controllers
