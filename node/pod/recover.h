// What the engine still has of our pods after a restart of the agent, by the labels of the
// containers. Source of truth for the records; the specifications come from the API server.
// Threads: any; blocks for the engine.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "node/pod/services.h"
#include "node/pod/state.h"

namespace sublet::node {

struct RecoveredPod {
  PodRecord record;
  std::string namespace_name;
  std::string name;
  seconds grace{30};
};

// By pod uid. Containers that belong to no run any more (created, never started) are removed.
// Errors: the engine's.
Result<std::map<std::string, RecoveredPod>> RecoverPods(ContainerEngine& engine,
                                                        const std::string& instance);

// A specification for a pod that only the engine knows: good enough to end it.
std::shared_ptr<const PodPlan> PlanForOrphan(const std::string& uid, const RecoveredPod& pod);

}  // namespace sublet::node
