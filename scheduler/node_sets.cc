#include "scheduler/node_sets.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "scheduler/topology_capacity.h"
#include "scheduler/topology_levels.h"

namespace sublet::scheduler {

namespace {

// The finest domain that holds all nodes of the set, not finer than the preferred level.
int CommonDomain(const State& state, const TopologyTree& tree, const std::vector<NodeId>& nodes,
                 const std::string& preferred) {
  int at = 0;
  std::string path;
  for (std::size_t level = 1; level <= tree.spec.levels.size() && !nodes.empty(); ++level) {
    const std::string& key = tree.spec.levels[level - 1];
    const std::string& value =
        *FindLabel(state.nodes[static_cast<std::size_t>(nodes[0])].spec.labels, key);
    if (value.empty() || !std::all_of(nodes.begin(), nodes.end(), [&](NodeId id) {
          return *FindLabel(state.nodes[static_cast<std::size_t>(id)].spec.labels, key) == value;
        })) {
      break;
    }
    path += (path.empty() ? "" : ".") + value;
    at = tree.by_level[level].at(path);
    if (key == preferred) {
      break;
    }
  }
  return at;
}

// Most loaded first, below `index` down to level `deepest`.
void SortChildren(TopologyTree& tree, int index, int deepest, const FreeAmounts& asked) {
  std::vector<int>& children = tree.domains[static_cast<std::size_t>(index)].children;
  const auto ratio = [&](int child) {
    return LoadRatio(asked, tree.domains[static_cast<std::size_t>(child)].free);
  };
  std::map<int, double> ratios;
  for (int child : children) {
    ratios[child] = ratio(child);
  }
  std::sort(children.begin(), children.end(), [&](int a, int b) {
    return ratios[a] != ratios[b] ? ratios[a] > ratios[b]
                                  : tree.domains[static_cast<std::size_t>(a)].id <
                                        tree.domains[static_cast<std::size_t>(b)].id;
  });
  if (tree.domains[static_cast<std::size_t>(index)].level == deepest) {
    return;
  }
  for (int child : std::vector<int>(children)) {
    SortChildren(tree, child, deepest, asked);
  }
}

void LevelDomains(const TopologyTree& tree, int index, int level, std::vector<int>* out) {
  const Domain& domain = tree.domains[static_cast<std::size_t>(index)];
  if (domain.level == level) {
    out->push_back(index);
    return;
  }
  for (int child : domain.children) {
    LevelDomains(tree, child, level, out);
  }
}

std::vector<int> BottomUp(const TopologyTree& tree) {
  std::vector<int> order{0};
  std::vector<std::vector<int>> levels;
  while (!order.empty()) {
    std::vector<int> next;
    for (int index : order) {
      const auto& children = tree.domains[static_cast<std::size_t>(index)].children;
      next.insert(next.end(), children.begin(), children.end());
    }
    levels.push_back(std::move(order));
    order = std::move(next);
  }
  for (auto it = levels.rbegin(); it != levels.rend(); ++it) {
    order.insert(order.end(), it->begin(), it->end());
  }
  return order;
}

// A level may be named by its alias.
TopologyConstraint WithLabels(const TopologySpec& spec, TopologyConstraint constraint) {
  for (std::size_t i = 0; i < std::min(spec.aliases.size(), spec.levels.size()); ++i) {
    for (std::string* level : {&constraint.required, &constraint.preferred}) {
      if (!level->empty() && *level == spec.aliases[i]) {
        *level = spec.levels[i];
      }
    }
  }
  return constraint;
}

int LevelIndex(const TopologyTree& tree, const std::string& name) {
  const auto& levels = tree.spec.levels;
  auto it = std::find(levels.begin(), levels.end(), name);
  return it == levels.end() ? -1 : static_cast<int>(it - levels.begin()) + 1;
}

// The nodes of a preferred level score by the rank of their domain.
void ScorePreferred(const TopologyTree& tree, int top, const std::string& preferred,
                    std::map<NodeId, double>* scores) {
  std::vector<int> ordered;
  LevelDomains(tree, top, LevelIndex(tree, preferred), &ordered);
  scores->clear();
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const double rank = static_cast<double>(i + 1) / static_cast<double>(ordered.size()) * 10;
    for (NodeId id : tree.domains[static_cast<std::size_t>(ordered[i])].nodes) {
      (*scores)[id] = std::floor(rank) * 10'000;
    }
  }
}

// The nodes of each fitting domain that are among `valid`, finest level first.
std::vector<std::vector<NodeId>> InOrderOfTrial(const TopologyTree& tree,
                                                const std::vector<int>& fitting,
                                                const std::vector<NodeId>& valid) {
  std::vector<std::vector<NodeId>> sets;
  const std::set<NodeId> inside(valid.begin(), valid.end());
  for (int index : BottomUp(tree)) {
    if (std::find(fitting.begin(), fitting.end(), index) == fitting.end()) {
      continue;
    }
    std::vector<NodeId> set;
    for (NodeId id : tree.domains[static_cast<std::size_t>(index)].nodes) {
      if (inside.count(id) != 0) {
        set.push_back(id);
      }
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

}  // namespace

std::vector<std::vector<NodeId>> NodeSets(Session& session, TopologyCache& cache, Job& job,
                                          const std::optional<TopologyConstraint>& wanted,
                                          const std::string& name, const std::vector<int>& pod_sets,
                                          const std::vector<TaskId>& tasks,
                                          const std::vector<NodeId>& nodes, bool report) {
  State& state = session.state;
  if (!wanted.has_value() || wanted->topology.empty() || !session.profile.topology) {
    return {nodes};
  }
  const auto fail = [&](JobFailure failure) {
    if (report) {
      job.failures.push_back(std::move(failure));
    }
    return std::vector<std::vector<NodeId>>{};
  };
  TopologyTree* tree = cache.Find(state, wanted->topology);
  if (tree == nullptr) {
    return fail({"PodSchedulingErrors",
                 "Requested topology " + wanted->topology + " does not exist", "", kNone, -1});
  }
  if (tasks.empty()) {
    return {nodes};
  }
  const TopologyConstraint constraint = WithLabels(tree->spec, *wanted);
  std::vector<NodeId> valid;
  for (NodeId id : nodes) {
    if (InTopology(state.nodes[static_cast<std::size_t>(id)].spec, tree->spec)) {
      valid.push_back(id);
    }
  }
  const int common = CommonDomain(state, *tree, valid, constraint.preferred);
  if (std::string error = CountCapacity(state, *tree, common, tasks); !error.empty()) {
    return fail({"PodSchedulingErrors", error, "", kNone, -1});
  }
  const FreeAmounts asked = SumRequests(state, tasks);
  const int count = static_cast<int>(tasks.size());
  const Domain& top = tree->domains[static_cast<std::size_t>(common)];
  if (!DomainFits(name, top, asked, count, nullptr)) {
    const std::string where = common == 0 ? "the cluster" : top.id;
    return fail({"PodSchedulingErrors",
                 NoMatchText(*tree, constraint, job, name,
                             "not enough resources in " + where + " to allocate the job"),
                 "", kNone, -1});
  }
  const std::string& deepest =
      constraint.preferred.empty() ? constraint.required : constraint.preferred;
  if (!deepest.empty()) {
    SortChildren(*tree, common, LevelIndex(*tree, deepest), asked);
  }
  if (!constraint.preferred.empty()) {
    ScorePreferred(*tree, common, constraint.preferred, &session.topology_scores[name]);
  }
  std::vector<JobFailure> failures;
  std::string error;
  const std::vector<int> fitting = AllocatableDomains(state, *tree, job, constraint, name, pod_sets,
                                                      asked, count, &failures, &error);
  if (!error.empty()) {
    return fail({"PodSchedulingErrors", error, "", kNone, -1});
  }
  if (report) {
    job.failures.insert(job.failures.end(), failures.begin(), failures.end());
  }
  return InOrderOfTrial(*tree, fitting, valid);
}

}  // namespace sublet::scheduler
