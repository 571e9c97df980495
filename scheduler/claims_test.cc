// Resource claims: who pays for their devices, who keeps them, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scheduler/convert.h"
#include "scheduler/device_selector.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::DecisionText;
using ::testing::HasSubstr;
using testing::kNow;
using testing::MakeClaim;
using testing::MakeGroup;
using testing::MakeNode;
using testing::MakePod;
using testing::MakeQueue;
using testing::MakeSlice;

kube::Json ClaimObject(const kube::Json& request) {
  return {{"metadata", {{"name", "c"}, {"namespace", "t"}, {"uid", "u"}}},
          {"spec", {{"devices", {{"requests", kube::Json::array({request})}}}}}};
}

TEST(ClaimsTest, WhatIsNotUnderstoodIsRefusedWithAReason) {
  const auto problem = [](kube::Json exactly) {
    return ClaimFromJson(ClaimObject({{"name", "r"}, {"exactly", std::move(exactly)}})).problem;
  };
  EXPECT_EQ(problem({{"deviceClassName", "gpu"}}), "");
  EXPECT_THAT(ClaimFromJson(ClaimObject({{"name", "r"}, {"newForm", {}}})).problem,
              HasSubstr("asks for nothing that is known here"));
  EXPECT_THAT(problem({{"deviceClassName", "gpu"}, {"allocationMode", "Some"}}),
              HasSubstr("allocation mode Some is not supported"));
  EXPECT_THAT(
      problem({{"deviceClassName", "gpu"},
               {"selectors", {{{"cel", {{"expression", "device.driver.matches('x')"}}}}}}}),
      HasSubstr("cannot be evaluated by this scheduler: the function matches is not known"));
  kube::Json constrained = ClaimObject({{"name", "r"}, {"exactly", {{"deviceClassName", "gpu"}}}});
  constrained["spec"]["devices"]["constraints"] = {{{"newConstraint", "a/b"}}};
  EXPECT_THAT(ClaimFromJson(constrained).problem, HasSubstr("a constraint between devices"));

  ClaimSpec unknown =
      ClaimFromJson(ClaimObject({{"name", "r"}, {"exactly", {{"deviceClassName", "gpu"}}}}));
  ResolveClasses([](const std::string&) { return std::nullopt; }, &unknown);
  Engine engine({*NamedProfile("default")});
  engine.Apply(MakeNode("n1", 0));
  engine.Apply(unknown);
  PodSpec pod = MakePod("x", 0, 0);
  pod.scheduler_name = "default-scheduler";
  pod.claims = {"c"};
  engine.Apply(pod);
  const CycleResult result = engine.Run(kNow);
  ASSERT_EQ(result.verdicts.size(), 1u);
  EXPECT_THAT(result.verdicts[0].message, HasSubstr("device class gpu does not exist"));
}

class SharedClaimTest : public ::testing::Test {
 protected:
  SharedClaimTest() : engine_({*NamedProfile("kai-0.13")}) {
    for (const char* name : {"n1", "n2"}) {
      NodeSpec node = MakeNode(name, 4);
      node.dra_gpus = 4;
      engine_.Apply(node);
      engine_.Apply(MakeSlice(name, {"d0", "d1", "d2", "d3"}));
    }
    QueueSpec queue = MakeQueue("a", "", kUnlimited);
    queue.gpu.limit = 2;
    engine_.Apply(queue);
    engine_.Apply(MakeGroup("x", "a", 2));
    for (int i = 0; i < 2; ++i) {
      pods_.push_back(MakePod("x", i, 0));
      pods_.back().claims = {"shared"};
      engine_.Apply(pods_.back());
    }
  }

  double Allocated() {
    for (const QueueView& view : engine_.Queues()) {
      if (view.name == "a") {
        return view.share.r[kGpu].allocated;
      }
    }
    return -1;
  }
  std::int64_t IdleGpus(const char* node) {
    const State& state = engine_.state();
    return state.hot[static_cast<std::size_t>(state.FindNode(node))].idle[kGpu] / kDevice;
  }

