// Topology: the domains of nodes by the levels of a Topology object. A node that lacks one of the
// labels is in no domain. Each change of the nodes makes the trees anew. What fits into a domain is
// in topology_capacity.h, which levels a constraint names in topology_levels.h, the order of trial
// in node_sets.h. Source: reference facts on KAI 3.7. Threads: one.
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
  bool exact = false;  // of what is asked: see JobRules::exact_capacity
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

// True when the node has a label for each level.
bool InTopology(const NodeSpec& node, const TopologySpec& spec);
TopologyTree BuildTree(State& state, const TopologySpec& spec);

class TopologyCache {
 public:
  // The tree of `name`, rebuilt when nodes changed; nullptr when no such Topology exists.
  TopologyTree* Find(State& state, const std::string& name);

 private:
  std::map<std::string, TopologyTree> trees_;
  std::uint64_t generation_ = 0;
};

}  // namespace sublet::scheduler
