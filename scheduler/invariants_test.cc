// Rules that no decision may break, on random clusters with what the case files touch only lightly:
// queues on four levels, elastic gangs, sub group trees, nested topology constraints, minimum
// runtimes, fractions of several devices, MIG, GPU memory. The rules are KAI's, written down once
// more without looking at how the engine keeps them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::kNow;
using testing::MakeGroup;
using testing::MakeNode;
using testing::MakePod;
using testing::MakeQueue;

constexpr Millis kProtected = 60'000;

Profile RulesProfile(const char* name) {
  Profile profile = *NamedProfile(name);
  profile.reclaim_min_runtime = profile.preempt_min_runtime = kProtected;
  profile.stale_grace = -1;
  return profile;
}

class Maker {
 public:
  explicit Maker(std::uint32_t seed) : random_(seed) {}

  Snapshot Make() {
    Nodes();
    Queues();
    const int groups = 6 + Pick(10);
    for (int i = 0; i < groups; ++i) {
      Group(i);
    }
    return std::move(out_);
  }

 private:
  int Pick(int bound) { return static_cast<int>(random_() % static_cast<std::uint32_t>(bound)); }

  void Nodes() {
    const int count = 4 + Pick(5);
    for (int i = 0; i < count; ++i) {
      NodeSpec node = MakeNode("n" + std::to_string(i), 2 + Pick(3));
      node.labels.insert(node.labels.begin() + 1,
                         {{"kubernetes.io/rack", "r" + std::to_string(i / 2)},
                          {"kubernetes.io/zone", "z" + std::to_string(i / 4)}});
      if (Pick(5) == 0) {
        node.gpus = 0;
        node.scalars = {{"nvidia.com/mig-1g.5gb", 4}, {"nvidia.com/mig-3g.20gb", 1}};
        node.labels.emplace_back("nvidia.com/mig.strategy", "mixed");
        std::sort(node.labels.begin(), node.labels.end());
      }
      room_.push_back(node.gpus);
      out_.nodes.push_back(std::move(node));
    }
    out_.topologies.push_back({"dc", {"kubernetes.io/zone", "kubernetes.io/rack"}});
  }

  // Four levels: root, two divisions, two departments each, two teams each.
  void Queues() {
    const auto add = [&](const std::string& name, const std::string& parent) {
      QueueSpec queue = MakeQueue(name, parent, Pick(6));
      queue.created = static_cast<Millis>(out_.queues.size());
      queue.gpu.limit = Pick(4) == 0 ? 1 + Pick(8) : kUnlimited;
      queue.gpu.weight = Pick(3);
      queue.priority = Pick(5) == 0 ? 200 : 100;
      out_.queues.push_back(queue);
    };
    out_.queues.push_back(MakeQueue("root", "", kUnlimited));
    for (const char* division : {"a", "b"}) {
      add(division, "root");
      for (const char* department : {"0", "1"}) {
        add(std::string(division) + department, division);
        for (const char* team : {"x", "y"}) {
          leaves_.push_back(std::string(division) + department + team);
          add(leaves_.back(), std::string(division) + department);
        }
      }
    }
  }

  void Tree(PodGroupSpec& group, int pods) {
    group.root.pod_sets.clear();
    const int kind = Pick(3);
    if (kind == 0 || pods < 3) {
      group.root.pod_sets.push_back({"default", 1 + Pick(pods), std::nullopt});
      return;
    }
    SubGroupSpec workers;
    workers.name = "workers";
    workers.pod_sets = {{"w0", 1, std::nullopt}, {"w1", 1, std::nullopt}};
    if (kind == 2) {
      workers.topology = TopologyConstraint{"dc", "kubernetes.io/rack", ""};
      group.root.topology = TopologyConstraint{"dc", "kubernetes.io/zone", ""};
    }
    group.root.pod_sets.push_back({"leader", 1, std::nullopt});
    group.root.groups.push_back(std::move(workers));
  }

