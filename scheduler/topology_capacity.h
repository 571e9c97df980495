// How much of a pending batch fits into each domain of a topology: by copies of its largest pod
// where all its pods are alike, else by the sum of what they ask for. Source: reference facts on
// KAI 3.7. Threads: one.
#pragma once

#include <string>
#include <vector>

#include "scheduler/topology.h"

namespace sublet::scheduler {

// What the batch asks for together.
FreeAmounts SumRequests(const State& state, const std::vector<TaskId>& tasks);
// Sets capacity and free amounts of `domain` and everything below it for the batch.
// Returns "" or why the batch cannot be counted.
std::string CountCapacity(State& state, TopologyTree& tree, int domain,
                          const std::vector<TaskId>& tasks);
// Largest share of the domain's free amounts that the batch takes; above 1 it does not fit.
double LoadRatio(const FreeAmounts& asked, const FreeAmounts& free);
// True when the `count` pods that ask for `asked` fit; else, unless `why` is nullptr, appends why,
// which names `sub_group`.
bool DomainFits(const std::string& sub_group, const Domain& domain, const FreeAmounts& asked,
                int count, std::vector<JobFailure>* why);

}  // namespace sublet::scheduler
