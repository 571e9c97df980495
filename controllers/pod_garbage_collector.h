// Pod GC: deletes pods nobody else will: those of nodes that no longer exist, unbound ones that are
// being deleted, those stuck on a node taken out of service, and the oldest finished ones beyond
// Settings::terminated_pods_max.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

// Source: kube-controller-manager pkg/controller/podgc.
std::unique_ptr<Controller> MakePodGarbageCollector(const Context& context);

}  // namespace sublet::controllers