  void Group(int number) {
    static constexpr int kPriorities[] = {50, 50, 75, 100, 125};
    const int pods = 1 + Pick(5);
    // One after the other: compilers evaluate arguments in different orders.
    const int priority = kPriorities[Pick(5)];
    const std::string& leaf = leaves_[static_cast<std::size_t>(Pick(8))];
    PodGroupSpec group = MakeGroup("g" + std::to_string(number), leaf, 1, priority);
    group.created = kNow - 500'000 + number;
    Tree(group, pods);
    const bool constrained = group.root.topology.has_value();
    if (!constrained && group.root.groups.empty() && Pick(5) == 0) {
      group.root.topology = TopologyConstraint{"dc", "kubernetes.io/rack", ""};
    }
    const bool running = !group.root.topology && Pick(2) == 0;
    group.last_start = running ? kNow - (Pick(2) == 0 ? kProtected / 2 : kProtected * 2) : 0;
    const int kind = Pick(6);
    for (int i = 0; i < pods; ++i) {
      PodSpec pod = MakePod(group.name, i, 0);
      Ask(kind, pod);
      if (!group.root.groups.empty()) {
        pod.sub_group = i == 0 ? "leader" : i % 2 == 1 ? "w0" : "w1";
      }
      const auto node = static_cast<std::size_t>(Pick(static_cast<int>(room_.size())));
      if (running && kind < 4 && room_[node] >= pod.request.gpu_count) {
        room_[node] -= pod.request.gpu_count;
        pod.node = out_.nodes[node].name;
        pod.phase = Phase::kRunning;
        for (int d = 0; kind >= 2 && d < pod.request.gpu_count; ++d) {
          pod.gpu_groups.push_back("d-" + pod.name + "-" + std::to_string(d));
        }
      }
      out_.pods.push_back(std::move(pod));
    }
    out_.groups.push_back(std::move(group));
  }

  void Ask(int kind, PodSpec& pod) {
    Request& request = pod.request;
    if (kind <= 1) {
      request.gpu_count = 1 + Pick(2);
    } else if (kind == 2) {
      request.gpu = GpuKind::kFraction;
      request.gpu_count = 1 + Pick(2);
      request.portion = 0.1 * (1 + Pick(9));
    } else if (kind == 3) {
      // One device: up to 0.16.1 KAI's limits count only one device of such a request.
      request.gpu = GpuKind::kMemory;
      request.gpu_count = 1;
      request.gpu_memory_mib = 50 * (1 + Pick(19));
    } else if (kind == 4) {
      request.gpu = GpuKind::kMig;
      request.scalars = {{Pick(2) == 0 ? "nvidia.com/mig-1g.5gb" : "nvidia.com/mig-3g.20gb", 1}};
    }
  }

  std::mt19937 random_;
  Snapshot out_;
  std::vector<std::int64_t> room_;
  std::vector<std::string> leaves_;
};

// The rules, checked against the objects before a cycle and the state after it.
class Judge {
 public:
  Judge(const Snapshot& before, const Engine& engine, const CycleResult& result)
      : before_(before), engine_(engine), result_(result) {
    for (const PodGroupSpec& group : before.groups) {
      groups_[group.Key()] = &group;
    }
    for (const PodSpec& pod : before.pods) {
      pods_[pod.uid] = &pod;
      members_[pod.group].push_back(&pod);
    }
    for (const QueueSpec& queue : before.queues) {
      parents_[queue.name] = queue.parent;
    }
    for (const NodeSpec& node : before.nodes) {
      nodes_[node.name] = &node;
    }
  }

  std::string Problem() {
    std::string problem = testing::Oversubscribed(engine_.state());
    if (!problem.empty()) {
      return "held twice: " + problem;
    }
    std::set<std::string> bound;
    for (const Decision& decision : result_.decisions) {
      if (decision.kind == Decision::Kind::kBind) {
        bound.insert(pods_.at(decision.pod_uid)->group);
      }
    }
    for (const std::string& key : bound) {
      problem = Gang(*groups_.at(key));
      if (problem.empty() && groups_.at(key)->root.topology) {
        problem = Domains(*groups_.at(key));
      }
      if (problem.empty()) {
        problem = Limits(*groups_.at(key));
      }
      if (!problem.empty()) {
        return key + ": " + problem;
      }
    }
    problem = Victims();
    return problem.empty() ? Shares() : problem;
  }

