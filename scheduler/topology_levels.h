// Which levels of a topology a constraint allows, and which of their domains can take a batch that
// topology_capacity.h counted. Source: reference facts on KAI 3.7. Threads: one.
#pragma once

#include <string>
#include <vector>

#include "scheduler/topology.h"

namespace sublet::scheduler {

// Levels to try, finest first; 0 stands for the root. Error text in *error.
std::vector<int> RelevantLevels(const TopologyTree& tree, const TopologyConstraint& constraint,
                                const std::string& sub_group, std::string* error);
// Domains that can take the batch, level by level; failures are appended when there is none.
std::vector<int> AllocatableDomains(const State& state, const TopologyTree& tree, const Job& job,
                                    const TopologyConstraint& constraint,
                                    const std::string& sub_group, const std::vector<int>& pod_sets,
                                    const FreeAmounts& asked, int count,
                                    std::vector<JobFailure>* failures, std::string* error);
// What a job is told when no domain satisfies its constraint; `suffix` may be empty.
std::string NoMatchText(const TopologyTree& tree, const TopologyConstraint& constraint,
                        const Job& job, const std::string& sub_group, const std::string& suffix);

}  // namespace sublet::scheduler
