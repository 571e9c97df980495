// The engine's behaviour: the project's own cases, the profiles, and what goes beyond KAI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scheduler/bench.h"
#include "scheduler/cases.h"
#include "scheduler/convert.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::DecisionText;
using ::testing::HasSubstr;
using testing::kNow;
using testing::MakeGroup;
using testing::MakeNode;
using testing::MakePod;
using testing::MakeQueue;

TEST(CasesTest, OwnCasesPass) {
  const auto outcomes =
      RunCases(testing::ReadFile(testing::SourceFile("scheduler/testdata/cases.json")),
               *NamedProfile("kai-0.13"));
  ASSERT_TRUE(outcomes.ok()) << outcomes.error().message();
  EXPECT_GT(outcomes->size(), 30u);
  for (const CaseOutcome& outcome : *outcomes) {
    EXPECT_TRUE(outcome.problems.empty()) << outcome.id << ": " << outcome.problems[0];
  }
}

TEST(CasesTest, BadInputIsReportedNotTrusted) {
  EXPECT_FALSE(RunCases("{", *NamedProfile("kai-0.13")).ok());
  EXPECT_FALSE(RunCases("{}", *NamedProfile("kai-0.13")).ok());
  EXPECT_FALSE(RunTable("nonsense", "[]").ok());
  const auto broken = RunCases(R"([{"id":"x","mode":"single"}, 5])", *NamedProfile("kai-0.13"));
  ASSERT_TRUE(broken.ok());
  EXPECT_FALSE((*broken)[0].problems.empty());
  EXPECT_FALSE((*broken)[1].problems.empty());
  EXPECT_EQ(RunCasesCommand({}), 2);
  EXPECT_EQ(RunCasesCommand({"--profile", "kai-9", "x"}), 2);
  EXPECT_EQ(RunBenchCommand({"--shape", "nonsense"}), 2);
}

TEST(ProfileTest, EachPairDiffersInThreeCases) {
  const std::string text =
      testing::ReadFile(testing::SourceFile("scheduler/testdata/profiles.json"));
  std::map<std::string, std::vector<std::string>> states;
  for (const std::string& name : ProfileNames()) {
    auto lines = CaseStates(text, *NamedProfile(name));
    ASSERT_TRUE(lines.ok());
    states[name] = *lines;
  }
  for (auto left = states.begin(); left != states.end(); ++left) {
    for (auto right = std::next(left); right != states.end(); ++right) {
      int different = 0;
      for (std::size_t i = 0; i < left->second.size(); ++i) {
        different += left->second[i] != right->second[i] ? 1 : 0;
      }
      EXPECT_GE(different, 3) << left->first << " and " << right->first;
    }
  }
}

TEST(ProfileTest, UnknownNamesAndValuesAreErrors) {
  EXPECT_FALSE(NamedProfile("kai-1.0").ok());
  Profile profile = *NamedProfile("kai-0.13");
  EXPECT_TRUE(SetArgument(profile, "kValue", "0.5").ok());
  EXPECT_EQ(profile.k, 0.5);
  EXPECT_TRUE(SetArgument(profile, "placementStrategy.gpu", "spread").ok());
  EXPECT_EQ(std::count(profile.actions.begin(), profile.actions.end(), Action::kConsolidation), 0);
  EXPECT_TRUE(SetArgument(profile, "preemptMinRuntime", "1h30m").ok());
  EXPECT_EQ(profile.preempt_min_runtime, 5'400'000);
  EXPECT_TRUE(SetArgument(profile, "queueDepthPerAction.reclaim", "7").ok());
  EXPECT_EQ(profile.queue_depth.at("reclaim"), 7);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"kvalue", "1"},
                                                        {"kValue", "x"},
                                                        {"kValue", "-1"},
                                                        {"kValue", "nan"},
                                                        {"placementStrategy.gpu", "pack"},
                                                        {"preemptMinRuntime", "5"},
                                                        {"preemptMinRuntime", "-1e300h"},
                                                        {"preemptMinRuntime", "1e300h"},
                                                        {"queueDepthPerAction.reclaim", "1e12"},
                                                        {"useSchedulingSignatures", "yes"},
                                                        {"searchSteps", "1.5"},
                                                        {"queueDepthPerAction.run", "5"}}) {
    EXPECT_FALSE(SetArgument(profile, key, value).ok()) << key << "=" << value;
  }
}

struct Cluster {
  Engine engine;
  explicit Cluster(Profile profile = *NamedProfile("kai-0.13"), int gpus = 2)
      : engine({std::move(profile)}) {
    engine.Apply(MakeNode("n1", gpus));
    engine.Apply(MakeQueue("root", "", kUnlimited));
    engine.Apply(MakeQueue("a", "root", 1));
    engine.Apply(MakeQueue("b", "root", 1));
  }
  void Add(const PodGroupSpec& group, std::vector<PodSpec> pods) {
    engine.Apply(group);
    for (const PodSpec& pod : pods) {
      engine.Apply(pod);
    }
  }
};