 private:
  static bool Preemptible(const PodGroupSpec& group) {
    return group.preemptibility.empty() ? group.priority < 100
                                        : group.preemptibility == "preemptible";
  }
  static void Sets(const SubGroupSpec& at, std::vector<const PodSetSpec*>* out) {
    for (const PodSetSpec& set : at.pod_sets) {
      out->push_back(&set);
    }
    for (const SubGroupSpec& child : at.groups) {
      Sets(child, out);
    }
  }
  const Task& TaskOf(const PodSpec& pod) const {
    return engine_.state().task(engine_.state().FindTask(pod.uid));
  }
  std::string NodeOf(const PodSpec& pod) const {
    const Task& task = TaskOf(pod);
    return task.node == kNone || !ActiveAllocated(task.status)
               ? ""
               : engine_.state().nodes[static_cast<std::size_t>(task.node)].spec.name;
  }
  std::string SetOf(const PodSpec& pod) const {
    return pod.sub_group.empty() ? "default" : pod.sub_group;
  }

  // Nothing of a gang is bound unless every pod set has its minimum.
  std::string Gang(const PodGroupSpec& group) {
    std::vector<const PodSetSpec*> sets;
    Sets(group.root, &sets);
    for (const PodSetSpec* set : sets) {
      int have = 0;
      for (const PodSpec* pod : members_[group.Key()]) {
        have += SetOf(*pod) == set->name && ActiveUsed(TaskOf(*pod).status) ? 1 : 0;
      }
      if (have < set->min_available) {
        return "bound with " + std::to_string(have) + " of " + std::to_string(set->min_available) +
               " pods in " + set->name;
      }
    }
    return "";
  }

  std::string Label(const std::string& node, const std::string& key) const {
    const std::string* value = FindLabel(nodes_.at(node)->labels, key);
    return value == nullptr ? "" : *value;
  }

  // All pods below a required level stand in one domain of it.
  std::string Domains(const PodGroupSpec& group) {
    std::set<std::string> whole;
    std::set<std::string> workers;
    for (const PodSpec* pod : members_[group.Key()]) {
      const std::string node = NodeOf(*pod);
      if (node.empty()) {
        continue;
      }
      whole.insert(Label(node, group.root.topology->required));
      if (pod->sub_group == "w0" || pod->sub_group == "w1") {
        workers.insert(Label(node, "kubernetes.io/rack"));
      }
    }
    if (whole.size() > 1) {
      return "spread over domains of " + group.root.topology->required;
    }
    return !group.root.groups.empty() && group.root.groups[0].topology && workers.size() > 1
               ? "workers spread over racks"
               : "";
  }

  // A group that was bound leaves no queue above its limit, and if it is not preemptible none above
  // its quota.
  std::string Limits(const PodGroupSpec& group) {
    if (!AsksGpu(group)) {
      return "";
    }
    for (std::string name = group.queue; !name.empty(); name = parents_[name]) {
      const QueueShare& share = engine_.state().queue(engine_.state().FindQueue(name)).share;
      const ResourceShare& gpu = share.r[kGpu];
      if (gpu.limit != kUnlimited && gpu.allocated > gpu.limit + 1e-6) {
        return "queue " + name + " holds " + std::to_string(gpu.allocated) + " of at most " +
               std::to_string(gpu.limit);
      }
      if (!Preemptible(group) && gpu.deserved != kUnlimited &&
          gpu.allocated_np > gpu.deserved + 1e-6) {
        return "queue " + name + " holds " + std::to_string(gpu.allocated_np) +
               " not preemptible, quota " + std::to_string(gpu.deserved);
      }
    }
    return "";
  }
  bool AsksGpu(const PodGroupSpec& group) {
    return std::any_of(members_[group.Key()].begin(), members_[group.Key()].end(),
                       [](const PodSpec* pod) {
                         return pod->request.gpu_count > 0 || !pod->request.scalars.empty();
                       });
  }

  std::string Victims() {
    std::set<std::string> promised;
    for (const Decision& decision : result_.decisions) {
      if (decision.kind == Decision::Kind::kPipeline) {
        promised.insert(decision.pod_uid);
      }
    }
    for (const Decision& decision : result_.decisions) {
      if (decision.kind != Decision::Kind::kEvict) {
        continue;
      }
      const PodSpec& victim = *pods_.at(decision.pod_uid);
      const PodGroupSpec& group = *groups_.at(victim.group);
      const PodGroupSpec& winner = *groups_.at(decision.preemptor);
      const std::string what =
          decision.action + " of " + decision.pod_uid + " for " + decision.preemptor + ": ";
      if (!Preemptible(group)) {
        return what + "not preemptible";
      }
      if (decision.action == "preempt" &&
          (group.queue != winner.queue || group.priority >= winner.priority)) {
        return what + "not a lower priority of the same queue";
      }
      if (decision.action == "reclaim" && group.queue == winner.queue) {
        return what + "the same queue";
      }
      if (decision.action == "consolidation" &&
          (!promised.contains(decision.pod_uid) || !Preemptible(winner))) {
        return what + "not placed elsewhere";
      }
      if (decision.action != "consolidation" && kNow - group.last_start < kProtected &&
          group.last_start != 0 && !promised.contains(decision.pod_uid)) {
        std::vector<const PodSetSpec*> sets;
        Sets(group.root, &sets);
        const std::string gone = Gang(group);
        if (!gone.empty()) {
          return what + "protected by the minimum runtime, but " + gone;
        }
      }
    }
    return "";
  }

