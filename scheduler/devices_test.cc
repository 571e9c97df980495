// Dynamic resource allocation in the engine: which devices a claim gets, who pays for it, and what
// is refused.
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

SliceDevice Device() {
  SliceDevice device;
  device.name = "gpu-0";
  device.attributes["gpu.example.com/model"] = {DeviceAttribute::Kind::kText, "LATEST-GPU", 0};
  device.attributes["gpu.example.com/index"] = {DeviceAttribute::Kind::kNumber, "", 3};
  device.attributes["gpu.example.com/ecc"] = {DeviceAttribute::Kind::kBool, "", 1};
  device.capacity["gpu.example.com/memory"] = "80Gi";
  return device;
}

PodSpec KubePod(const std::string& name, const std::string& node = "") {
  PodSpec pod = MakePod(name, 0, 0, node);
  pod.scheduler_name = "default-scheduler";
  pod.group.clear();
  return pod;
}

TEST(DeviceSelectorTest, ChoosesDevicesAsCelWould) {
  const std::pair<const char*, bool> cases[] = {
      {R"(device.driver == "gpu.example.com")", true},
      {R"(device.driver == 'other.example.com')", false},
      {R"(device.driver != "x" && device.attributes["gpu.example.com"].model == "LATEST-GPU")",
       true},
      {R"(device.attributes["gpu.example.com"]["index"] >= 3)", true},
      {R"(device.attributes["gpu.example.com"].index in ["3"])", false},
      {R"(device.attributes["gpu.example.com"].model in ["A", "LATEST-GPU"])", true},
      {R"(device.attributes["gpu.example.com"].ecc)", true},
      {R"(!device.attributes["gpu.example.com"].ecc)", false},
      {R"(device.attributes["gpu.example.com"].model.lowerAscii().startsWith("latest"))", true},
      {R"(device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) > 0)", true},
      {R"(device.capacity["gpu.example.com"].memory.isLessThan(quantity("40Gi")))", false},
      {R"(has(device.attributes["gpu.example.com"].serial))", false},
      // What the device does not have is no match, except where the other side decides.
      {R"(device.attributes["gpu.example.com"].serial == "1")", false},
      {R"(device.attributes["gpu.example.com"].serial == "1" || true)", true},
      {R"(!(device.attributes["gpu.example.com"].serial == "1"))", false},
  };
  for (const auto& [text, matches] : cases) {
    const auto selector = DeviceSelector::Parse(text);
    ASSERT_TRUE(selector.ok()) << text << ": " << selector.error().message();
    EXPECT_EQ((*selector)->Matches("gpu.example.com", Device()), matches) << text;
  }
  for (const char* text : {"", "device.driver ==", "device.driver == \"a", "device.name == \"x\"",
                           "true true", "device.driver.matches(\"g.*\")", "semver(\"1.0.0\")",
                           "1 +1 == 2", "[1] == [1]", "device.driver == \"a\" ? true : false"}) {
    EXPECT_FALSE(DeviceSelector::Parse(text).ok()) << text;
  }
  EXPECT_FALSE(DeviceSelector::Parse(std::string(200, '(') + "true" + std::string(200, ')')).ok());
}

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

// A claim, a slice and a pod as the API shows them; what one cycle makes of them.
class DeviceSearchTest : public ::testing::Test {
 protected:
  DeviceSearchTest() : engine_({*NamedProfile("default")}) {
    for (const char* name : {"n1", "n2"}) {
      engine_.Apply(MakeNode(name, 0));
    }
  }

  void Slice(const std::string& name, const std::string& spec) {
    const auto object = kube::ParseJson(R"({"metadata":{"name":")" + name + R"("},"spec":{
      "driver":"d.io","pool":{"name":"p","generation":1,"resourceSliceCount":0},)" +
                                        spec + "}}");
    ASSERT_TRUE(object.ok()) << spec;
    engine_.Apply(SliceFromJson(*object));
  }
  void Claim(const std::string& name, const std::string& devices) {
    const auto object =
        kube::ParseJson(R"({"metadata":{"name":")" + name + R"(","namespace":"t","uid":")" + name +
                        R"("},"spec":{"devices":{)" + devices + "}}}");
    ASSERT_TRUE(object.ok()) << devices;
    ClaimSpec claim = ClaimFromJson(*object);
    ResolveClasses([](const std::string&) { return DeviceClassFacts{}; }, &claim);
    EXPECT_EQ(claim.problem, "");
    engine_.Apply(claim);
    PodSpec pod = KubePod(name);
    pod.claims = {name};
    engine_.Apply(pod);
  }
  // "claim@node request=device ..." of everything that is bound, a line each.
  std::string Run() {
    std::string text;
    result_ = engine_.Run(++now_);
    for (const Decision& decision : result_.decisions) {
      for (const ClaimSpec& claim : decision.claims) {
        text += claim.name + "@" + decision.node;
        for (std::size_t i = 0; i < claim.allocated.size(); ++i) {
          text += " " + claim.allocated_for[i] + "=" + claim.allocated[i].device;
        }
        text += "\n";
      }
    }
    return text;
  }

  Engine engine_;
  CycleResult result_;
  Millis now_ = kNow;
};

