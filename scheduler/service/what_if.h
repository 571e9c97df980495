// WhatIf: what would come of a manifest. Workloads are turned into the pods their controllers would
// make, grouped as the pod grouper would group them, and played out on a copy of the engine.
// Threads: pure, any.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "scheduler/simulation.h"

namespace sublet::scheduler {

struct WhatIfContext {
  std::vector<Profile> profiles;
  std::function<std::optional<int>(const std::string& priority_class)> priority;
};

// `objects`: the documents of the manifest (a List is taken apart). Pods, Deployments, ReplicaSets,
// StatefulSets, Jobs, CronJobs and every kind with spec.template; Queue, PodGroup, Topology and
// Node objects are added or changed. Returns {pods: [{name, node | why}], evicted: [...], others:
// [...], cycles, settled}. Errors: BadRequest (nothing of it makes pods or changes the cluster;
// more than 10,000 pods).
Result<kube::Json> WhatIf(const WhatIfContext& context, Snapshot snapshot,
                          const std::vector<kube::Json>& objects, Millis now);

}  // namespace sublet::scheduler
