// The profile that decides as kube-scheduler does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::DecisionText;
using ::testing::HasSubstr;
using testing::kNow;
using testing::MakeKubePod;
using testing::MakeNode;

PodSpec KubePod(const std::string& name, int priority, std::int64_t cpu,
                const std::string& node = "") {
  PodSpec pod = MakeKubePod(name, node);
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

}  // namespace
}  // namespace sublet::scheduler