std::string Gpu(const std::string& name, const std::string& more = "") {
  return R"({"name":")" + name + "\"" + (more.empty() ? "" : "," + more) + "}";
}
std::string Numa(int numa) {
  return R"("attributes":{"d.io/numa":{"int":)" + std::to_string(numa) + "}}";
}
std::string Exactly(const std::string& name, const std::string& more = "") {
  return R"({"name":")" + name + R"(","exactly":{"deviceClassName":"c")" +
         (more.empty() ? "" : "," + more) + "}}";
}

TEST_F(DeviceSearchTest, ConstraintsAreSolvedBySearchAndNotByTakingWhatComesFirst) {
  Slice("a", R"("nodeName":"n1","devices":[)" + Gpu("g0", Numa(0)) + "," + Gpu("g1", Numa(1)) +
                 "," + Gpu("g2", Numa(1)) + "," + Gpu("g3") + "]");
  Claim("same", R"("requests":[)" + Exactly("a") + "," + Exactly("b") +
                    R"(],"constraints":[{"matchAttribute":"d.io/numa"}])");
  EXPECT_EQ(Run(), "same@n1 a=g1 b=g2\n");
  Claim("other", R"("requests":[)" + Exactly("a", R"("count":2)") +
                     R"(],"constraints":[{"matchAttribute":"d.io/numa","requests":["a"]}])");
  EXPECT_EQ(Run(), "") << "g0 is alone there, and g3 says nothing";
  engine_.DeletePod("same-0");
  engine_.DeleteClaim("t/same");
  Claim("differ", R"("requests":[)" + Exactly("a", R"("count":2)") +
                      R"(],"constraints":[{"distinctAttribute":"d.io/numa"}])");
  EXPECT_THAT(Run(), ::testing::AnyOf("differ@n1 a=g0 a=g1\n", "other@n1 a=g1 a=g2\n"));
}

TEST_F(DeviceSearchTest, TheFirstAlternativeThatCanBeHadIsTaken) {
  Slice("a", R"("nodeName":"n1","devices":[)" + Gpu("g0") + "," + Gpu("g1") + "]");
  const std::string either =
      R"("requests":[{"name":"r","firstAvailable":[{"name":"two","deviceClassName":"c","count":2},)"
      R"({"name":"one","deviceClassName":"c"}]}])";
  Claim("c1", either);
  EXPECT_EQ(Run(), "c1@n1 r/two=g0 r/two=g1\n");
  engine_.DeletePod("c1-0");
  engine_.DeleteClaim("t/c1");
  Claim(
      "c2",
      R"("requests":[)" + Exactly("x") +
          R"(,{"name":"r","firstAvailable":[)"
          R"({"name":"two","deviceClassName":"c","count":2},{"name":"one","deviceClassName":"c"}]}])");
  EXPECT_EQ(Run(), "c2@n1 x=g0 r/one=g1\n");
}

TEST_F(DeviceSearchTest, TaintsKeepOffWhoDoesNotTolerateThemAndAdministratorsLookOn) {
  Slice("a", R"("nodeName":"n1","devices":[)" +
                 Gpu("g0", R"("taints":[{"key":"broken","value":"yes","effect":"NoSchedule"}])") +
                 "]");
  Claim("plain", R"("requests":[)" + Exactly("r") + "]");
  EXPECT_EQ(Run(), "");
  const std::string tolerates =
      R"("tolerations":[{"key":"broken","operator":"Exists","effect":"NoSchedule"}])";
  Claim("tolerant", R"("requests":[)" + Exactly("r", tolerates) + "]");
  EXPECT_EQ(Run(), "tolerant@n1 r=g0\n");
  Claim("admin", R"("requests":[)" +
                     Exactly("r", R"("adminAccess":true,"allocationMode":"All",)" + tolerates) +
                     "]");
  EXPECT_EQ(Run(), "admin@n1 r=g0\n");
  ASSERT_EQ(result_.decisions.size(), 1u);
  EXPECT_TRUE(result_.decisions[0].claims[0].holds.at(0).admin);
  EXPECT_EQ(engine_.Run(++now_).decisions.size(), 0u);
}

