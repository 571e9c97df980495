// The table of the topology: levels, capacities and domains of small clusters.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "scheduler/case_loader.h"
#include "scheduler/case_tables.h"
#include "scheduler/node_sets.h"
#include "scheduler/topology_capacity.h"
#include "scheduler/topology_levels.h"

namespace sublet::scheduler {

using kube::Json;

namespace {

TopologyTree TreeFromRow(const Json& row) {
  TopologyTree tree;
  tree.spec.name = row.contains("topology") ? CaseText(row, "topology") : "test-topology";
  tree.spec.levels = row.at("levels").get<std::vector<std::string>>();
  tree.by_level.resize(tree.spec.levels.size() + 1);
  tree.domains.push_back({"root", 0, {}, {}, kCapacityUnknown, {}});
  tree.by_level[0]["root"] = 0;
  return tree;
}

void RelevantLevelRow(const Json& row, CaseRow& out) {
  TopologyTree tree = TreeFromRow(row);
  const Json& constraint = row.at("constraint");
  tree.spec.name = CaseText(constraint, "topology");
  std::string error;
  const auto levels = RelevantLevels(
      tree, {tree.spec.name, CaseText(constraint, "required"), CaseText(constraint, "preferred")},
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

void CapacityRow(const Json& row, Engine& engine, CaseRow& out) {
  State& state = const_cast<State&>(engine.state());
  TopologyTree tree = BuildTree(state, state.topologies.at(CaseText(row, "topology")));
  const Job& job = state.job(state.FindJob("/" + CaseText(row, "testedJob")));
  CountCapacity(state, tree, 0, PendingTasks(state, job));
  out.Same("root", row.at("expected").at("root"), tree.domains[0].capacity);
  std::map<std::string, int> have;
  for (std::size_t i = 1; i < tree.domains.size(); ++i) {
    have[tree.LevelName(tree.domains[i].level) + "/" + FineToCoarse(tree, tree.domains[i], state)] =
        tree.domains[i].capacity;
  }
  for (const Json& domain : row.at("expected").at("domains")) {
    const std::string key = CaseText(domain, "level") + "/" + CaseText(domain, "id");
    out.Same(key, domain.at("allocatablePods"), have.count(key) != 0 ? Json(have[key]) : Json());
  }
}

void FirstSubsetRow(const Json& row, Engine& engine, CaseRow& out) {
  State& state = const_cast<State&>(engine.state());
  Job& job = state.job(state.FindJob("/" + CaseText(row, "testedJob")));
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
  const std::string wanted = CaseText(expected, "error") + CaseText(expected, "fitError");
  std::string text;
  for (const JobFailure& failure : job.failures) {
    text = failure.message == wanted ? wanted : text.empty() ? failure.message : text;
  }
  out.Same("failure", wanted, text);
}

// The row's domains and their nodes, which hold whatever is put on them.
void AddDomains(const Json& row, Engine& engine, TopologyTree* out) {
  TopologyTree& tree = *out;
  for (const Json& object : row.at("domains")) {
    const auto& levels = tree.spec.levels;
    const auto level = std::find(levels.begin(), levels.end(), CaseText(object, "level"));
    if (level == levels.end()) {
      continue;
    }
    Domain domain;
    domain.id = CaseText(object, "id");
    domain.level = static_cast<int>(level - levels.begin()) + 1;
    domain.capacity = object.at("allocatablePods").get<int>();
    if (object.contains("free")) {
      const Amounts free = CaseAmounts(object.at("free"));
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
      domain.nodes.push_back(engine.state().FindNode(node.name));
    }
    tree.by_level[static_cast<std::size_t>(domain.level)][domain.id] =
        static_cast<int>(tree.domains.size());
    tree.domains.push_back(std::move(domain));
  }
}

// The row names the children of a domain by their ids one level below.
void LinkDomains(const Json& row, TopologyTree* out) {
  TopologyTree& tree = *out;
  for (const Json& object : row.at("domains")) {
    for (std::size_t level = 1; level < tree.by_level.size(); ++level) {
      auto at = tree.by_level[level].find(CaseText(object, "id"));
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
}

// Applies the row's job and returns its key.
std::string ApplyJob(const Json& row, Engine& engine) {
  PodGroupSpec group;
  group.ns = CaseText(row.at("job"), "namespace");
  group.name = CaseText(row.at("job"), "name");
  group.scheduler_name = engine.profiles()[0].scheduler_names[0];
  for (const Json& set : row.at("job").at("podSets")) {
    group.root.pod_sets.push_back(
        {CaseText(set, "name"), set.at("minAvailable").get<int>(), std::nullopt});
  }
  engine.Apply(group);
  for (const Json& set : row.at("job").at("podSets")) {
    for (const Json& task : set.at("tasks")) {
      PodSpec pod;
      pod.ns = group.ns;
      pod.name = pod.uid = CaseText(task, "name");
      pod.group = group.Key();
      pod.sub_group = CaseText(set, "name");
      pod.scheduler_name = group.scheduler_name;
      pod.phase = CaseText(task, "status") == "Running" ? Phase::kRunning : Phase::kPending;
      pod.node = CaseText(task, "node");
      const Amounts request = CaseAmounts(task.at("request"));
      pod.request.cpu = static_cast<std::int64_t>(request[0]);
      pod.request.memory = static_cast<std::int64_t>(request[1]);
      pod.request.gpu_count = static_cast<std::int64_t>(request[2]);
      engine.Apply(pod);
    }
  }
  return group.Key();
}

void CompareDomains(const Json& expected, const TopologyTree& tree, const std::vector<int>& have,
                    const std::vector<JobFailure>& failures, CaseRow& out) {
  std::set<std::string> ids;
  for (int index : have) {
    ids.insert(tree.LevelName(tree.domains[static_cast<std::size_t>(index)].level) + "/" +
               tree.domains[static_cast<std::size_t>(index)].id);
  }
  std::set<std::string> wanted;
  for (const Json& domain : expected.at("domains")) {
    wanted.insert(CaseText(domain, "level") + "/" + CaseText(domain, "id"));
  }
  out.Same("domains", wanted, ids);
  std::set<std::string> messages;
  std::set<std::string> expected_messages;
  for (const JobFailure& failure : failures) {
    messages.insert(failure.message);
  }
  for (const Json& failure : expected.at("fitErrors")) {
    std::string text;
    for (const Json& message : failure.at("messages")) {
      text += (text.empty() ? "" : ", ") + message.get<std::string>();
    }
    expected_messages.insert(text);
  }
  out.Same("messages", expected_messages, messages);
}

void AllocatableRow(const Json& row, Engine& engine, CaseRow& out) {
  State& state = const_cast<State&>(engine.state());
  TopologyTree tree = TreeFromRow(row);
  AddDomains(row, engine, &tree);
  LinkDomains(row, &tree);
  const Job& job = state.job(state.FindJob(ApplyJob(row, engine)));
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
      {tree.spec.name, CaseText(constraint, "required"), CaseText(constraint, "preferred")}, "test",
      all, SumRequests(state, tasks), static_cast<int>(tasks.size()), &failures, &error);
  out.Same("error", row.at("expected").at("error"), error);
  CompareDomains(row.at("expected"), tree, have, failures, out);
}

}  // namespace

void TopologyRow(const Json& row, CaseRow& out) {
  const std::string function = CaseText(row, "function");
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

}  // namespace sublet::scheduler
