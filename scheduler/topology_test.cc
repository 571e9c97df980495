// Groups that a topology keeps together.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scheduler/convert.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::DecisionText;
using testing::kNow;
using testing::MakeGroup;
using testing::MakeNode;
using testing::MakePod;
using testing::MakeQueue;

TEST(TopologyTest, NobodyIsEvictedForAPlaceOutsideOfARequiredLevel) {
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

TEST(TopologyTest, ATopologyLevelMayBeNamedByItsAlias) {
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

}  // namespace
}  // namespace sublet::scheduler