TEST(EngineTest, ADecisionIsAssumedUntilTheApiShowsIt) {
  Cluster c;
  c.Add(MakeGroup("x", "a", 1), {MakePod("x", 0, 1)});
  EXPECT_EQ(DecisionText(c.engine.Run(kNow)), "bind x-0 n1\n");
  c.engine.Apply(MakePod("x", 0, 1));  // a stale event: still pending
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 1)), "");
  c.engine.Apply(MakePod("x", 0, 1, "n1"));
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 2)), "");
  c.engine.DeletePod("x-0");
  EXPECT_EQ(c.engine.state().hot[0].idle[kGpu], 2 * kDevice);
}

TEST(EngineTest, ARejectedBindBacksOffAndLetsOthersGo) {
  Cluster c(*NamedProfile("kai-0.13"), 1);
  c.Add(MakeGroup("x", "a", 1, 75), {MakePod("x", 0, 1)});
  c.Add(MakeGroup("y", "a", 1, 50), {MakePod("y", 0, 1)});
  EXPECT_EQ(DecisionText(c.engine.Run(kNow)), "bind x-0 n1\n");
  c.engine.BindFailed("x-0", kNow);
  CycleResult result = c.engine.Run(kNow + 10);
  EXPECT_EQ(DecisionText(result), "bind y-0 n1\n");
  c.engine.BindFailed("y-0", kNow + 10);
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 20)), "");
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 1000)), "bind x-0 n1\n");
  c.engine.BindFailed("x-0", kNow + 1000);
  result = c.engine.Run(kNow + 1500);  // y is ready again, x waits 2 s now
  EXPECT_EQ(DecisionText(result), "bind y-0 n1\n");
}

PodSpec Refused(PodSpec pod, Millis at, int times) {
  pod.refused = at;
  pod.refusals = times;
  return pod;
}

TEST(EngineTest, ABindingThatWasTakenBackUnseenIsDecidedAgain) {
  Cluster c;
  c.Add(MakeGroup("x", "a", 1), {MakePod("x", 0, 1)});
  EXPECT_EQ(DecisionText(c.engine.Run(kNow)), "bind x-0 n1\n");
  // Bound and refused between two cycles: only the end of it is seen.
  c.engine.Apply(Refused(MakePod("x", 0, 1), kNow, 1));
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 10)), "bind x-0 n1\n");
  c.engine.Apply(Refused(MakePod("x", 0, 1), kNow, 1));  // the same refusal again is a stale event
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 20)), "");
}

TEST(EngineTest, ARefusalIsReadFromThePod) {
  kube::Json pod = {
      {"metadata", {{"name", "x"}, {"annotations", {{"sublet.dev/rejections", "3"}}}}},
      {"status",
       {{"conditions",
         {{{"type", "PodScheduled"},
           {"status", "False"},
           {"reason", "RejectedByHost"},
           {"lastTransitionTime", "1970-01-01T00:00:07Z"}}}}}}};
  EXPECT_EQ(PodFromJson(pod).refused, 7000);
  EXPECT_EQ(PodFromJson(pod).refusals, 3);
  pod["status"]["conditions"][0]["reason"] = "Unschedulable";
  EXPECT_EQ(PodFromJson(pod).refused, 0);
}

TEST(EngineTest, ARefusedPodWaitsLongerEachTimeAndNoLongerThanRoomTakes) {
  Cluster c;
  const auto room = [&c](int gpus) {
    NodeSpec node = MakeNode("n1", gpus);
    c.engine.Apply(node);
  };
  c.Add(MakeGroup("x", "a", 1), {Refused(MakePod("x", 0, 1), kNow, 2)});
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 10)), "");
  room(3);  // it fitted before: news of the node are no reason to ask it again
  CycleResult waits = c.engine.Run(kNow + 20);
  EXPECT_EQ(DecisionText(waits), "");
  EXPECT_EQ(waits.earliest, kNow + 2000);
  room(0);  // what the refusal was about shows
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 30)), "");
  room(1);
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 40)), "bind x-0 n1\n");
  c.engine.Apply(MakePod("x", 0, 1, "n1"));
  c.engine.Apply(Refused(MakePod("x", 0, 1), kNow + 1000, 3));
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 1010)), "");
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 4990)), "");
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 5000)), "bind x-0 n1\n");
}

TEST(EngineTest, ADeniedSliceIsAskedForAgainWhenThereIsRoom) {
  Cluster c(*NamedProfile("kai-0.13"), 1);
  c.Add(MakeGroup("x", "a", 1), {MakePod("x", 0, 1)});
  EXPECT_EQ(DecisionText(c.engine.Run(kNow)), "bind x-0 n1\n");
  c.engine.BindFailed("x-0", kNow);
  c.engine.Apply(MakeNode("n1", 0));
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 10)), "");
  c.engine.Apply(MakeNode("n1", 1));
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 20)), "bind x-0 n1\n");
}

