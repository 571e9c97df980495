// In which order the sets of nodes that a topology constraint allows are tried: finest level first,
// and within a level the most loaded domain first. Source: reference facts on KAI 3.7. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scheduler/topology.h"

namespace sublet::scheduler {

// Node sets to try, in order, for the sub group or pod set `name` of the job. One set with all of
// `nodes` when it has no constraint. Sets scores of a preferred level in the session.
std::vector<std::vector<NodeId>> NodeSets(Session& session, TopologyCache& cache, Job& job,
                                          const std::optional<TopologyConstraint>& constraint,
                                          const std::string& name, const std::vector<int>& pod_sets,
                                          const std::vector<TaskId>& tasks,
                                          const std::vector<NodeId>& nodes, bool report);

}  // namespace sublet::scheduler
