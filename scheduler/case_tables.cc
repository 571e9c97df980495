// The unit tables (scheduler/cases.h): each row is one call of a function of shares.h,
// min_runtime.h or topology.h.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "scheduler/case_loader.h"
#include "scheduler/cases.h"
#include "scheduler/min_runtime.h"
#include "scheduler/node_sets.h"
#include "scheduler/topology_capacity.h"
#include "scheduler/topology_levels.h"

namespace sublet::scheduler {

namespace {

using kube::Json;

constexpr const char* kNames[] = {"cpu", "memory", "gpu"};

std::string Text(const Json& object, const char* key) {
  return object.contains(key) && object.at(key).is_string() ? object.at(key).get<std::string>()
                                                            : "";
}

Amounts AmountsFrom(const Json& object) {
  Amounts amounts{};
  for (int i = 0; i < kShareDims; ++i) {
    amounts[i] = object.value(kNames[i], 0.0);
  }
  return amounts;
}

QueueShare QueueFrom(const Json& object) {
  QueueShare queue;
  queue.name = Text(object, "name");
  queue.priority = object.value("priority", 100);
  queue.created = object.value("createdOrder", Millis{0});
  for (int i = 0; i < kShareDims; ++i) {
    if (!object.contains(kNames[i])) {
      continue;
    }
    const Json& from = object.at(kNames[i]);
    ResourceShare& share = queue.r[i];
    share.deserved = from.value("deserved", 0.0);
    share.limit = from.value("limit", 0.0);
    share.weight = from.value("weight", 0.0);
    share.request = from.value("request", 0.0);
    share.allocated = from.value("allocated", 0.0);
    share.allocated_np = from.value("allocatedNonPreemptible", 0.0);
    share.fair_share = from.value("fairShare", 0.0);
    share.usage = from.value("usage", 0.0);
  }
  return queue;
}

struct QueueSet {
  std::vector<QueueShare> queues;
  std::vector<QueueShare*> pointers;
  std::map<std::string, int> index;
  std::vector<std::vector<int>> children;
  std::vector<int> roots;

  explicit QueueSet(const Json& list) {
    for (const Json& object : list) {
      index[Text(object, "name")] = static_cast<int>(queues.size());
      queues.push_back(QueueFrom(object));
    }
    children.resize(queues.size());
    for (std::size_t i = 0; i < queues.size(); ++i) {
      pointers.push_back(&queues[i]);
      const std::string parent = Text(list[i], "parent");
      const auto it = index.find(parent);
      if (it != index.end()) {
        queues[i].parent = it->second;
        children[static_cast<std::size_t>(it->second)].push_back(static_cast<int>(i));
      } else {
        roots.push_back(static_cast<int>(i));
      }
    }
  }
  int At(const std::string& name) const {
    const auto it = index.find(name);
    return it == index.end() ? -1 : it->second;
  }
};

bool Near(double a, double b) {
  return a == b || std::fabs(a - b) <= 1e-9 * std::max(1.0, std::max(std::fabs(a), std::fabs(b)));
}

// Collects differences of one row.
class Row {
 public:
  explicit Row(std::vector<std::string>* problems) : problems_(problems) {}
  void Same(const std::string& what, const Json& want, const Json& have) {
    if (want.is_number() && have.is_number() ? !Near(want.get<double>(), have.get<double>())
                                             : want != have) {
      problems_->push_back(what + ": expected " + want.dump() + ", got " + have.dump());
    }
  }

