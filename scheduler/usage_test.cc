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
  UsageParams params;
  params.half_life = kHour;
  UsageHistory history(params);
  history.Advance(kNow, {view("a", 8), view("b", 0)}, {0, 0, 8});
  history.Advance(kNow + kHour, {view("a", 0), view("b", 8)},
                  {0, 0, 8});  // a held all, then b does
  EXPECT_NEAR(history.Shares().at("a")[kGpu], 1, 1e-9);
  history.Advance(kNow + 2 * kHour, {view("a", 0), view("b", 0)}, {0, 0, 8});
  EXPECT_NEAR(history.Shares().at("a")[kGpu], 1.0 / 3,
              1e-9);  // half of one hour against one hour and that half
  EXPECT_NEAR(history.Shares().at("b")[kGpu], 2.0 / 3, 1e-9);
  EXPECT_EQ(history.Shares().at("b")[kCpu], 0);
  UsageHistory read(params);
  ASSERT_TRUE(read.Decode(history.Encode()));
  EXPECT_EQ(read.Shares(), history.Shares());
  for (const char* bad :
       {"", "[]", "{}", R"({"at":1,"pieces":[{"begin":1,"end":2,"total":[1,2],"queues":{}}]})",
        R"({"at":1,"pieces":[{"begin":1,"end":2,"total":[1,2,-3],"queues":{}}]})",
        R"({"at":1,"pieces":[{"begin":3,"end":2,"total":[1,2,3],"queues":{}}]})",
        R"({"at":1,"pieces":[{"begin":1,"end":2,"total":[1,2,3],"queues":{"a":[1,"2",3]}}]})"}) {
    EXPECT_FALSE(read.Decode(bad)) << bad;
  }
  EXPECT_EQ(read.Shares(), history.Shares());
  read.Advance(kNow, {}, {0, 0, 8});  // the clock went back
  EXPECT_EQ(read.Shares(), history.Shares());
  read.Advance(kNow + 40 * kHour, {}, {0, 0, 8});
  EXPECT_TRUE(read.Shares().empty());  // both are gone and forgotten
}

constexpr Millis kMinute = 60'000;
constexpr Millis kHour = 60 * kMinute;

QueueView Holding(const char* name, double gpus) {
  QueueView out;
  out.name = name;
  out.share.r[kGpu].allocated = gpus;
  return out;
}
double GpuShare(const UsageHistory& history, const char* queue) {
  const auto shares = history.Shares();
  return shares.count(queue) == 0 ? -1 : shares.at(queue)[kGpu];
}

TEST(UsageHistoryTest, ASlidingWindowForgetsWhatIsOlder) {
  UsageParams params;
  params.size = 24 * kHour;
  UsageHistory history(params);
  // a holds all for 12 hours, then b does.
  Millis now = kNow;
  for (int hour = 0; hour <= 24; ++hour, now += kHour) {
    history.Advance(now, {Holding("a", hour < 12 ? 8 : 0), Holding("b", hour < 12 ? 0 : 8)},
                    {0, 0, 8});
  }
  EXPECT_NEAR(GpuShare(history, "a"), 0.5, 1e-9);
  EXPECT_NEAR(GpuShare(history, "b"), 0.5, 1e-9);
  UsageHistory read(params);
  ASSERT_TRUE(read.Decode(history.Encode()));
  EXPECT_EQ(read.Shares(), history.Shares());
  // Six hours later half of what a held lies outside; then all of it.
  history.Advance(kNow + 30 * kHour, {Holding("b", 8)}, {0, 0, 8});
  EXPECT_NEAR(GpuShare(history, "a"), 0.25, 1e-9);
  history.Advance(kNow + 30 * kHour + 30 * kMinute, {Holding("b", 8)}, {0, 0, 8});
  EXPECT_NEAR(GpuShare(history, "a"), 5.5 / 24, 1e-9);  // a piece counts in proportion
  history.Advance(kNow + 37 * kHour, {Holding("b", 8)}, {0, 0, 8});
  EXPECT_EQ(GpuShare(history, "a"), -1);
  EXPECT_NEAR(GpuShare(history, "b"), 1, 1e-9);
}

