// Topology: domains of nodes by the levels of a Topology object, how much of a pending batch fits
// in each, and in which order domains are tried: finest level first, and within a level the most
// loaded domain first. A node that lacks one of the labels is in no domain. Source: reference facts
// on KAI 3.7. Threads: one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/session.h"

namespace sublet::scheduler {

constexpr int kCapacityUnknown = -1;

struct FreeAmounts {
  Fixed fixed{};
  std::map<std::string, std::int64_t> scalars;
};

struct Domain {
  std::string id;  // label values from coarse to fine, joined by "."
  int level = 0;   // 0 = root, else index of the level + 1
  std::vector<int> children;
  std::vector<NodeId> nodes;        // by name
  int capacity = kCapacityUnknown;  // copies of the largest pod that fit
  FreeAmounts free;
};

struct TopologyTree {
  TopologySpec spec;
  std::vector<Domain> domains;                       // [0] = root
  std::vector<std::map<std::string, int>> by_level;  // [level] id -> index
  const std::string& LevelName(int level) const;
};

TopologyTree BuildTree(State& state, const TopologySpec& spec);
// Sets capacity and free amounts of `domain` and everything below it for the batch.
// Returns "" or why the batch cannot be counted.
std::string CountCapacity(State& state, TopologyTree& tree, int domain,
                          const std::vector<TaskId>& tasks);

// Levels to try, finest first; 0 stands for the root. Error text in *error.
std::vector<int> RelevantLevels(const TopologyTree& tree, const TopologyConstraint& constraint,
                                const std::string& sub_group, std::string* error);
// Domains that can take the batch, level by level; failures are appended when there is none.
std::vector<int> AllocatableDomains(const State& state, const TopologyTree& tree, const Job& job,
                                    const TopologyConstraint& constraint,
                                    const std::string& sub_group, const std::vector<int>& pod_sets,
                                    const FreeAmounts& asked, int count,
                                    std::vector<JobFailure>* failures, std::string* error);
FreeAmounts SumRequests(const State& state, const std::vector<TaskId>& tasks);

class TopologyCache {
 public:
  // The tree of `name`, rebuilt when nodes changed; nullptr when no such Topology exists.
  TopologyTree* Find(State& state, const std::string& name);

 private:
  std::map<std::string, TopologyTree> trees_;
  std::uint64_t generation_ = 0;
};

// Node sets to try, in order, for the sub group or pod set `name` of the job. One set with all of
// `nodes` when it has no constraint. Sets scores of a preferred level in the session.
std::vector<std::vector<NodeId>> NodeSets(Session& session, TopologyCache& cache, Job& job,
                                          const std::optional<TopologyConstraint>& constraint,
                                          const std::string& name, const std::vector<int>& pod_sets,
                                          const std::vector<TaskId>& tasks,
                                          const std::vector<NodeId>& nodes, bool report);

}  // namespace sublet::scheduler
