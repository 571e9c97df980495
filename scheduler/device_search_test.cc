// Which devices a claim gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scheduler/convert.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using ::testing::HasSubstr;
using testing::kNow;
using testing::MakeKubePod;
using testing::MakeNode;

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
    PodSpec pod = MakeKubePod(name);
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

}  // namespace
}  // namespace sublet::scheduler