  Engine engine_;
  std::vector<PodSpec> pods_;
};

TEST_F(SharedClaimTest, IsChargedOnceAndGoesOnBeingChargedWhileSomebodyUsesIt) {
  engine_.Apply(MakeClaim("shared", 2, "a"));
  const CycleResult result = engine_.Run(kNow);
  // Both, on the node that has the devices, though the limit is what one of them asks.
  EXPECT_EQ(DecisionText(result), "bind x-0 n1\nbind x-1 n1\n");
  ASSERT_EQ(result.decisions.size(), 2u);
  for (const Decision& decision : result.decisions) {
    ASSERT_EQ(decision.claims.size(), 1u);
    EXPECT_EQ(decision.claims[0].allocated.size(), 2u);
    EXPECT_EQ(decision.claims[0].allocated_for, (std::vector<std::string>{"r", "r"}));
  }
  EXPECT_EQ(Allocated(), 2);
  EXPECT_EQ(IdleGpus("n1"), 2);
  // The first ends; the API still counts it as reserved for the second.
  pods_[0].node = pods_[1].node = "n1";
  pods_[0].phase = Phase::kSucceeded;
  pods_[1].phase = Phase::kRunning;
  engine_.Apply(pods_[0]);
  engine_.Apply(pods_[1]);
  EXPECT_EQ(Allocated(), 2);
  EXPECT_EQ(IdleGpus("n1"), 2);
  ClaimSpec claim = engine_.state().claims.at("t/shared");
  claim.reserved_for = {"x-1"};
  engine_.Apply(claim);
  EXPECT_EQ(Allocated(), 2);
  // The second ends too, and the controller frees the claim.
  engine_.DeletePod("x-1");
  engine_.DeletePod("x-0");
  claim.reserved_for.clear();
  claim.allocated.clear();
  claim.allocated_for.clear();
  engine_.Apply(claim);
  EXPECT_EQ(Allocated(), 0);
  EXPECT_EQ(IdleGpus("n1"), 4);
}

TEST_F(SharedClaimTest, OverTheLimitNobodyGetsIt) {
  engine_.Apply(MakeClaim("shared", 3, "a"));
  const CycleResult result = engine_.Run(kNow);
  EXPECT_EQ(DecisionText(result), "");
  ASSERT_EQ(result.verdicts.size(), 1u);
  EXPECT_THAT(result.verdicts[0].message, HasSubstr("workload requested 3 GPUs"));
}

TEST_F(SharedClaimTest, AnAllocationOutlivesTheEventsThatDoNotShowItYet) {
  const ClaimSpec claim = MakeClaim("shared", 2, "a");
  engine_.Apply(claim);
  engine_.Run(kNow);
  engine_.Apply(claim);     // as it was before: the status is not written yet
  engine_.Apply(pods_[0]);  // not bound yet
  EXPECT_EQ(engine_.state().claims.at("t/shared").allocated.size(), 2u);
  EXPECT_EQ(engine_.state().claims.at("t/shared").reserved_for.size(), 2u);
  // A bind that failed gives its part back, the last one the devices.
  engine_.BindFailed("x-0", kNow);
  EXPECT_EQ(engine_.state().claims.at("t/shared").allocated.size(), 2u);
  EXPECT_EQ(Allocated(), 2);
  engine_.BindFailed("x-1", kNow);
  EXPECT_TRUE(engine_.state().claims.at("t/shared").allocated.empty());
  EXPECT_EQ(Allocated(), 0);
  EXPECT_EQ(IdleGpus("n1"), 4);
}