TEST(EngineTest, AnEvictionThatFailsIsTakenBack) {
  Cluster c;
  c.Add(MakeGroup("x", "a", 1), {MakePod("x", 0, 1, "n1")});
  c.Add(MakeGroup("y", "a", 1), {MakePod("y", 0, 1, "n1")});
  c.Add(MakeGroup("z", "b", 1), {MakePod("z", 0, 1)});
  EXPECT_THAT(DecisionText(c.engine.Run(kNow)), HasSubstr("evict y-0"));
  c.engine.EvictFailed("y-0");
  EXPECT_EQ(c.engine.state().hot[0].idle[kGpu], 0);
  EXPECT_THAT(DecisionText(c.engine.Run(kNow + 1000)), HasSubstr("evict y-0"));
}

TEST(EngineTest, TheVerdictSaysWhyOnce) {
  Cluster c;
  c.Add(MakeGroup("big", "a", 1), {MakePod("big", 0, 3)});
  CycleResult result = c.engine.Run(kNow);
  ASSERT_EQ(result.verdicts.size(), 1u);
  EXPECT_THAT(result.verdicts[0].message, HasSubstr("no nodes with enough resources were found: 1 "
                                                    "node(s) didn't have enough resources: GPUs."));
  EXPECT_EQ(c.engine.Run(kNow + 1).verdicts.size(), 0u);
  QueueSpec limited = MakeQueue("a", "root", 1);
  limited.gpu.limit = 2;
  c.engine.Apply(limited);
  result = c.engine.Run(kNow + 2);
  ASSERT_EQ(result.verdicts.size(), 1u);
  EXPECT_EQ(result.verdicts[0].failures[0].reason, "OverLimit");
  EXPECT_THAT(result.verdicts[0].message,
              HasSubstr("a quota has reached the allowable limit of GPUs. Limit is 2 GPUs, "
                        "currently 0 GPUs allocated and workload requested 3 GPUs"));
  const auto explained = c.engine.Explain("big-0", kNow + 3);
  ASSERT_TRUE(explained.has_value());
  EXPECT_THAT(explained->dominant, HasSubstr("allowable limit"));
  EXPECT_EQ(explained->queues.size(), 2u);
  EXPECT_THAT(explained->nodes[0].reason, HasSubstr("GPUs"));
}

TEST(EngineTest, AGroupWithBackOffIsTriedOnce) {
  Cluster c(*NamedProfile("kai-0.13"), 1);
  PodGroupSpec group = MakeGroup("x", "a", 1);
  group.scheduling_backoff = 1;
  c.Add(group, {MakePod("x", 0, 2)});
  CycleResult result = c.engine.Run(kNow);
  ASSERT_EQ(result.verdicts.size(), 1u);
  ASSERT_EQ(result.verdicts[0].pods.size(), 1u);
  c.engine.Apply(MakeNode("n2", 2));
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 1)), "");
  EXPECT_THAT(c.engine.Explain("x-0", kNow + 2)->dominant, HasSubstr("schedulingBackoff 1"));
  c.engine.Apply(group);  // somebody touched it
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 3)), "bind x-0 n2\n");
}

TEST(EngineTest, ALimitIsToldToThePods) {
  Cluster c;
  QueueSpec limited = MakeQueue("a", "root", 1);
  limited.gpu.limit = 0;
  c.engine.Apply(limited);
  c.Add(MakeGroup("x", "a", 1), {MakePod("x", 0, 1)});
  const CycleResult result = c.engine.Run(kNow);
  ASSERT_EQ(result.verdicts.size(), 1u);
  ASSERT_EQ(result.verdicts[0].pods.size(), 1u);
  EXPECT_EQ(result.verdicts[0].pods[0].uid, "x-0");
  EXPECT_THAT(result.verdicts[0].message, HasSubstr("allowable limit of GPUs"));
}

TEST(EngineTest, DeviceClaimsCountInQuotasFrom013On) {
  for (const char* name : {"kai-0.9", "kai-0.13"}) {
    Engine engine({*NamedProfile(name)});
    NodeSpec node = MakeNode("n1", 4);
    node.dra_gpus = 4;
    engine.Apply(node);
    engine.Apply(testing::MakeSlice("n1", {"d0", "d1", "d2", "d3"}));
    QueueSpec queue = MakeQueue("a", "", kUnlimited);
    queue.gpu.limit = 1;
    engine.Apply(queue);
    ClaimSpec claim;
    claim.ns = "t";
    claim.name = "two";
    claim.queue_label = "a";
    claim.requests.push_back({"r", "gpu.example.com", 2, false, {}});
    engine.Apply(claim);
    engine.Apply(MakeGroup("x", "a", 1));
    PodSpec pod = MakePod("x", 0, 0);
    pod.claims = {"two"};
    engine.Apply(pod);
    EXPECT_EQ(DecisionText(engine.Run(kNow)), std::string(name) == "kai-0.9" ? "bind x-0 n1\n" : "")
        << name;
  }
}

