// The engine from event to decision: what is assumed, refused, tried again and said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::Cluster;
using testing::DecisionText;
using ::testing::HasSubstr;
using testing::kNow;
using testing::MakeGroup;
using testing::MakeNode;
using testing::MakePod;
using testing::MakeQueue;

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

TEST(EngineTest, QueuesAreListedInTreeOrder) {
  Cluster c;
  std::string names;
  for (const QueueView& queue : c.engine.Queues()) {
    names += std::string(static_cast<std::size_t>(queue.depth), '>') + queue.name + " ";
  }
  EXPECT_EQ(names, "root >a >b ");
}

}  // namespace
}  // namespace sublet::scheduler
