#include "scheduler/topology.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "scheduler/filters.h"
#include "scheduler/messages.h"

namespace sublet::scheduler {

namespace {

const std::string kRoot = "root";

bool InTopology(const NodeSpec& node, const TopologySpec& spec) {
  return std::all_of(spec.levels.begin(), spec.levels.end(), [&](const std::string& level) {
    return FindLabel(node.labels, level) != nullptr;
  });
}

void AddTo(FreeAmounts* to, const FreeAmounts& what) {
  for (int i = 0; i < kDims; ++i) {
    to->fixed[i] += what.fixed[i];
  }
  for (const auto& [name, amount] : what.scalars) {
    to->scalars[name] += amount;
  }
}

// The largest of each amount over the batch, as KAI's test pods have it.
struct LargestPod {
  Fixed fixed{};
  std::map<std::string, std::int64_t> scalars;  // without MIG profiles
  std::int64_t devices = 0;
  double portion = 0;
  std::string error;
};

LargestPod FindLargest(const State& state, const std::vector<TaskId>& tasks) {
  LargestPod largest;
  std::int64_t gpus = 0;
  for (TaskId id : tasks) {
    const Request& request = state.task(id).shape->request;
    largest.fixed[kCpu] = std::max(largest.fixed[kCpu], request.cpu);
    largest.fixed[kMemory] = std::max(largest.fixed[kMemory], request.memory);
    for (const auto& [name, amount] : request.scalars) {
      if (name.compare(0, 15, "nvidia.com/mig-") != 0) {
        std::int64_t& most = largest.scalars[name];
        most = std::max(most, amount);
      }
    }
    const double portion = request.gpu == GpuKind::kFraction ? request.portion
                           : request.gpu_count > 0 && request.gpu == GpuKind::kWhole ? 1
                                                                                     : 0;
    if (largest.portion != 0 && portion != 0 && largest.portion != portion) {
      largest.error =
          "cannot calculate max resource for GpuResourceRequirements with different fractional "
          "portions";
    }
    if (state.task(id).shape->gpus > gpus) {
      gpus = state.task(id).shape->gpus;
      largest.devices = request.gpu_count;
      largest.portion = portion;
    }
  }
  largest.fixed[kPods] = 1;
  return largest;
}

int CopiesOnNode(const State& state, NodeId id, const LargestPod& pod, int tasks) {
  const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
  const Node& node = state.nodes[static_cast<std::size_t>(id)];
  if (pod.fixed[kCpu] == 0 && pod.fixed[kMemory] == 0 && pod.scalars.empty() && pod.devices == 0) {
    return tasks;
  }
  std::int64_t copies = std::numeric_limits<int>::max();
  for (int dim : {kCpu, kMemory, kPods}) {
    if (pod.fixed[dim] > 0) {
      copies = std::min(copies, (hot.idle[dim] + hot.releasing[dim]) / pod.fixed[dim]);
    }
  }
  for (const auto& [name, amount] : pod.scalars) {
    std::int64_t have = 0;
    for (const NodeScalar& scalar : node.scalars) {
      have = state.names.Name(scalar.name) == name ? scalar.idle + scalar.releasing : have;
    }
    copies = amount > 0 ? std::min(copies, have / amount) : copies;
  }
  if (pod.devices > 0) {
    std::int64_t devices =
        std::max<std::int64_t>(hot.idle[kGpu] + hot.releasing[kGpu], 0) / kDevice;
    const auto memory =
        static_cast<std::int64_t>(pod.portion * static_cast<double>(node.gpu_memory));
    for (const GpuGroup& group : node.groups) {
      devices += group.active + group.pipelined > 0 &&
                         node.gpu_memory - group.active - group.pipelined >= memory
                     ? 1
                     : 0;
    }
    copies = std::min(copies, devices / pod.devices);
  }
  return static_cast<int>(std::max<std::int64_t>(copies, 0));
}

bool Homogeneous(const State& state, const std::vector<TaskId>& tasks) {
  std::map<std::string, std::size_t> users;
  std::size_t gpu = 0;
  for (TaskId id : tasks) {
    const Shape& shape = *state.task(id).shape;
    for (const auto& [name, amount] : shape.request.scalars) {
      users[name] += name.compare(0, 15, "nvidia.com/mig-") == 0 ? tasks.size() : 1;
    }
    gpu += shape.gpus > 0 ? 1 : 0;
  }
  if (gpu != 0 && gpu != tasks.size()) {
    return false;
  }
  return std::all_of(users.begin(), users.end(),
                     [&](const auto& user) { return user.second % tasks.size() == 0; });
}

std::int64_t Cores(std::int64_t milli) { return (milli + 999) / 1000; }

// Largest share of the domain's free amounts that the batch takes.
double Ratio(const FreeAmounts& asked, const FreeAmounts& free) {
  constexpr double kAbsent = 1000;
  double ratio = 0;
  const auto consider = [&](std::int64_t want, std::int64_t have) {
    if (want > 0) {
      ratio = std::max(ratio,
                       have <= 0 ? kAbsent : static_cast<double>(want) / static_cast<double>(have));
    }
  };
  if (asked.fixed[kGpu] > 0) {
    const double have = static_cast<double>(free.fixed[kGpu]);
    ratio = std::max(ratio, have == 0 ? std::numeric_limits<double>::infinity()
                                      : static_cast<double>(asked.fixed[kGpu]) / have);
  }
  consider(Cores(asked.fixed[kCpu]), Cores(free.fixed[kCpu]));
  consider(asked.fixed[kMemory], free.fixed[kMemory]);
  for (const auto& [name, amount] : asked.scalars) {
    auto it = free.scalars.find(name);
    consider(amount, it == free.scalars.end() ? 0 : it->second);
  }
  return ratio;
}

JobFailure Shortage(const Job& job, const std::string& sub_group, const Domain& domain,
                    const FreeAmounts& asked) {
  std::vector<std::string> details;
  std::string message;
  const auto lacks = [&](const std::string& title, const std::string& want, const std::string& have,
                         const char* plural) {
    details.push_back(domain.id + " didn't have enough resource" + plural + ": " + title +
                      ", requested: " + want + ", available: " + have);
    message +=
        (message.empty() ? "" : ", ") + ("node-group(s) didn't have enough resources: " + title);
  };
  const auto text = [](std::int64_t value, double unit) {
    return Human(static_cast<double>(value), unit);
  };
  const Fixed& free = domain.free.fixed;
  if (asked.fixed[kGpu] > free[kGpu]) {
    lacks("GPUs", text(asked.fixed[kGpu], kDevice), text(free[kGpu], kDevice), "");
  }
  if (asked.fixed[kCpu] > free[kCpu]) {
    lacks("CPU cores", text(asked.fixed[kCpu], 1000), text(free[kCpu], 1000), "s");
  }
  if (asked.fixed[kMemory] > free[kMemory]) {
    lacks("memory", text(asked.fixed[kMemory], 1e9), text(free[kMemory], 1e9), "s");
  }
  for (const auto& [name, amount] : asked.scalars) {
    auto it = domain.free.scalars.find(name);
    const std::int64_t have = it == domain.free.scalars.end() ? 0 : it->second;
    if (have < amount) {
      lacks(name, std::to_string(amount), std::to_string(have), "");
    }
  }
  std::string detail = "<" + domain.id + ">: ";
  if (!sub_group.empty() && sub_group != "default") {
    detail += "subgroup " + sub_group + ": ";
  }
  for (std::size_t i = 0; i < details.size(); ++i) {
    detail += (i == 0 ? "" : ", ") + details[i];
  }
  (void)job;
  return {"Not enough resources for the workload", message, detail, kNone, -1};
}

// Returns true when the batch fits; else appends why.
bool DomainFits(const Job& job, const std::string& sub_group, const Domain& domain,
                const FreeAmounts& asked, int count, std::vector<JobFailure>* why) {
  if (domain.capacity != kCapacityUnknown) {
    if (domain.capacity >= count) {
      return true;
    }
    if (why != nullptr) {
      const std::string text = "node-group " + domain.id + " can allocate only " +
                               std::to_string(domain.capacity) + " of " + std::to_string(count) +
                               " required pods";
      const std::string sub =
          sub_group.empty() || sub_group == "default" ? "" : "subgroup " + sub_group + ": ";
      why->push_back({"Not enough resources for the workload", text,
                      "<" + domain.id + ">: " + sub + text, kNone, -1});
    }
    return false;
  }
  if (Ratio(asked, domain.free) <= 1.0) {
    return true;
  }
  if (why != nullptr) {
    why->push_back(Shortage(job, sub_group, domain, asked));
  }
  return false;
}

std::string NoMatchText(const TopologyTree& tree, const TopologyConstraint& constraint,
                        const Job& job, const std::string& sub_group, const std::string& suffix) {
  std::string text = "topology " + tree.spec.name + ", requirement " + constraint.required +
                     " couldn't be satisfied for job <" + job.ns + "/" + job.name + ">";
  if (!sub_group.empty() && sub_group != "default") {
    text += ", subgroup " + sub_group;
  }
  return suffix.empty() ? text : text + ": " + suffix;
}

}  // namespace

const std::string& TopologyTree::LevelName(int level) const {
  return level == 0 ? kRoot : spec.levels[static_cast<std::size_t>(level - 1)];
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

FreeAmounts SumRequests(const State& state, const std::vector<TaskId>& tasks) {
  FreeAmounts sum;
  sum.fixed[kGpu] = state.ClaimGpus(tasks);
  for (TaskId id : tasks) {
    const Task& task = state.task(id);
    sum.fixed[kCpu] += task.shape->request.cpu;
    sum.fixed[kMemory] += task.shape->request.memory;
    sum.fixed[kGpu] += task.shape->gpus;
    for (const auto& [name, amount] : task.shape->request.scalars) {
      sum.scalars[name] += amount;
    }
  }
  return sum;
}

std::string CountCapacity(State& state, TopologyTree& tree, int top,
                          const std::vector<TaskId>& tasks) {
  for (Domain& domain : tree.domains) {
    domain.capacity = kCapacityUnknown;
    domain.free = FreeAmounts{};
  }
  const bool count = Homogeneous(state, tasks);
  const LargestPod largest = count ? FindLargest(state, tasks) : LargestPod{};
  std::function<void(int)> visit = [&](int index) {
    Domain& domain = tree.domains[static_cast<std::size_t>(index)];
    domain.capacity = count ? 0 : kCapacityUnknown;
    if (domain.children.empty()) {
      for (NodeId id : domain.nodes) {
        const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
        for (int i = 0; i < kDims; ++i) {
          domain.free.fixed[i] += hot.idle[i] + hot.releasing[i];
        }
        for (const NodeScalar& scalar : state.nodes[static_cast<std::size_t>(id)].scalars) {
          domain.free.scalars[state.names.Name(scalar.name)] += scalar.idle + scalar.releasing;
        }
        domain.capacity +=
            count ? CopiesOnNode(state, id, largest, static_cast<int>(tasks.size())) : 0;
      }
      return;
    }
    for (int child : domain.children) {
      visit(child);
      Domain& below = tree.domains[static_cast<std::size_t>(child)];
      AddTo(&tree.domains[static_cast<std::size_t>(index)].free, below.free);
      tree.domains[static_cast<std::size_t>(index)].capacity += count ? below.capacity : 0;
    }
  };
  visit(top);
  return largest.error;
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
      if (DomainFits(job, sub_group, tree.domains[static_cast<std::size_t>(index)], asked, count,
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
    return Ratio(asked, tree.domains[static_cast<std::size_t>(child)].free);
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
  if (!DomainFits(job, name, top, asked, count, nullptr)) {
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
    std::vector<int> ordered;
    LevelDomains(*tree, common, LevelIndex(*tree, constraint.preferred), &ordered);
    std::map<NodeId, double>& scores = session.topology_scores[name];
    scores.clear();
    for (std::size_t i = 0; i < ordered.size(); ++i) {
      const double rank = static_cast<double>(i + 1) / static_cast<double>(ordered.size()) * 10;
      for (NodeId id : tree->domains[static_cast<std::size_t>(ordered[i])].nodes) {
        scores[id] = std::floor(rank) * 10'000;
      }
    }
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
  std::vector<std::vector<NodeId>> sets;
  const std::set<NodeId> inside(valid.begin(), valid.end());
  for (int index : BottomUp(*tree)) {
    if (std::find(fitting.begin(), fitting.end(), index) == fitting.end()) {
      continue;
    }
    std::vector<NodeId> set;
    for (NodeId id : tree->domains[static_cast<std::size_t>(index)].nodes) {
      if (inside.count(id) != 0) {
        set.push_back(id);
      }
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

}  // namespace sublet::scheduler