TEST_F(DeviceSearchTest, PartitionsShareTheCountersOfTheirPool) {
  const auto use = [](int memory) {
    return R"("consumesCounters":[{"counterSet":"gpu0","counters":{"memory":{"value":")" +
           std::to_string(memory) + R"(Gi"}}}])";
  };
  Slice(
      "counters",
      R"("nodeName":"n1","sharedCounters":[{"name":"gpu0","counters":{"memory":{"value":"80Gi"}}}])");
  Slice(
      "devices",
      R"("nodeName":"n1","devices":[)" + Gpu("full", use(80)) + "," + Gpu("half0", use(40)) + "," +
          Gpu("half1", use(40)) + "," +
          Gpu("lost",
              R"("consumesCounters":[{"counterSet":"none","counters":{"memory":{"value":"1"}}}])") +
          "]");
  Claim("two", R"("requests":[)" + Exactly("r", R"("count":2)") + "]");
  EXPECT_EQ(Run(), "two@n1 r=half0 r=half1\n") << "the entire device leaves no room for a part";
  Claim("more", R"("requests":[)" + Exactly("r") + "]");
  EXPECT_EQ(Run(), "");
  engine_.DeletePod("two-0");
  engine_.DeleteClaim("t/two");
  EXPECT_EQ(Run(), "more@n1 r=full\n");
}

TEST_F(DeviceSearchTest, ASharedDeviceIsGivenOutInPartsAsItsPolicyRoundsThem) {
  Slice("a",
        R"("nodeName":"n1","devices":[)" +
            Gpu("g0",
                R"("allowMultipleAllocations":true,"capacity":{"memory":{"value":"40Gi",)"
                R"("requestPolicy":{"default":"10Gi","validRange":{"min":"5Gi","step":"5Gi"}}}})") +
            "]");
  const auto ask = [](const std::string& amount) {
    return R"("requests":[)" +
           Exactly("r", R"("capacity":{"requests":{"memory":")" + amount + R"("}})") + "]";
  };
  Claim("c1", ask("12Gi"));
  EXPECT_EQ(Run(), "c1@n1 r=g0\n");
  ASSERT_EQ(result_.decisions.size(), 1u);
  EXPECT_EQ(result_.decisions[0].claims[0].holds.at(0).parts.at("d.io/memory"),
            (INT64_C(15) << 30) * 1000);
  Claim("c2", R"("requests":[)" + Exactly("r") + "]");
  EXPECT_EQ(Run(), "c2@n1 r=g0\n") << "10Gi when nothing is said";
  Claim("c3", ask("16Gi"));
  EXPECT_EQ(Run(), "") << "20Gi, and 15 are left";
  Claim("c4", ask("15Gi"));
  EXPECT_EQ(Run(), "c4@n1 r=g0\n");
  // A device that is not shared only has to be large enough.
  Slice("b", R"("nodeName":"n2","devices":[)" +
                 Gpu("small", R"("capacity":{"memory":{"value":"8Gi"}})") + "," +
                 Gpu("large", R"("capacity":{"memory":{"value":"16Gi"}})") + "]");
  EXPECT_EQ(Run(), "c3@n2 r=large\n");
}

TEST_F(DeviceSearchTest, ASliceMaySayForEachDeviceWhereItIs) {
  Slice("a", R"("perDeviceNodeSelection":true,"devices":[)" + Gpu("g1", R"("nodeName":"n1")") +
                 "," + Gpu("g2", R"("nodeName":"n2")") + "," + Gpu("net", R"("allNodes":true)") +
                 "]");
  Claim("c1", R"("requests":[)" + Exactly("r", R"("count":2)") + "]");
  EXPECT_EQ(Run(), "c1@n1 r=g1 r=net\n");
  ASSERT_EQ(result_.decisions.size(), 1u);
  EXPECT_EQ(result_.decisions[0].claims[0].allocated_on->size(), 1u);
  Claim("c2", R"("requests":[)" + Exactly("r", R"("count":2)") + "]");
  EXPECT_EQ(Run(), "");
  engine_.DeletePod("c1-0");
  engine_.DeleteClaim("t/c1");
  engine_.DeleteNode("n1");
  EXPECT_EQ(Run(), "c2@n2 r=g2 r=net\n");
}