 private:
  std::vector<std::string>* problems_;
};

void Division(const Json& row, Row& out) {
  const std::string function = Text(row, "function");
  const Json& expected = row.at("expected");
  if (function == "groupByPriority") {
    std::map<int, std::vector<std::string>, std::greater<>> groups;
    for (const auto& [name, priority] : row.at("priorities").items()) {
      groups[priority.get<int>()].push_back(name);
    }
    Json order = Json::array();
    for (const auto& [priority, names] : groups) {
      order.push_back(priority);
      out.Same("group " + std::to_string(priority),
               expected.at("groups").at(std::to_string(priority)), names);
    }
    out.Same("order", expected.at("order"), order);
    return;
  }
  QueueSet set(row.at("queues"));
  const double k = row.value("kValue", 1.0);
  double left = 0;
  for (int i = 0; i < kShareDims; ++i) {
    if (!row.at("total").contains(kNames[i])) {
      continue;
    }
    const double total = row.at("total").at(kNames[i]).get<double>();
    left = function == "divide" ? Divide(total, k, i, set.pointers)
                                : DivideOverQuota(total, k, i, set.pointers);
    for (const auto& [name, shares] : expected.at("fairShare").items()) {
      if (shares.contains(kNames[i])) {
        out.Same(name + " " + kNames[i], shares.at(kNames[i]),
                 set.queues[static_cast<std::size_t>(set.At(name))].r[i].fair_share);
      }
    }
  }
  if (expected.contains("remaining") && expected.at("remaining").is_number()) {
    out.Same("remaining", expected.at("remaining"), left);
  }
}

void FairShare(const Json& row, Row& out) {
  QueueSet set(row.at("queues"));
  DivideTree(AmountsFrom(row.at("total")), row.value("kValue", 1.0), set.pointers, set.children,
             set.roots);
  for (const auto& [name, share] : row.at("expected").at("gpuFairShare").items()) {
    out.Same(name, share, set.queues[static_cast<std::size_t>(set.At(name))].r[kGpu].fair_share);
  }
}

void ShareArithmetic(const Json& row, Row& out) {
  const std::string function = Text(row, "function");
  const Json& expected = row.at("expected");
  if (function == "requestable") {
    ResourceShare share;
    share.limit = row.at("limit").get<double>();
    share.request = row.at("request").get<double>();
    out.Same(function, expected, Requestable(share));
  } else if (function == "allocatableShare") {
    const Amounts have = QueueFrom(row.at("queue")).Allocatable();
    for (int i = 0; i < kShareDims; ++i) {
      if (expected.contains(kNames[i])) {
        out.Same(kNames[i], expected.at(kNames[i]), have[i]);
      }
    }
  } else if (function == "dominantShare") {
    const QueueShare queue = QueueFrom(row.at("queue"));
    out.Same(function, expected,
             DominantShare(queue, queue.Allocated(), AmountsFrom(row.at("total"))));
  } else if (function == "compare") {
    out.Same(function, expected,
             CompareAmount(row.at("left").get<double>(), row.at("right").get<double>()));
  } else {
    out.Same("function", "known", function);
  }
}

// What the next batch of a job record asks for.
Amounts NextRequest(const Json& job, double smallest_memory) {
  struct Set {
    std::string name;
    int minimum, active = 0;
    std::vector<const Json*> pending;
  };
  std::vector<Set> sets;
  for (const Json& object : job.at("podSets")) {
    Set set{Text(object, "name"), object.at("minAvailable").get<int>()};
    std::vector<const Json*> tasks;
    for (const Json& task : object.at("tasks")) {
      const std::string status = Text(task, "status");
      if (status == "Pending") {
        set.pending.push_back(&task);
      } else if (status != "Releasing" && status != "Succeeded" && status != "Failed" &&
                 status != "Gated") {
        ++set.active;
      }
    }
    std::sort(set.pending.begin(), set.pending.end(),
              [](const Json* a, const Json* b) { return Text(*a, "name") < Text(*b, "name"); });
    sets.push_back(std::move(set));
  }
  const bool below =
      std::any_of(sets.begin(), sets.end(), [](const Set& s) { return s.active < s.minimum; });
  Amounts sum{};
  bool one = false;
  for (const Set& set : sets) {
    int left = set.minimum - set.active;
    if (left <= 0) {
      left = below || one ? 0 : 1;
      one = one || (left == 1 && !set.pending.empty());
    }
    for (int i = 0; i < std::min(left, static_cast<int>(set.pending.size())); ++i) {
      const Json& request = set.pending[static_cast<std::size_t>(i)]->at("request");
      sum = Plus(sum, AmountsFrom(request));
      if (request.contains("gpuMemoryMiB") && smallest_memory > 0) {
        sum[kGpu] += request.at("gpuMemoryMiB").get<double>() * request.value("devices", 1.0) /
                     smallest_memory;
      }
    }
  }
  return sum;
}

void Order(const Json& row, Row& out) {
  const QueueShare left = QueueFrom(row.at("left"));
  const QueueShare right = QueueFrom(row.at("right"));
  const double smallest = row.value("minNodeGpuMemoryMiB", 0.0);
  const int order = CompareQueues({&left, NextRequest(row.at("leftJob"), smallest), {}},
                                  {&right, NextRequest(row.at("rightJob"), smallest), {}},
                                  AmountsFrom(row.at("total")));
  out.Same("order", row.at("expected"), order < 0 ? "left" : order > 0 ? "right" : "equal");
}

void Strategies(const Json& row, Row& out) {
  const QueueShare victim = QueueFrom(row.at("reclaimeeQueue"));
  const Amounts remaining = AmountsFrom(row.at("reclaimeeRemaining"));
  const bool have = Text(row, "strategy") == "maintainFairShare"
                        ? MaintainFairShare(victim, remaining)
                        : GuaranteeDeservedQuota(QueueFrom(row.at("reclaimerQueue")),
                                                 AmountsFrom(row.at("request")), victim, remaining);
  out.Same("reclaimable", row.at("expected"), have);
}

void Reclaim(const Json& row, Row& out) {
  QueueSet set(row.at("queues"));
  const Json& from = row.at("reclaimer");
  const Reclaimer reclaimer{set.At(Text(from, "queue")), from.at("preemptible").get<bool>(),
                            AmountsFrom(from.at("request"))};
  if (Text(row, "function") == "canReclaim") {
    out.Same("canReclaim", row.at("expected"),
             CanReclaim(set.queues[static_cast<std::size_t>(reclaimer.queue)], reclaimer, nullptr));
    return;
  }
  std::vector<VictimUnits> victims;
  for (const Json& object : row.at("victims")) {
    VictimUnits units{set.At(Text(object, "queue")), {}};
    for (const Json& unit : object.at("units")) {
      units.units.push_back(AmountsFrom(unit));
    }
    victims.push_back(std::move(units));
  }
  out.Same("reclaimable", row.at("expected"),
           Reclaimable(set.pointers, reclaimer, victims, row.value("saturationMultiplier", 1.0),
                       false, nullptr));
}

void Capacity(const Json& row, Row& out) {
  const std::string function = Text(row, "function");
  const Amounts request = AmountsFrom(row.at("request"));
  const Json& expected = row.at("expected");
  if (function == "queueOverLimit" || function == "queueNonPreemptibleOverQuota") {
    const QueueShare queue = QueueFrom(row.at("queue"));
    const int over = function == "queueOverLimit" ? OverLimit(queue, request)
                                                  : NonPreemptibleOverQuota(queue, request);
    out.Same("over", expected.at("over"), over >= 0);
    out.Same("resource", expected.at("resource"), over >= 0 ? kNames[over] : "");
    return;
  }
  QueueSet set(row.at("queues"));
  const Json& job = row.at("job");
  const bool preemptible = job.contains("preemptible") && job.at("preemptible").is_boolean() &&
                           job.at("preemptible").get<bool>();
  std::string reason;
  const auto walk = [&](const char* name, auto check) {
    for (int at = set.At(Text(job, "queue")); at >= 0 && reason.empty();
         at = set.queues[static_cast<std::size_t>(at)].parent) {
      reason = check(set.queues[static_cast<std::size_t>(at)], request) >= 0 ? name : "";
    }
  };
  if (function != "nonPreemptibleQuotaOnly") {
    walk("OverLimit", OverLimit);
  }
  if (function != "limitOnly" && !preemptible && reason.empty()) {
    walk("NonPreemptibleOverQuota", NonPreemptibleOverQuota);
  }
  out.Same("reason", expected.at("reason"), reason);
  out.Same("schedulable", expected.at("schedulable"), reason.empty());
}

void MinRuntime(const Json& row, Row& out) {
  std::vector<RuntimeQueue> queues;
  std::map<std::string, int> index;
  for (const Json& object : row.at("queues")) {
    index[Text(object, "name")] = static_cast<int>(queues.size());
    RuntimeQueue queue{Text(object, "name"), -1, std::nullopt, std::nullopt};
    const auto seconds = [&](const char* key, std::optional<Millis>* to) {
      if (object.contains(key) && object.at(key).is_number()) {
        *to = static_cast<Millis>(object.at(key).get<double>() * 1000);
      }
    };
    seconds("preemptMinRuntimeSeconds", &queue.preempt);
    seconds("reclaimMinRuntimeSeconds", &queue.reclaim);
    queues.push_back(std::move(queue));
  }
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const auto it = index.find(Text(row.at("queues")[i], "parent"));
    queues[i].parent = it == index.end() ? -1 : it->second;
  }
  const auto find = [&](const std::string& name) {
    const auto it = index.find(name);
    return it == index.end() ? -1 : it->second;
  };
  const auto preempt_default =
      static_cast<Millis>(row.at("defaultPreemptSeconds").get<double>() * 1000);
  const auto reclaim_default =
      static_cast<Millis>(row.at("defaultReclaimSeconds").get<double>() * 1000);
  const bool lca = row.value("method", "lca") == "lca";
  const std::string function = Text(row, "function");
  const Json& expected = row.at("expected");
  bool error = false;
  if (function == "path") {
    Json path = Json::array();
    for (int at : QueuePath(queues, find(Text(row, "queue")))) {
      path.push_back(queues[static_cast<std::size_t>(at)].name);
    }
    out.Same("path", expected, path);
    return;
  }
  if (function == "preemptMinRuntime" || function == "reclaimMinRuntime") {
    const int victim = find(Text(row, "victimQueue"));
    const Millis have = function == "preemptMinRuntime"
                            ? PreemptMinRuntime(queues, victim, preempt_default, &error)
                            : ReclaimMinRuntime(queues, find(Text(row, "reclaimerQueue")), victim,
                                                lca, reclaim_default, &error);
    out.Same("seconds", expected.at("seconds"), static_cast<double>(have) / 1000);
    out.Same("error", expected.at("error"), error);
    return;
  }
  const Json& victim = row.at("victim");
  const int theirs = find(Text(victim, "queue"));
  const bool preempt = function == "mayPreempt" || function == "preemptScenarioValid";
  const Millis least = preempt ? PreemptMinRuntime(queues, theirs, preempt_default, &error)
                               : ReclaimMinRuntime(queues, find(Text(row, "pendingQueue")), theirs,
                                                   lca, reclaim_default, &error);
  const Json started = victim.value("startedSecondsAgo", Json());
  const bool guarded =
      started.is_number() && started.get<double>() * 1000 < static_cast<double>(least);
  const int minimum = victim.at("minAvailable").get<int>();
  const int running = victim.at("runningPods").get<int>();
  bool allowed = !guarded || minimum < running;
  if (function == "preemptScenarioValid" || function == "reclaimScenarioValid") {
    allowed =
        !guarded || minimum >= running || minimum <= running - victim.at("victimPods").get<int>();
  }
  out.Same(function, expected, allowed);
}

TopologyTree TreeFromRow(const Json& row) {
  TopologyTree tree;
  tree.spec.name = row.contains("topology") ? Text(row, "topology") : "test-topology";
  tree.spec.levels = row.at("levels").get<std::vector<std::string>>();
  tree.by_level.resize(tree.spec.levels.size() + 1);
  tree.domains.push_back({"root", 0, {}, {}, kCapacityUnknown, {}});
  tree.by_level[0]["root"] = 0;
  return tree;
}

void RelevantLevelRow(const Json& row, Row& out) {
  TopologyTree tree = TreeFromRow(row);
  const Json& constraint = row.at("constraint");
  tree.spec.name = Text(constraint, "topology");
  std::string error;
  const auto levels = RelevantLevels(
      tree, {tree.spec.name, Text(constraint, "required"), Text(constraint, "preferred")},
      "test-subgroup", &error);
  out.Same("error", row.at("expected").at("error"), error);
  Json names = Json::array();
  for (int level : levels) {
    names.push_back(tree.LevelName(level));
  }
  if (row.at("expected").at("levels").is_array()) {
    out.Same("levels", row.at("expected").at("levels"), names);
  }
}

void LoadRowCluster(const Json& row, Engine* engine) {
  Json test = {{"queues", Json::array()},
               {"topologies", {{{"name", row.at("topology")}, {"levels", row.at("levels")}}}},
               {"nodes", row.at("nodes")},
               {"jobs", row.at("jobs")},
               {"staleGraceSeconds", 60}};
  LoadCluster(test, engine->profiles()[0], LoadTasks(test), {}, engine);
}

std::vector<TaskId> PendingTasks(const State& state, const Job& job) {
  std::vector<TaskId> tasks;
  for (const PodSet& set : job.pod_sets) {
    for (TaskId id : set.tasks) {
      if (state.task(id).status == Status::kPending) {
        tasks.push_back(id);
      }
    }
  }
  return tasks;
}

std::string FineToCoarse(const TopologyTree& tree, const Domain& domain, const State& state) {
  const Labels& labels = state.nodes[static_cast<std::size_t>(domain.nodes[0])].spec.labels;
  std::string id;
  for (int level = domain.level; level > 0; --level) {
    id += (id.empty() ? "" : ".") + *FindLabel(labels, tree.LevelName(level));
  }
  return id;
}

void CapacityRow(const Json& row, Engine& engine, Row& out) {
  State& state = const_cast<State&>(engine.state());
  TopologyTree tree = BuildTree(state, state.topologies.at(Text(row, "topology")));
  const Job& job = state.job(state.FindJob("/" + Text(row, "testedJob")));
  CountCapacity(state, tree, 0, PendingTasks(state, job));
  out.Same("root", row.at("expected").at("root"), tree.domains[0].capacity);
  std::map<std::string, int> have;
  for (std::size_t i = 1; i < tree.domains.size(); ++i) {
    have[tree.LevelName(tree.domains[i].level) + "/" + FineToCoarse(tree, tree.domains[i], state)] =
        tree.domains[i].capacity;
  }
  for (const Json& domain : row.at("expected").at("domains")) {
    const std::string key = Text(domain, "level") + "/" + Text(domain, "id");
    out.Same(key, domain.at("allocatablePods"), have.count(key) != 0 ? Json(have[key]) : Json());
  }
}

void FirstSubsetRow(const Json& row, Engine& engine, Row& out) {
  State& state = const_cast<State&>(engine.state());
  Job& job = state.job(state.FindJob("/" + Text(row, "testedJob")));
  TopologyCache cache;
  Session session(state, engine.profiles()[0], 0, kCaseNow);
  std::vector<int> all;
  for (std::size_t i = 0; i < job.pod_sets.size(); ++i) {
    all.push_back(static_cast<int>(i));
  }
  const auto sets = NodeSets(session, cache, job, job.groups[0].topology, job.groups[0].name, all,
                             PendingTasks(state, job), state.NodesByName(), true);
  const Json& expected = row.at("expected");
  if (expected.at("firstSubset").is_array()) {
    Json names = Json::array();
    for (NodeId id : sets.empty() ? std::vector<NodeId>{} : sets[0]) {
      names.push_back(state.nodes[static_cast<std::size_t>(id)].spec.name);
    }
    std::sort(names.begin(), names.end());
    Json want = expected.at("firstSubset");
    std::sort(want.begin(), want.end());
    out.Same("firstSubset", want, names);
  }
  const std::string wanted = Text(expected, "error") + Text(expected, "fitError");
  std::string text;
  for (const JobFailure& failure : job.failures) {
    text = failure.message == wanted ? wanted : text.empty() ? failure.message : text;
  }
  out.Same("failure", wanted, text);
}

void AllocatableRow(const Json& row, Engine& engine, Row& out) {
  State& state = const_cast<State&>(engine.state());
  TopologyTree tree = TreeFromRow(row);
  for (const Json& object : row.at("domains")) {
    const auto& levels = tree.spec.levels;
    const auto level = std::find(levels.begin(), levels.end(), Text(object, "level"));
    if (level == levels.end()) {
      continue;
    }
    Domain domain;
    domain.id = Text(object, "id");
    domain.level = static_cast<int>(level - levels.begin()) + 1;
    domain.capacity = object.at("allocatablePods").get<int>();
    if (object.contains("free")) {
      const Amounts free = AmountsFrom(object.at("free"));
      domain.free.fixed = {static_cast<std::int64_t>(free[0]), static_cast<std::int64_t>(free[1]),
                           static_cast<std::int64_t>(free[2]) * kDevice, 0};
    }
    for (const Json& name : object.at("nodes")) {
      NodeSpec node;
      node.name = name.get<std::string>();
      node.cpu = 1'000'000;
      node.memory = 1'000'000'000'000;
      node.gpus = 1000;
      engine.Apply(node);
      domain.nodes.push_back(state.FindNode(node.name));
    }
    tree.by_level[static_cast<std::size_t>(domain.level)][domain.id] =
        static_cast<int>(tree.domains.size());
    tree.domains.push_back(std::move(domain));
  }
  for (const Json& object : row.at("domains")) {
    for (std::size_t level = 1; level < tree.by_level.size(); ++level) {
      auto at = tree.by_level[level].find(Text(object, "id"));
      if (at == tree.by_level[level].end()) {
        continue;
      }
      for (const Json& child : object.at("children")) {
        if (level + 1 < tree.by_level.size() &&
            tree.by_level[level + 1].count(child.get<std::string>()) != 0) {
          tree.domains[static_cast<std::size_t>(at->second)].children.push_back(
              tree.by_level[level + 1][child.get<std::string>()]);
        }
      }
    }
  }
  PodGroupSpec group;
  group.ns = Text(row.at("job"), "namespace");
  group.name = Text(row.at("job"), "name");
  group.scheduler_name = engine.profiles()[0].scheduler_names[0];
  for (const Json& set : row.at("job").at("podSets")) {
    group.root.pod_sets.push_back(
        {Text(set, "name"), set.at("minAvailable").get<int>(), std::nullopt});
  }
  engine.Apply(group);
  for (const Json& set : row.at("job").at("podSets")) {
    for (const Json& task : set.at("tasks")) {
      PodSpec pod;
      pod.ns = group.ns;
      pod.name = pod.uid = Text(task, "name");
      pod.group = group.Key();
      pod.sub_group = Text(set, "name");
      pod.scheduler_name = group.scheduler_name;
      pod.phase = Text(task, "status") == "Running" ? Phase::kRunning : Phase::kPending;
      pod.node = Text(task, "node");
      const Amounts request = AmountsFrom(task.at("request"));
      pod.request.cpu = static_cast<std::int64_t>(request[0]);
      pod.request.memory = static_cast<std::int64_t>(request[1]);
      pod.request.gpu_count = static_cast<std::int64_t>(request[2]);
      engine.Apply(pod);
    }
  }
  const Job& job = state.job(state.FindJob(group.Key()));
  std::vector<int> all;
  for (std::size_t i = 0; i < job.pod_sets.size(); ++i) {
    all.push_back(static_cast<int>(i));
  }
  const std::vector<TaskId> tasks = PendingTasks(state, job);
  const Json& constraint = row.at("constraint");
  std::vector<JobFailure> failures;
  std::string error;
  const auto have = AllocatableDomains(
      state, tree, job,
      {tree.spec.name, Text(constraint, "required"), Text(constraint, "preferred")}, "test", all,
      SumRequests(state, tasks), static_cast<int>(tasks.size()), &failures, &error);
  out.Same("error", row.at("expected").at("error"), error);
  std::set<std::string> ids;
  for (int index : have) {
    ids.insert(tree.LevelName(tree.domains[static_cast<std::size_t>(index)].level) + "/" +
               tree.domains[static_cast<std::size_t>(index)].id);
  }
  std::set<std::string> wanted;
  for (const Json& domain : row.at("expected").at("domains")) {
    wanted.insert(Text(domain, "level") + "/" + Text(domain, "id"));
  }
  out.Same("domains", wanted, ids);
  std::set<std::string> messages;
  std::set<std::string> expected_messages;
  for (const JobFailure& failure : failures) {
    messages.insert(failure.message);
  }
  for (const Json& failure : row.at("expected").at("fitErrors")) {
    std::string text;
    for (const Json& message : failure.at("messages")) {
      text += (text.empty() ? "" : ", ") + message.get<std::string>();
    }
    expected_messages.insert(text);
  }
  out.Same("messages", expected_messages, messages);
}

void TopologyFilter(const Json& row, Row& out) {
  const std::string function = Text(row, "function");
  if (function == "relevantLevels") {
    RelevantLevelRow(row, out);
    return;
  }
  Profile profile;
  profile.scheduler_names = {"case"};
  Engine engine({profile});
  if (function == "allocatableDomains") {
    AllocatableRow(row, engine, out);
    return;
  }
  LoadRowCluster(row, &engine);
  if (function == "domainCapacity") {
    CapacityRow(row, engine, out);
  } else {
    FirstSubsetRow(row, engine, out);
  }
}

using TableFunction = void (*)(const Json&, Row&);
const std::map<std::string, TableFunction>& Tables() {
  static const std::map<std::string, TableFunction> kTables{
      {"division", Division},
      {"fairshare", FairShare},
      {"resource_share", ShareArithmetic},
      {"queue_order", Order},
      {"strategies", Strategies},
      {"reclaimable", Reclaim},
      {"capacity_policy", Capacity},
      {"minruntime", MinRuntime},
      {"topology_filter", TopologyFilter},
  };
  return kTables;
}

}  // namespace

Result<std::vector<CaseOutcome>> RunTable(const std::string& table, const std::string& text) {
  const auto it = Tables().find(table);
  if (it == Tables().end()) {
    return sublet::Status(Reason::kInvalid, "unknown table " + table);
  }
  SUBLET_TRY(const Json rows, kube::ParseJson(text, kCaseLimits));
  if (!rows.is_array()) {
    return BadRequest("a table must be a JSON array");
  }
  std::vector<CaseOutcome> outcomes;
  for (const Json& row : rows) {
    CaseOutcome outcome;
    outcome.id = row.is_object() ? row.value("id", "?") : "?";
    try {  // nlohmann's accessors throw where a member is missing or has another type
      Row out(&outcome.problems);
      it->second(row, out);
    } catch (const Json::exception& error) {
      outcome.problems.push_back(std::string("bad row: ") + error.what());
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace sublet::scheduler
