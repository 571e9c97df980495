// Which nodes a DaemonSet's pods belong on, and what such a pod looks like. Pure.
// Source: kube-controller-manager pkg/controller/daemon/util.
#pragma once

#include <string>

#include "client/informer.h"
#include "kube/json.h"

namespace sublet::controllers {

struct DaemonFit {
  bool should_run = false;       // a pod should be made there
  bool should_continue = false;  // a pod that is there may stay
};
DaemonFit FitDaemon(const kube::Json& daemon_set, const kube::Json& node,
                    const client::CachedObject& cached_node);

// The pod for `node`, of template revision `revision`.
kube::Json DaemonPod(const kube::Json& daemon_set, const std::string& node,
                     const std::string& revision);

// The node a daemon pod is meant for: its binding, else the name its affinity asks for.
std::string DaemonNodeOf(const kube::Json& pod);

}  // namespace sublet::controllers
