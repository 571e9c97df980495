#include "scheduler/topology_levels.h"

#include <algorithm>
#include <functional>
#include <set>

#include "scheduler/topology_capacity.h"

namespace sublet::scheduler {

std::string NoMatchText(const TopologyTree& tree, const TopologyConstraint& constraint,
                        const Job& job, const std::string& sub_group, const std::string& suffix) {
  std::string text = "topology " + tree.spec.name + ", requirement " + constraint.required +
                     " couldn't be satisfied for job <" + job.ns + "/" + job.name + ">";
  if (!sub_group.empty() && sub_group != "default") {
    text += ", subgroup " + sub_group;
  }
  return suffix.empty() ? text : text + ": " + suffix;
}

std::vector<int> RelevantLevels(const TopologyTree& tree, const TopologyConstraint& constraint,
                                const std::string& sub_group, std::string* error) {
  if (constraint.required.empty() && constraint.preferred.empty()) {
    *error = "no topology constraints were found for subgroup " + sub_group +
             ", with topology name " + tree.spec.name;
    return {};
  }
  std::vector<int> levels;
  bool required = false;
  bool preferred = false;
  for (int level = static_cast<int>(tree.spec.levels.size()); level >= 0 && !required; --level) {
    const std::string& name = tree.LevelName(level);
    preferred = preferred || name == constraint.preferred;
    required = required || name == constraint.required;
    if (preferred || required) {
      levels.push_back(level);
    }
  }
  const auto missing = [&](const std::string& level, const char* kind) {
    const std::string who = sub_group == "default" ? "workload" : "sub-group " + sub_group;
    *error = "topology constraint error: " + who + " specified '" + level + "' as the " + kind +
             " topology constraint level, but the topology tree '" + tree.spec.name +
             "' does not contain a level with this name";
    return std::vector<int>{};
  };
  if (!constraint.required.empty() && !required) {
    return missing(constraint.required, "required");
  }
  if (!constraint.preferred.empty() && !preferred) {
    return missing(constraint.preferred, "preferred");
  }
  return levels;
}

std::vector<int> AllocatableDomains(const State& state, const TopologyTree& tree, const Job& job,
                                    const TopologyConstraint& constraint,
                                    const std::string& sub_group, const std::vector<int>& pod_sets,
                                    const FreeAmounts& asked, int count,
                                    std::vector<JobFailure>* failures, std::string* error) {
  const std::vector<int> levels = RelevantLevels(tree, constraint, sub_group, error);
  if (!error->empty()) {
    return {};
  }
  // Nodes that already run pods of the group: with a required level the rest must join them. Differs:
  // in its victim searches KAI looks at the waiting pods alone, and evicts for places outside of the
  // level that its next cycle then refuses.
  std::set<NodeId> occupied;
  for (int set : pod_sets) {
    for (TaskId id : job.pod_sets[static_cast<std::size_t>(set)].tasks) {
      if (ActiveAllocated(state.task(id).status)) {
        occupied.insert(state.task(id).node);
      }
    }
  }
  const bool bound = !occupied.empty() && !constraint.required.empty();
  std::set<int> allowed;
  if (bound) {
    std::function<void(int)> allow = [&](int index) {
      allowed.insert(index);
      for (int child : tree.domains[static_cast<std::size_t>(index)].children) {
        allow(child);
      }
    };
    for (const auto& [id, index] : tree.by_level[static_cast<std::size_t>(levels.back())]) {
      const auto& nodes = tree.domains[static_cast<std::size_t>(index)].nodes;
      if (std::any_of(nodes.begin(), nodes.end(),
                      [&](NodeId node) { return occupied.count(node) != 0; })) {
        allow(index);
      }
    }
  }
  std::vector<int> fitting;
  std::vector<JobFailure> top;
  for (int level : levels) {
    for (const auto& [id, index] : tree.by_level[static_cast<std::size_t>(level)]) {
      if (bound && allowed.count(index) == 0) {
        continue;
      }
      if (DomainFits(sub_group, tree.domains[static_cast<std::size_t>(index)], asked, count,
                     level == levels.back() ? &top : nullptr)) {
        fitting.push_back(index);
      }
    }
  }
  if (fitting.empty()) {
    failures->insert(failures->end(), top.begin(), top.end());
    failures->push_back(
        {"PodSchedulingErrors", NoMatchText(tree, constraint, job, sub_group, ""), "", kNone, -1});
  }
  return fitting;
}

}  // namespace sublet::scheduler
