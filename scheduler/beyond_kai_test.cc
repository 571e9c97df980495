// What the engine does that KAI does not.
#include <gtest/gtest.h>

#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::Cluster;
using testing::DecisionText;
using testing::kNow;
using testing::MakeGroup;
using testing::MakeNode;
using testing::MakePod;
using testing::MakeQueue;

TEST(BeyondKaiTest, DisruptionBudgetsHoldEvictionsBack) {
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

TEST(BeyondKaiTest, AQueueMayLimitOneGpuModel) {
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

TEST(BeyondKaiTest, AGangThatWaitedLongKeepsNodesFree) {
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

TEST(BeyondKaiTest, DevicesWithUuidsAreChosenAndSharedWithOthers) {
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

}  // namespace
}  // namespace sublet::scheduler