TEST(EngineTest, TheOnlyTimerIsTheReturnedTime) {
  Profile profile = *NamedProfile("kai-0.13");
  profile.reclaim_min_runtime = 60'000;
  Cluster c(profile);
  PodGroupSpec young = MakeGroup("y", "a", 1);
  young.last_start = kNow - 10'000;
  c.Add(MakeGroup("x", "a", 1), {MakePod("x", 0, 1, "n1")});
  PodGroupSpec elder = MakeGroup("x", "a", 1);
  elder.last_start = kNow - 20'000;
  c.engine.Apply(elder);
  c.Add(young, {MakePod("y", 0, 1, "n1")});
  c.Add(MakeGroup("z", "b", 1), {MakePod("z", 0, 1)});
  const CycleResult result = c.engine.Run(kNow);
  EXPECT_EQ(DecisionText(result), "");
  EXPECT_EQ(result.earliest, kNow + 40'000);
  EXPECT_THAT(DecisionText(c.engine.Run(result.earliest)), HasSubstr("evict x-0"));
}

TEST(EngineTest, DisruptionBudgetsHoldEvictionsBack) {
  // Differs from KAI, which never reads them.
  Profile profile = *NamedProfile("kai-0.13");
  profile.budgets = true;
  Cluster c(profile);
  PodSpec guarded = MakePod("y", 0, 1, "n1");
  guarded.labels = {{"app", "web"}};
  c.Add(MakeGroup("x", "a", 1), {MakePod("x", 0, 1, "n1")});
  c.Add(MakeGroup("y", "a", 1), {guarded});
  c.engine.Apply(DisruptionBudget{"t", "web", {{"app", SelectorOperator::kIn, {"web"}}}, 0});
  c.Add(MakeGroup("z", "b", 1), {MakePod("z", 0, 1)});
  const std::string text = DecisionText(c.engine.Run(kNow));
  EXPECT_EQ(text.find("evict y-0"), std::string::npos) << text;
}

TEST(EngineTest, AQueueMayLimitOneGpuModel) {
  // Differs from KAI, where a quota is one number for all models.
  Engine engine({*NamedProfile("kai-0.13")});
  for (const char* model : {"H100", "L4"}) {
    NodeSpec node = MakeNode(std::string("n-") + model, 4);
    node.labels.emplace_back("nvidia.com/gpu.product", model);
    engine.Apply(node);
  }
  QueueSpec queue = MakeQueue("a", "", kUnlimited);
  queue.model_limits = {{"H100", 1}};
  engine.Apply(queue);
  engine.Apply(MakeGroup("x", "a", 1));
  for (int i = 0; i < 5; ++i) {
    engine.Apply(MakePod("x", i, 1));
  }
  engine.Run(kNow);
  const State& state = engine.state();
  EXPECT_EQ(state.hot[static_cast<std::size_t>(state.FindNode("n-H100"))].idle[kGpu], 3 * kDevice);
  EXPECT_EQ(state.hot[static_cast<std::size_t>(state.FindNode("n-L4"))].idle[kGpu], 0);
}

TEST(EngineTest, AGangThatWaitedLongKeepsNodesFree) {
  // Differs from KAI, where small jobs may starve a large gang for ever.
  Profile profile = *NamedProfile("kai-0.13");
  profile.backfill = true;
  profile.actions = {Action::kAllocate};
  Cluster c(profile, 2);
  PodGroupSpec gang = MakeGroup("gang", "a", 2, 75);
  gang.created = kNow - 600'000;
  c.Add(MakeGroup("x", "a", 1), {MakePod("x", 0, 1, "n1")});
  c.Add(gang, {MakePod("gang", 0, 1), MakePod("gang", 1, 1)});
  c.Add(MakeGroup("small", "a", 1), {MakePod("small", 0, 1)});
  EXPECT_EQ(DecisionText(c.engine.Run(kNow)), "");
  c.engine.DeletePod("x-0");
  EXPECT_EQ(DecisionText(c.engine.Run(kNow + 1000)), "bind gang-0 n1\nbind gang-1 n1\n");
}

TEST(EngineTest, DevicesWithUuidsAreChosenAndSharedWithOthers) {
  Engine engine({*NamedProfile("kai-0.13")});
  NodeSpec node = MakeNode("n1", 2);
  constexpr std::int64_t kGiB = INT64_C(1) << 30;
  node.devices = {{"GPU-a", "H100", kGiB, kGiB / 2, true}, {"GPU-b", "H100", kGiB, kGiB, true}};
  engine.Apply(node);
  engine.Apply(MakeQueue("a", "", kUnlimited));
  engine.Apply(MakeGroup("whole", "a", 1));
  engine.Apply(MakePod("whole", 0, 1));
  CycleResult result = engine.Run(kNow);
  ASSERT_EQ(result.decisions.size(), 1u);
  EXPECT_EQ(result.decisions[0].gpu_devices, std::vector<std::string>{"GPU-b"});
  PodSpec part = MakePod("part", 0, 1);
  part.request.gpu = GpuKind::kFraction;
  part.request.portion = 0.4;
  engine.Apply(MakeGroup("part", "a", 1));
  engine.Apply(part);
  result = engine.Run(kNow + 1);
  ASSERT_EQ(result.decisions.size(), 1u);
  EXPECT_EQ(result.decisions[0].gpu_groups, std::vector<std::string>{"GPU-a"});
}

TEST(EngineTest, WhatIfOnACopyChangesNothing) {
  Cluster c;
  c.Add(MakeGroup("x", "a", 1), {MakePod("x", 0, 3)});
  c.engine.Run(kNow);
  const auto copy = c.engine.Clone();
  copy->Apply(MakeNode("n2", 4));
  EXPECT_EQ(DecisionText(copy->Run(kNow)), "bind x-0 n2\n");
  EXPECT_EQ(DecisionText(c.engine.Run(kNow)), "");
}

TEST(EngineTest, APodThatIsLeavingKeepsOthersAwayUntilItIsGone) {
  for (const char* name : {"kai-0.13", "default"}) {
    Engine engine({*NamedProfile(name)});
    engine.Apply(MakeNode("n1", 4));
    engine.Apply(MakeQueue("a", "", kUnlimited));
    PodSpec leaves = MakePod("x", 0, 1, "n1");
    leaves.phase = Phase::kReleasing;
    leaves.labels = {{"app", "db"}};
    PodAffinityTerm term;
    term.topology_key = "kubernetes.io/hostname";
    term.selector = {{"app", SelectorOperator::kIn, {"db"}}};
    term.namespaces = {"t"};
    leaves.constraints.anti_affinity = {term};
    leaves.constraints.ports = {{"", "TCP", 80}};
    PodSpec comes = MakePod("y", 0, 1);
    comes.labels = {{"app", "db"}};
    PodSpec serves = MakePod("z", 0, 1);
    serves.constraints.ports = {{"", "TCP", 80}};
    for (PodSpec* pod : {&leaves, &comes, &serves}) {
      engine.Apply(MakeGroup(pod->name.substr(0, 1), "a", 1));
      if (std::string(name) == "default") {
        pod->scheduler_name = "default-scheduler";
      }
      engine.Apply(*pod);
    }
    EXPECT_EQ(DecisionText(engine.Run(kNow)), "") << name;
    engine.DeletePod("x-0");
    EXPECT_EQ(DecisionText(engine.Run(kNow + 1)), "bind y-0 n1\nbind z-0 n1\n") << name;
  }
}

TEST(EngineTest, AGroupThatNamesNoSchedulerBelongsToThatOfItsPods) {
  Profile usual = *NamedProfile("kai-0.13");
  Profile other = *NamedProfile("kai-0.17");
  other.scheduler_names = {"other"};
  PodGroupSpec group = MakeGroup("x", "a", 1);
  group.scheduler_name.clear();
  PodSpec pod = MakePod("x", 0, 1);
  pod.scheduler_name = "other";
  for (const bool group_first : {true, false}) {
    Engine engine({usual, other});
    engine.Apply(MakeNode("n1", 1));
    engine.Apply(MakeQueue("a", "", 1));
    if (group_first) {
      engine.Apply(group);
    }
    engine.Apply(pod);
    engine.Apply(group);
    EXPECT_EQ(engine.state().job(engine.state().FindJob("t/x")).profile, 1);
    EXPECT_EQ(DecisionText(engine.Clone()->Run(kNow)), "bind x-0 n1\n");
    EXPECT_EQ(DecisionText(engine.Run(kNow)), "bind x-0 n1\n");
  }
  // Without pods it is the usual one's, and so are later pods of that name.
  Engine engine({usual, other});
  engine.Apply(MakeNode("n1", 1));
  engine.Apply(MakeQueue("a", "", 1));
  engine.Apply(group);
  EXPECT_EQ(engine.state().job(engine.state().FindJob("t/x")).profile, 0);
  pod.scheduler_name = "kai-scheduler";
  engine.Apply(pod);
  EXPECT_EQ(DecisionText(engine.Run(kNow)), "bind x-0 n1\n");
}

TEST(EngineTest, NobodyIsEvictedForAPlaceOutsideOfARequiredLevel) {
  Engine engine({*NamedProfile("kai-0.13")});
  for (const auto& [name, rack] : {std::pair{"n1", "r1"}, {"n2", "r2"}}) {
    NodeSpec node = MakeNode(name, 1);
    node.labels.emplace_back("rack", rack);
    engine.Apply(node);
  }
  engine.Apply(MakeQueue("a", "", kUnlimited));
  engine.Apply(TopologySpec{"dc", {"rack"}, {}});
  PodGroupSpec group = MakeGroup("x", "a", 1, 75);
  group.root.topology = TopologyConstraint{"dc", "rack", ""};
  engine.Apply(group);
  engine.Apply(MakePod("x", 0, 1, "n1"));
  engine.Apply(MakePod("x", 1, 1));
  engine.Apply(MakeGroup("low", "a", 1, 50));
  engine.Apply(MakePod("low", 0, 1, "n2"));
  EXPECT_EQ(DecisionText(engine.Run(kNow)), "");
}

TEST(EngineTest, ATopologyLevelMayBeNamedByItsAlias) {
  Engine engine({*NamedProfile("kai-0.17")});
  for (const auto& [name, rack] : {std::pair{"n1", "r1"}, {"n2", "r2"}, {"n3", "r2"}}) {
    NodeSpec node = MakeNode(name, 1);
    node.labels.emplace_back("rack", rack);
    engine.Apply(node);
  }
  engine.Apply(MakeQueue("a", "", kUnlimited));
  const auto topology = kube::ParseJson(
      R"({"metadata":{"name":"dc"},"spec":{"levels":[{"nodeLabel":"rack","alias":"cabinet"}]}})");
  ASSERT_TRUE(topology.ok());
  engine.Apply(TopologyFromJson(*topology));
  PodGroupSpec group = MakeGroup("x", "a", 2);
  group.root.topology = TopologyConstraint{"dc", "cabinet", ""};
  engine.Apply(group);
  engine.Apply(MakePod("x", 0, 1));
  engine.Apply(MakePod("x", 1, 1));
  EXPECT_EQ(DecisionText(engine.Run(kNow)), "bind x-0 n2\nbind x-1 n3\n");
}

TEST(EngineTest, QueuesAreListedInTreeOrder) {
  Cluster c;
  std::string names;
  for (const QueueView& queue : c.engine.Queues()) {
    names += std::string(static_cast<std::size_t>(queue.depth), '>') + queue.name + " ";
  }
  EXPECT_EQ(names, "root >a >b ");
}

PodSpec KubePod(const std::string& name, int priority, std::int64_t cpu,
                const std::string& node = "") {
  PodSpec pod = MakePod(name, 0, 0, node);
  pod.group.clear();
  pod.scheduler_name = "default-scheduler";
  pod.priority = priority;
  pod.request.cpu = cpu;
  return pod;
}

TEST(KubeProfileTest, SpreadsAndSaysWhyNot) {
  Engine engine({*NamedProfile("default")});
  engine.Apply(MakeNode("n1", 0, 4000));
  engine.Apply(MakeNode("n2", 0, 4000));
  engine.Apply(KubePod("first", 0, 2000, "n1"));
  engine.Apply(KubePod("second", 0, 1000));
  EXPECT_EQ(DecisionText(engine.Run(kNow)), "bind second-0 n2\n");
  engine.Apply(KubePod("huge", 0, 9000));
  const CycleResult result = engine.Run(kNow + 1);
  ASSERT_EQ(result.verdicts.size(), 1u);
  EXPECT_EQ(result.verdicts[0].pods[0].message,
            "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 "
            "No preemption victims found for incoming pod.");
}

TEST(KubeProfileTest, PreemptsWhereLeastIsLost) {
  Engine engine({*NamedProfile("default")});
  engine.Apply(MakeNode("n1", 0, 4000));
  engine.Apply(MakeNode("n2", 0, 4000));
  engine.Apply(KubePod("mid", 10, 4000, "n1"));
  engine.Apply(KubePod("low", 5, 2000, "n2"));
  engine.Apply(KubePod("other", 50, 2000, "n2"));
  engine.Apply(KubePod("vip", 100, 2000));
  EXPECT_EQ(DecisionText(engine.Run(kNow)), "evict low-0 n2\npromise vip-0 n2\n");
}

TEST(KubeProfileTest, FiltersOfKubeScheduler) {
  Engine engine({*NamedProfile("default")});
  NodeSpec tainted = MakeNode("n1", 0);
  tainted.taints = {{"dedicated", "x", "NoSchedule"}};
  tainted.labels.emplace_back("zone", "z1");
  NodeSpec plain = MakeNode("n2", 0);
  plain.labels.emplace_back("zone", "z2");
  engine.Apply(tainted);
  engine.Apply(plain);
  PodSpec pod = KubePod("a", 0, 100);
  pod.labels = {{"app", "a"}};
  pod.constraints.ports = {{"", "TCP", 80}};
  engine.Apply(pod);
  EXPECT_EQ(DecisionText(engine.Run(kNow)), "bind a-0 n2\n");
  PodSpec same = KubePod("b", 0, 100);
  same.constraints.ports = {{"", "TCP", 80}};
  engine.Apply(same);
  CycleResult result = engine.Run(kNow + 1);
  ASSERT_EQ(result.verdicts.size(), 1u);
  EXPECT_THAT(result.verdicts[0].message,
              HasSubstr("1 node(s) didn't have free ports for the requested pod ports"));
  EXPECT_THAT(result.verdicts[0].message,
              HasSubstr("1 node(s) had untolerated taint {dedicated: x}"));
  PodSpec spread = KubePod("c", 0, 100);
  spread.labels = {{"app", "a"}};
  spread.constraints.tolerations = {{"dedicated", true, "", ""}};
  spread.constraints.spread.push_back(
      {"zone", 1, 1, true, {{"app", SelectorOperator::kIn, {"a"}}}});
  engine.Apply(spread);
  EXPECT_EQ(DecisionText(engine.Run(kNow + 2)), "bind c-0 n1\n");
}

TEST(ConvertTest, PodsNodesQueuesAndGroups) {
  const auto pod = kube::ParseJson(
      R"({"metadata":{"name":"p","namespace":"ns","uid":"u1","labels":{"kai.scheduler/subgroup-name":"w"},
    "annotations":{"pod-group-name":"pg","gpu-fraction":"0.5","gpu-fraction-num-devices":"2"}},
    "spec":{"schedulerName":"kai-scheduler","nodeSelector":{"a":"b"},
      "initContainers":[{"resources":{"requests":{"cpu":"3"}}},{"restartPolicy":"Always","resources":{"requests":{"cpu":"500m"}}}],
      "containers":[{"resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"example.com/x":"2"}},"ports":[{"hostPort":80}]},{"resources":{"limits":{"cpu":"250m"}}}],
      "tolerations":[{"operator":"Exists"}],
      "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"z","operator":"In","values":["1"]}]}]}}}}})");
  ASSERT_TRUE(pod.ok());
  const PodSpec spec = PodFromJson(*pod);
  EXPECT_EQ(spec.group, "ns/pg");
  EXPECT_EQ(spec.sub_group, "w");
  EXPECT_EQ(spec.request.cpu,
            3000);  // the first init container asks for more than all others together
  EXPECT_EQ(spec.request.memory, INT64_C(1) << 30);
  EXPECT_EQ(spec.request.gpu, GpuKind::kFraction);
  EXPECT_EQ(spec.request.gpu_count, 2);
  EXPECT_EQ(spec.request.scalars.size(), 1u);
  EXPECT_EQ(spec.constraints.ports.size(), 1u);
  EXPECT_TRUE(spec.constraints.has_affinity);
  EXPECT_TRUE(spec.constraints.tolerations[0].exists);
  EXPECT_EQ(spec.phase, Phase::kPending);
  const auto node =
      kube::ParseJson(R"({"metadata":{"name":"n","labels":{"x":"y"}},"spec":{"unschedulable":true},
    "status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110","nvidia.com/gpu":"2"},"conditions":[{"type":"Ready","status":"True"}]}})");
  const NodeSpec n = NodeFromJson(*node);
  EXPECT_EQ(n.cpu, 4000);
  EXPECT_EQ(n.gpus, 2);
  EXPECT_TRUE(n.unschedulable);
  EXPECT_TRUE(n.ready);
  const auto queue = kube::ParseJson(
      R"({"metadata":{"name":"q"},"spec":{"parentQueue":"p","resources":{"gpu":{"quota":2,"limit":-1,"overQuotaWeight":3},
    "memory":{"quota":5,"limit":-1}},"reclaimMinRuntime":"90s"}})");
  const QueueSpec q = QueueFromJson(*queue);
  EXPECT_EQ(q.gpu.quota, 2);
  EXPECT_EQ(q.gpu.limit, kUnlimited);
  EXPECT_EQ(q.memory.quota, 5e6);
  EXPECT_EQ(q.cpu.limit, 0);
  EXPECT_EQ(q.reclaim_min_runtime, 90'000);
  const auto group = kube::ParseJson(
      R"({"metadata":{"name":"g","namespace":"ns","uid":"u2"},"spec":{"queue":"q","priorityClassName":"train",
    "subGroups":[{"name":"top","minSubGroup":1},{"name":"x","parent":"top","minMember":2},{"name":"y","parent":"top","minMember":3}]}})");
  const PodGroupSpec g = PodGroupFromJson(*group, [](const std::string& name) {
    return name == "train" ? std::optional<int>(50) : std::nullopt;
  });
  EXPECT_EQ(g.priority, 50);
  ASSERT_EQ(g.root.groups.size(), 1u);
  EXPECT_EQ(g.root.groups[0].min_sub_group, 1);
  EXPECT_EQ(g.root.groups[0].pod_sets[1].min_available, 3);
}

