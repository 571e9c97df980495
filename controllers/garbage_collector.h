// Garbage collector: deletes objects whose owners are all gone, and carries out foreground and
// orphan deletion, over every kind that can be deleted, those of CRDs included. Source:
// kube-controller-manager pkg/controller/garbagecollector.
//
// Differs: upstream holds a node for every object of the cluster; here only objects that name
// owners or are being deleted have one, and whether an owner exists is asked from the server once
// per owner.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeGarbageCollector(const Context& context);

}  // namespace sublet::controllers