TEST_F(SharedClaimTest, AVictimIsPromisedOnlyDevicesThatNobodyHolds) {
  Engine engine({*NamedProfile("kai-0.13")});
  for (const char* name : {"n1", "n2"}) {
    NodeSpec node = MakeNode(name, 1);
    node.dra_gpus = 1;
    engine.Apply(node);
    engine.Apply(MakeSlice(name, {"d0"}));
  }
  engine.Apply(MakeQueue("a", "", kUnlimited));
  const auto add = [&](const char* name, int priority, const char* node, Phase phase) {
    engine.Apply(MakeGroup(name, "a", 1, priority));
    ClaimSpec claim = MakeClaim(std::string("c-") + name, 1, "a");
    PodSpec pod = MakePod(name, 0, 0, node);
    pod.phase = phase;
    pod.claims = {claim.name};
    if (*node != '\0') {
      claim.allocated = {{MakeSlice(node, {}).driver, MakeSlice(node, {}).pool, "d0"}};
      claim.allocated_for = {"r"};
      claim.reserved_for = {pod.uid};
    }
    engine.Apply(claim);
    engine.Apply(pod);
  };
  add("leaves", 50, "n1", Phase::kReleasing);
  add("victim", 50, "n2", Phase::kRunning);
  add("winner", 75, "", Phase::kPending);
  // The device on n1 is being freed, but its claim still holds it.
  EXPECT_EQ(DecisionText(engine.Run(kNow)), "evict victim-0 n2\npromise winner-0 n2\n");
}

TEST_F(SharedClaimTest, APodThatIsShownOnItsNodeKeepsWhatItsClaimGot) {
  engine_.Apply(MakeClaim("shared", 2, "a"));
  engine_.Run(kNow);
  // The claim as written comes first, the pod as bound second: no other event of the claim follows.
  engine_.Apply(ClaimSpec(engine_.state().claims.at("t/shared")));
  for (PodSpec& pod : pods_) {
    pod.node = "n1";
    engine_.Apply(pod);
  }
  EXPECT_EQ(engine_.state().claims.at("t/shared").allocated.size(), 2u);
  EXPECT_EQ(engine_.state().claims.at("t/shared").reserved_for.size(), 2u);
  EXPECT_EQ(Allocated(), 2);
}

TEST(ClaimsTest, DevicesComeFromTheNewestCompleteGenerationAndFitTheirRequests) {
  Engine engine({*NamedProfile("default")});
  engine.Apply(MakeNode("n1", 0));
  engine.Apply(MakeNode("n2", 0));
  DeviceSlice old = MakeSlice("n1", {"a", "b"});
  engine.Apply(old);
  DeviceSlice fresh = MakeSlice("n1", {"b", "c"});
  fresh.name = "fresh";
  fresh.generation = 1;
  fresh.pool_slices = 2;
  engine.Apply(fresh);
  ClaimSpec claim = MakeClaim("c", 1, "");
  // The first request would take whatever comes; the second only takes "b".
  claim.requests = {{"any", "x.example.com", 1, false, {}}, {"big", "x.example.com", 1, false, {}}};
  claim.requests[1].selectors = {
      *DeviceSelector::Parse(R"(device.attributes["gpu.example.com"].size == "big")")};
  engine.Apply(claim);
  PodSpec pod = MakePod("x", 0, 0);
  pod.scheduler_name = "default-scheduler";
  pod.claims = {"c"};
  engine.Apply(pod);
  const CycleResult waiting = engine.Run(kNow);
  ASSERT_EQ(waiting.verdicts.size(), 1u);
  EXPECT_THAT(waiting.verdicts[0].message, HasSubstr("cannot allocate all claims"));
  fresh.pool_slices = 1;
  fresh.devices[0].attributes["gpu.example.com/size"] = {DeviceAttribute::Kind::kText, "big", 0};
  engine.Apply(fresh);
  const CycleResult result = engine.Run(kNow + 1);
  ASSERT_EQ(DecisionText(result), "bind x-0 n1\n");
  EXPECT_EQ(result.decisions[0].claims[0].allocated_for, (std::vector<std::string>{"any", "big"}));
  EXPECT_EQ(result.decisions[0].claims[0].allocated[0].device, "c");
  EXPECT_EQ(result.decisions[0].claims[0].allocated[1].device, "b");
}

}  // namespace
}  // namespace sublet::scheduler