TEST(UsageHistoryTest, ATumblingWindowBeginsAnew) {
  UsageParams params;
  params.type = UsageParams::Window::kTumbling;
  EXPECT_FALSE(params.Check().ok());
  params.size = kHour;
  params.start = kNow - 10 * kHour;
  ASSERT_TRUE(params.Check().ok());
  UsageHistory history(params);
  history.Advance(kNow, {Holding("a", 8)}, {0, 0, 8});
  history.Advance(kNow + 30 * kMinute, {Holding("a", 0)}, {0, 0, 8});
  history.Advance(kNow + 50 * kMinute, {Holding("a", 8)}, {0, 0, 8});
  EXPECT_NEAR(GpuShare(history, "a"), 0.6, 1e-9);
  // The next hour began 10 minutes ago; only these count.
  history.Advance(kNow + 70 * kMinute, {Holding("a", 0)}, {0, 0, 8});
  EXPECT_NEAR(GpuShare(history, "a"), 1, 1e-9);
  history.Advance(kNow + 80 * kMinute, {Holding("a", 0)}, {0, 0, 8});
  EXPECT_NEAR(GpuShare(history, "a"), 0.5, 1e-9);
  params.start = kNow + kHour;
  UsageHistory later(params);
  later.Advance(kNow, {Holding("a", 8)}, {0, 0, 8});
  later.Advance(kNow + 10 * kMinute, {Holding("a", 8)}, {0, 0, 8});
  EXPECT_EQ(GpuShare(later, "a"), 0) << "nothing counts before the first window";
}

TEST(CronTimesTest, KnowsWhenItLastWas) {
  const auto at = [](int day, int hour, int minute) {  // of March 2026; the 1st is a Sunday
    constexpr Millis kMarch = INT64_C(1'772'323'200'000);
    return kMarch + (((day - 1) * 24 + hour) * 60 + minute) * kMinute;
  };
  struct Row {
    const char* cron;
    Millis now, want;
  };
  for (const Row& row : {Row{"@hourly", at(4, 9, 30), at(4, 9, 0)},
                         {"*/15 * * * *", at(4, 9, 44), at(4, 9, 30)},
                         {"30 8-10/2 * * *", at(4, 9, 59), at(4, 8, 30)},
                         {"0 0 * * MON", at(4, 9, 0), at(2, 0, 0)},
                         {"0 0 * * 7", at(4, 9, 0), at(1, 0, 0)},
                         {"@monthly", at(31, 23, 59), at(1, 0, 0)},
                         {"0 12 3 * mon", at(4, 9, 0), at(3, 12, 0)},
                         {"0 0 1 jan *", at(1, 0, 0), at(1, 0, 0) - 59 * 24 * kHour},
                         {"0 0 31 2 *", at(4, 9, 0), 0},
                         {"5 4 * * *", at(4, 4, 5), at(4, 4, 5)}}) {
    const auto times = CronTimes::Parse(row.cron);
    ASSERT_TRUE(times.ok()) << row.cron;
    EXPECT_EQ(times->LatestAt(row.now), row.want) << row.cron;
  }
  for (const char* bad : {"", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
                          "5-1 * * * *", "*/0 * * * *", "a * * * *", "1,, * * * *", "@often"}) {
    EXPECT_FALSE(CronTimes::Parse(bad).ok()) << bad;
  }
  UsageParams params;
  params.type = UsageParams::Window::kCron;
  params.cron = "0 * * * *";
  UsageHistory history(params);
  history.Advance(at(4, 9, 0), {Holding("a", 8)}, {0, 0, 8});
  history.Advance(at(4, 9, 30), {}, {0, 0, 8});
  history.Advance(at(4, 9, 45), {}, {0, 0, 8});
  EXPECT_NEAR(GpuShare(history, "a"), 2.0 / 3, 1e-9);
  history.Advance(at(4, 10, 5), {}, {0, 0, 8});
  EXPECT_EQ(GpuShare(history, "a"), -1);
}

TEST(UsageParamsTest, AreNamedAsInKai) {
  Profile profile = *NamedProfile("kai-0.13");
  EXPECT_FALSE(profile.usage.on);
  const std::string prefix = "usageDBConfig.usageParams.";
  for (const auto& [key, value] : {std::pair{"windowType", "tumbling"},
                                   {"windowSize", "24h"},
                                   {"halfLifePeriod", "10m"},
                                   {"tumblingWindowStartTime", "2026-03-01T00:00:00Z"},
                                   {"fetchInterval", "30s"},
                                   {"cronString", "0 * * * *"}}) {
    EXPECT_TRUE(SetArgument(profile, prefix + key, value).ok()) << key;
  }
  EXPECT_TRUE(profile.usage.on);
  EXPECT_TRUE(profile.usage.Check().ok());
  EXPECT_EQ(profile.usage.size, 24 * kHour);
  EXPECT_EQ(profile.usage.fetch, 30'000);
  for (const auto& [key, value] : {std::pair{"windowType", "rolling"},
                                   {"windowSize", "0s"},
                                   {"cronString", "often"},
                                   {"tumblingWindowStartTime", "today"},
                                   {"connection", "x"}}) {
    EXPECT_FALSE(SetArgument(profile, prefix + key, value).ok()) << key;
  }
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
