#include "scheduler/topology.h"

#include <algorithm>

namespace sublet::scheduler {

namespace {

const std::string kRoot = "root";

}  // namespace

const std::string& TopologyTree::LevelName(int level) const {
  return level == 0 ? kRoot : spec.levels[static_cast<std::size_t>(level - 1)];
}

bool InTopology(const NodeSpec& node, const TopologySpec& spec) {
  return std::all_of(spec.levels.begin(), spec.levels.end(), [&](const std::string& level) {
    return FindLabel(node.labels, level) != nullptr;
  });
}

TopologyTree BuildTree(State& state, const TopologySpec& spec) {
  TopologyTree tree;
  tree.spec = spec;
  tree.by_level.resize(spec.levels.size() + 1);
  tree.domains.push_back({kRoot, 0, {}, {}, kCapacityUnknown, {}});
  tree.by_level[0][kRoot] = 0;
  for (NodeId id : state.NodesByName()) {
    const NodeSpec& node = state.nodes[static_cast<std::size_t>(id)].spec;
    if (!InTopology(node, spec)) {
      continue;
    }
    tree.domains[0].nodes.push_back(id);
    int above = 0;
    std::string path;
    for (std::size_t level = 1; level <= spec.levels.size(); ++level) {
      path += (path.empty() ? "" : ".") + *FindLabel(node.labels, spec.levels[level - 1]);
      auto [it, added] = tree.by_level[level].emplace(path, static_cast<int>(tree.domains.size()));
      if (added) {
        tree.domains[static_cast<std::size_t>(above)].children.push_back(it->second);
        tree.domains.push_back({path, static_cast<int>(level), {}, {}, kCapacityUnknown, {}});
      }
      above = it->second;
      tree.domains[static_cast<std::size_t>(above)].nodes.push_back(id);
    }
  }
  return tree;
}

TopologyTree* TopologyCache::Find(State& state, const std::string& name) {
  if (generation_ != state.node_generation) {
    trees_.clear();
    generation_ = state.node_generation;
  }
  auto it = trees_.find(name);
  if (it == trees_.end()) {
    auto spec = state.topologies.find(name);
    if (spec == state.topologies.end()) {
      return nullptr;
    }
    it = trees_.emplace(name, BuildTree(state, spec->second)).first;
  }
  return &it->second;
}

}  // namespace sublet::scheduler
