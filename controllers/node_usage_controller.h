// NodeUsage: publishes what is free on each node (allocatable minus the requests of every pod there
// that has not finished), so that tenants see how full the host is and nothing else of each other.
// Runs in `serve --role=host`, or alone against a real cluster (RunNodeUsage).
// Names: syncer/node_usage.h, CRD: manifests/host/nodeusage-crd.yaml.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeNodeUsageController(const Context& context);

// The controller alone, with the connection that kubeconfig flags or the pod's service account give
// (--kubeconfig, --context); until SIGTERM or SIGINT. Returns the exit code.
int RunNodeUsage(int argc, char** argv);

}  // namespace sublet::controllers
