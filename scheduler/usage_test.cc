// The usage history: what it remembers, and what it does to fair shares.
#include "scheduler/usage.h"

#include <gtest/gtest.h>

#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::kNow;

TEST(UsageHistoryTest, HalfAsMuchAfterAHalfLife) {
  constexpr Millis kHour = 3'600'000;
  const auto view = [](const char* name, double gpus) {
    QueueView out;
    out.name = name;
    out.share.r[kGpu].allocated = gpus;
    return out;
  };
  UsageHistory history(kHour);
  history.Advance(kNow, {view("a", 8), view("b", 0)}, {0, 0, 8});
  history.Advance(kNow + kHour, {view("a", 0), view("b", 8)},
                  {0, 0, 8});  // a held all, then b does
  EXPECT_NEAR(history.Shares().at("a")[kGpu], 1, 1e-9);
  history.Advance(kNow + 2 * kHour, {view("a", 0), view("b", 0)}, {0, 0, 8});
  EXPECT_NEAR(history.Shares().at("a")[kGpu], 1.0 / 3,
              1e-9);  // half of one hour against one hour and that half
  EXPECT_NEAR(history.Shares().at("b")[kGpu], 2.0 / 3, 1e-9);
  EXPECT_EQ(history.Shares().at("b")[kCpu], 0);
  UsageHistory read(kHour);
  ASSERT_TRUE(read.Decode(history.Encode()));
  EXPECT_EQ(read.Shares(), history.Shares());
  for (const char* bad : {"", "[]", "{}", R"({"at":1,"total":[1,2],"queues":{}})",
                          R"({"at":1,"total":[1,2,-3],"queues":{}})",
                          R"({"at":1,"total":[1,2,3],"queues":{"a":[1,"2",3]}})"}) {
    EXPECT_FALSE(read.Decode(bad)) << bad;
  }
  EXPECT_EQ(read.Shares(), history.Shares());
  read.Advance(kNow, {}, {0, 0, 8});  // the clock went back
  EXPECT_EQ(read.Shares(), history.Shares());
  read.Advance(kNow + 40 * kHour, {}, {0, 0, 8});
  EXPECT_TRUE(read.Shares().empty());  // both are gone and forgotten
}

TEST(UsageHistoryTest, PastUseTakesFromTheFairShare) {
  Engine engine({*NamedProfile("kai-0.13")});
  NodeSpec node;
  node.name = "n1";
  node.cpu = 64'000;
  node.memory = INT64_C(256) << 30;
  node.gpus = 10;
  engine.Apply(node);
  QueueSpec queue;
  for (const char* name : {"a", "b"}) {
    queue.name = name;
    queue.cpu.quota = queue.memory.quota = kUnlimited;
    engine.Apply(queue);
    PodGroupSpec group;
    group.ns = "ns";
    group.name = group.uid = group.queue = name;
    group.scheduler_name = "kai-scheduler";
    group.root.pod_sets.push_back({"default", 1, std::nullopt});
    engine.Apply(group);
    PodSpec pod;
    pod.uid = pod.name = name;
    pod.ns = "ns";
    pod.scheduler_name = "kai-scheduler";
    pod.group = std::string("ns/") + name;
    pod.request.gpu_count = 10;
    engine.Apply(pod);
  }
  const auto shares = [&] {
    (void)engine.Run(kNow);
    std::string text;
    for (const QueueView& view : engine.Queues()) {
      text +=
          view.name + "=" + std::to_string(static_cast<int>(view.share.r[kGpu].fair_share)) + " ";
    }
    return text;
  };
  EXPECT_EQ(shares(), "a=5 b=5 ");
  engine.SetUsage({{"a", {0, 0, 0.5}}});
  EXPECT_EQ(shares(), "a=3 b=7 ");  // weights 0.5 + (0.5 - 0.5) and 0.5 + (0.5 - 0)
  queue.name = "a";
  engine.Apply(queue);  // a Queue event says nothing of the past
  EXPECT_EQ(shares(), "a=3 b=7 ");
}

}  // namespace
}  // namespace sublet::scheduler
