// Namespaces that are being deleted: empties them (pods first, the rest when no pod is left), says
// in conditions what holds them up, and takes the finalizer away at the end. Source:
// kube-controller-manager pkg/controller/namespace/deletion.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeNamespaceController(const Context& context);

}  // namespace sublet::controllers
