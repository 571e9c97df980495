// Taint eviction: deletes the pods of nodes with NoExecute taints that they do not tolerate, at
// once or after their tolerationSeconds.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

// Source: kube-controller-manager pkg/controller/tainteviction.
std::unique_ptr<Controller> MakeTaintEvictionController(const Context& context);

}  // namespace sublet::controllers