  // Children share what their parent has; a quota alone may give more.
  std::string Shares() {
    const State& state = engine_.state();
    for (const Queue& queue : state.queues) {
      if (!queue.present || queue.children.empty()) {
        continue;
      }
      double given = 0;
      double quotas = 0;
      for (QueueId child : queue.children) {
        const ResourceShare& share = state.queue(child).share.r[kGpu];
        given += share.fair_share;
        const double asked =
            share.limit == kUnlimited ? share.request : std::min(share.limit, share.request);
        quotas += share.deserved == kUnlimited ? asked : std::min(share.deserved, asked);
      }
      if (given > std::max(queue.share.r[kGpu].fair_share, quotas) + 1e-6) {
        return "children of " + queue.spec.name + " share " + std::to_string(given) + " of " +
               std::to_string(queue.share.r[kGpu].fair_share);
      }
    }
    return "";
  }

  const Snapshot& before_;
  const Engine& engine_;
  const CycleResult& result_;
  std::map<std::string, const PodGroupSpec*> groups_;
  std::map<std::string, const PodSpec*> pods_;
  std::map<std::string, std::vector<const PodSpec*>> members_;
  std::map<std::string, std::string> parents_;
  std::map<std::string, const NodeSpec*> nodes_;
};

class InvariantsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(InvariantsTest, NoDecisionBreaksARule) {
  std::map<std::string, int> seen;
  for (std::uint32_t seed = 1; seed <= 120; ++seed) {
    const Snapshot before = Maker(seed).Make();
    Engine engine({RulesProfile(GetParam())});
    engine.Apply(before);
    const CycleResult result = engine.Run(kNow);
    for (const Decision& decision : result.decisions) {
      ++seen[decision.kind == Decision::Kind::kBind    ? "bind"
             : decision.kind == Decision::Kind::kEvict ? decision.action
                                                       : "promise"];
    }
    ASSERT_EQ(Judge(before, engine, result).Problem(), "") << "seed " << seed << "\n"
                                                           << testing::DecisionText(result);
  }
  // The clusters are worth something only when every action had its day.
  for (const char* action : {"bind", "promise", "reclaim", "preempt"}) {
    EXPECT_GT(seen[action], 0) << action;
  }
}

TEST_P(InvariantsTest, ItSettlesAndStaysSettled) {
  // Without MovesInVain (evictions.cc) seed 250 moves three pods to and fro for ever, and in seed 568
  // a pod is taken from an elastic job for another whose turn it then is not, for ever.
  std::vector<std::uint32_t> seeds{568};
  for (std::uint32_t seed = 230; seed < 270; ++seed) {
    seeds.push_back(seed);
  }
  for (const std::uint32_t seed : seeds) {
    Engine engine({RulesProfile(GetParam())});
    engine.Apply(Maker(seed).Make());
    int quiet = 0;
    for (int round = 0; round < 60 && quiet < 3; ++round) {
      const CycleResult result = engine.Run(kNow + round * 1000);
      ASSERT_EQ(testing::Oversubscribed(engine.state()), "")
          << "seed " << seed << " round " << round;
      const bool acted = std::any_of(
          result.decisions.begin(), result.decisions.end(),
          [](const Decision& decision) { return decision.kind != Decision::Kind::kPipeline; });
      quiet = acted ? 0 : quiet + 1;
      testing::PlayOut(engine, result);
    }
    EXPECT_EQ(quiet, 3) << "still deciding after 60 rounds, seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, InvariantsTest, ::testing::Values("kai-0.13", "kai-0.17"),
                         [](const auto& each) {
                           return std::string(each.param) == "kai-0.13" ? "Kai013" : "Kai017";
                         });

}  // namespace
}  // namespace sublet::scheduler