TEST(CasesTest, UnknownWordsFailTheCase) {
  const std::string text = testing::ReadFile(testing::SourceFile("scheduler/testdata/cases.json"));
  const auto problem = [&](std::string from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    const auto outcomes = RunCases(changed, *NamedProfile("kai-0.13"));
    return outcomes.ok() && !outcomes->front().problems.empty() ? outcomes->front().problems.front()
                                                                : "";
  };
  EXPECT_THAT(problem("[\"allocate\"]", "[\"alocate\"]"), HasSubstr("unknown action \"alocate\""));
  EXPECT_THAT(problem("\"mode\":\"single\"", "\"mode\":\"twice\""), HasSubstr("unknown mode"));
  EXPECT_THAT(problem("\"state\":\"Pending\"", "\"state\":\"Waiting\""),
              HasSubstr("unknown state \"Waiting\" of task solo-0"));
}

TEST(ConvertTest, WhatAPodMountsMustExist) {
  const auto pod = kube::ParseJson(R"({"metadata":{"name":"p","namespace":"ns"},"spec":{
    "volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"disk"}},{"name":"e","ephemeral":{}},
      {"name":"m","configMap":{"name":"map"}},{"name":"unused","configMap":{"name":"nobody"}},
      {"name":"j","projected":{"sources":[{"configMap":{"name":"maybe","optional":true}},{"configMap":{"name":"part"}}]}}],
    "containers":[{"volumeMounts":[{"name":"m"},{"name":"j"}],"envFrom":[{"configMapRef":{"name":"env"}}],
      "env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"key"}}}]}]}})");
  ASSERT_TRUE(pod.ok());
  const VolumeRefs refs = VolumesOf(*pod);
  EXPECT_EQ(refs.claims, (std::vector<std::string>{"disk", "p-e"}));
  EXPECT_EQ(refs.config_maps, (std::vector<std::string>{"env", "key", "map", "part"}));
  const auto reason = [&](std::optional<VolumeClaimFacts> claim,
                          std::optional<StorageClassFacts> storage) {
    PodLookups lookups;
    lookups.volume_claim = [&](const std::string&, const std::string&) { return claim; };
    lookups.storage_class = [&](const std::string&) { return storage; };
    lookups.volume = [](const std::string&) {
      return std::optional(VolumeFacts{{NodeTerm{}}, "", ""});
    };
    PodSpec spec;
    ResolveVolumes({{"disk"}, {}}, lookups, &spec);
    return spec.unschedulable_reason + (spec.constraints.volumes.empty() ? "" : "node terms");
  };
  EXPECT_EQ(reason(std::nullopt, {}), "persistentvolumeclaim \"disk\" not found");
  EXPECT_EQ(reason(VolumeClaimFacts{true, false, "v", ""}, {}),
            "persistentvolumeclaim \"disk\" is being deleted");
  EXPECT_EQ(reason(VolumeClaimFacts{false, true, "v", ""}, {}),
            "persistentvolumeclaim \"disk\" bound to non-existent persistentvolume \"v\"");
  EXPECT_EQ(reason(VolumeClaimFacts{false, false, "", "s"}, StorageClassFacts{false, {}}),
            "pod has unbound immediate PersistentVolumeClaims");
  EXPECT_EQ(reason(VolumeClaimFacts{false, false, "", "s"}, StorageClassFacts{true, {NodeTerm{}}}),
            "node terms");
  EXPECT_EQ(reason(VolumeClaimFacts{false, false, "", "s"}, std::nullopt),
            "pod has unbound immediate PersistentVolumeClaims");
  EXPECT_EQ(reason(VolumeClaimFacts{false, false, "v", "s"}, StorageClassFacts{false, {}}),
            "node terms");
  // A tenant that is not shown its host's classes leaves the binding to the host.
  PodLookups blind;
  blind.volume_claim = [](const std::string&, const std::string&) {
    return std::optional(VolumeClaimFacts{false, false, "", "s", "u"});
  };
  blind.storage_class = [](const std::string&) { return std::optional<StorageClassFacts>(); };
  blind.classes_known = false;
  PodSpec waits_for_nothing;
  ResolveVolumes({{"disk"}, {}}, blind, &waits_for_nothing);
  EXPECT_EQ(waits_for_nothing.unschedulable_reason, "");
  PodLookups none;
  none.config_map_exists = [](const std::string&, const std::string& name) {
    return name == "map";
  };
  PodSpec spec;
  ResolveVolumes(refs, none, &spec);
  EXPECT_EQ(spec.unschedulable_reason, "Missing required configmaps: [env key part]");
}

}  // namespace
}  // namespace sublet::scheduler