TEST_F(DeviceSearchTest, AHopelessChoiceEndsWithinItsBound) {
  std::string devices;
  for (int i = 0; i < 40; ++i) {
    devices += (i == 0 ? "" : ",") +
               Gpu("g" + std::to_string(100 + i),
                   R"("attributes":{"d.io/pair":{"int":)" + std::to_string(i % 20) + "}}");
  }
  Slice("a", R"("nodeName":"n1","devices":[)" + devices + "]");
  // Every value is there twice, and three are wanted: the search goes through all pairs and ends.
  Claim("pairs", R"("requests":[)" + Exactly("a", R"("count":3)") +
                     R"(],"constraints":[{"matchAttribute":"d.io/pair"}])");
  EXPECT_EQ(Run(), "");
  ASSERT_EQ(result_.verdicts.size(), 1u);
  EXPECT_THAT(result_.verdicts[0].message, HasSubstr("cannot allocate all claims"));
  // Twenty-one different values of twenty: more choices than the bound.
  Claim("many", R"("requests":[)" + Exactly("a", R"("count":21)") +
                    R"(],"constraints":[{"distinctAttribute":"d.io/pair"}])");
  EXPECT_EQ(Run(), "");
  ASSERT_GE(result_.verdicts.size(), 1u);
  bool said = false;
  for (const GroupVerdict& verdict : result_.verdicts) {
    said = said || verdict.message.find("no choice of devices was found in 10000 tries") !=
                       std::string::npos;
  }
  EXPECT_TRUE(said);
}

TEST(VolumeLimitTest, ANodeAttachesAsManyVolumesAsItsDriverAllows) {
  for (const char* name : {"default", "kai-0.13"}) {
    Engine engine({*NamedProfile(name)});
    NodeSpec node = MakeNode("n1", 0);
    node.volume_limits["csi.example.com"] = 2;
    engine.Apply(node);
    engine.Apply(MakeQueue("a", "", kUnlimited));
    PodSpec there = KubePod("there", "n1");
    there.attachments = {{"csi.example.com", "v1"}, {"csi.example.com", "v2"}};
    engine.Apply(there);
    PodSpec shares = KubePod("shares");
    shares.attachments = {{"csi.example.com", "v2"}, {"other.example.com", "v9"}};
    PodSpec more = KubePod("more");
    more.attachments = {{"csi.example.com", "v3"}};
    for (PodSpec pod : {shares, more}) {
      if (std::string(name) != "default") {
        pod.scheduler_name = "kai-scheduler";
        pod.group = "t/" + pod.name.substr(0, pod.name.find('-'));
        engine.Apply(MakeGroup(pod.name.substr(0, pod.name.find('-')), "a", 1));
      }
      engine.Apply(pod);
    }
    const CycleResult result = engine.Run(kNow);
    if (std::string(name) == "default") {
      EXPECT_EQ(DecisionText(result), "bind shares-0 n1\n");
      ASSERT_EQ(result.verdicts.size(), 1u);
      EXPECT_THAT(result.verdicts[0].message, HasSubstr("node(s) exceed max volume count"));
    } else {
      EXPECT_EQ(DecisionText(result), "bind more-0 n1\nbind shares-0 n1\n") << "KAI counts none";
    }
  }
}

TEST(NamespaceSelectorTest, AffinityTermsFollowTheLabelsOfNamespaces) {
  const auto object = kube::ParseJson(R"({"metadata":{"name":"p","namespace":"t","uid":"p"},"spec":{
    "schedulerName":"default-scheduler","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
      {"topologyKey":"kubernetes.io/hostname","labelSelector":{},"namespaceSelector":{"matchLabels":{"team":"red"}}}]}}}})");
  ASSERT_TRUE(object.ok());
  Engine engine({*NamedProfile("default")});
  engine.Apply(MakeNode("n1", 0));
  engine.Apply(NamespaceSpec{"other", {{"team", "red"}}});
  PodSpec there = KubePod("there", "n1");
  there.ns = "other";
  engine.Apply(there);
  engine.Apply(PodFromJson(*object));
  const CycleResult waits = engine.Run(kNow);
  EXPECT_EQ(DecisionText(waits), "");
  ASSERT_EQ(waits.verdicts.size(), 1u);
  EXPECT_THAT(waits.verdicts[0].message, HasSubstr("pod anti-affinity rules"));
  // The same through the pod that is there, and a copy of the engine knows it too.
  EXPECT_EQ(DecisionText(engine.Clone()->Run(kNow + 1)), "");
  engine.Apply(NamespaceSpec{"other", {{"team", "blue"}}});
  EXPECT_EQ(DecisionText(engine.Run(kNow + 2)), "bind p n1\n");
}

}  // namespace
}  // namespace sublet::scheduler
