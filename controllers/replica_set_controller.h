// ReplicaSets and ReplicationControllers: keep a number of pods. One implementation for both kinds.
// Source: kube-controller-manager pkg/controller/replicaset, pkg/controller/replication.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeReplicaSetController(const Context& context);
std::unique_ptr<Controller> MakeReplicationController(const Context& context);

}  // namespace sublet::controllers
