// The ledger never lends more than a device has, whatever is asked, in whatever order.
#include "gpu/gpud/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/check.h"
#include "base/mutex.h"

namespace sublet::gpu {
namespace {

bool Granted(const std::variant<Grant, Denial>& answer) {
  return std::holds_alternative<Grant>(answer);
}

TEST(Ledger, GrantsAllDevicesOrNone) {
  Ledger ledger;
  ledger.SetDevice("A", 100, true, "");
  ledger.SetDevice("B", 100, true, "");
  ASSERT_TRUE(Granted(ledger.TryGrant("x", {{"A", 60, 500}})));
  const auto denied = ledger.TryGrant("y", {{"B", 50, 500}, {"A", 50, 100}});
  ASSERT_FALSE(Granted(denied));
  EXPECT_EQ(std::get<Denial>(denied).reason, kDeniedInsufficientMemory);
  EXPECT_EQ(std::get<Denial>(denied).message, "A: 50 bytes asked, 40 free");
  EXPECT_EQ(ledger.FindDevice("B")->used_bytes, 0);
  EXPECT_EQ(std::get<Denial>(ledger.TryGrant("z", {{"A", 1, 501}})).reason,
            kDeniedInsufficientShare);
  EXPECT_EQ(std::get<Denial>(ledger.TryGrant("z", {{"C", 1, 1}})).reason, kDeniedUnknownDevice);
  EXPECT_EQ(std::get<Denial>(ledger.TryGrant("z", {{"A", -5, 1}})).reason, kDeniedInvalidSpec);
  ledger.SetDevice("A", 100, false, "Xid 79");
  EXPECT_EQ(std::get<Denial>(ledger.TryGrant("z", {{"A", 1, 1}})).reason, kDeniedUnhealthyDevice);
}

TEST(Ledger, GenerationRisesWithEveryGrantAndRelease) {
  Ledger ledger;
  ledger.SetDevice("A", 100, true, "", 40);
  const std::int64_t start = ledger.FindDevice("A")->generation;
  EXPECT_GE(start, 40);
  const auto first = ledger.TryGrant("x", {{"A", 10, 10}});
  EXPECT_EQ(std::get<Grant>(first)[0].ledger_generation, start + 1);
  // Asked again: the same answer, nothing charged twice.
  EXPECT_EQ(std::get<Grant>(ledger.TryGrant("x", {{"A", 10, 10}})), std::get<Grant>(first));
  EXPECT_EQ(ledger.FindDevice("A")->used_bytes, 10);
  EXPECT_TRUE(ledger.Release("x"));
  EXPECT_FALSE(ledger.Release("x"));
  EXPECT_EQ(ledger.FindDevice("A")->generation, start + 2);
}

TEST(Ledger, ARestartedDaemonContinuesWhereTheGrantsAre) {
  Ledger ledger;
  ledger.SetDevice("A", 100, true, "");
  ledger.Restore("x", {{{"A", 90, 100}, 77}});
  ledger.Restore("x", {{{"A", 90, 100}, 77}});
  EXPECT_EQ(ledger.FindDevice("A")->free_bytes(), 10);
  EXPECT_EQ(ledger.FindDevice("A")->generation, 77);
  ledger.SetDevice("A", 50, true, "");  // the device shrank: nothing more fits, nothing is negative
  EXPECT_EQ(ledger.FindDevice("A")->free_bytes(), 0);
  EXPECT_FALSE(Granted(ledger.TryGrant("y", {{"A", 1, 1}})));
}

// Two tenants race for the last slice: exactly one gets it, ten thousand times.
TEST(Ledger, TwoTenantsRacingForTheLastSliceNeverBothGetIt) {
  Mutex mutex;
  Ledger ledger;
  ledger.SetDevice("A", 1000, true, "");
  ASSERT_TRUE(Granted(ledger.TryGrant("base", {{"A", 400, 400}})));
  constexpr int kRounds = 10000;
  std::vector<int> wins[2] = {std::vector<int>(kRounds), std::vector<int>(kRounds)};
  // The slice thread serialises what arrives in any order; the race is in the arrival.
  std::thread tenants[2];
  std::atomic<int> round_done{0};
  for (int tenant = 0; tenant < 2; ++tenant) {
    tenants[tenant] = std::thread([&, tenant] {
      for (int round = 0; round < kRounds; ++round) {
        {
          MutexLock lock(mutex);
          wins[tenant][static_cast<std::size_t>(round)] = Granted(ledger.TryGrant(
              "t" + std::to_string(tenant) + "/" + std::to_string(round), {{"A", 600, 600}}));
          SUBLET_CHECK(ledger.FindDevice("A")->used_bytes <= 1000);
        }
        if (round_done.fetch_add(1) % 2 == 1) {
          MutexLock lock(mutex);
          ledger.Release("t0/" + std::to_string(round));
          ledger.Release("t1/" + std::to_string(round));
        }
        while (round_done.load() < 2 * (round + 1)) {
          std::this_thread::yield();
        }
      }
    });
  }
  tenants[0].join();
  tenants[1].join();
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_LE(wins[0][static_cast<std::size_t>(round)] + wins[1][static_cast<std::size_t>(round)],
              1)
        << round;
  }
  EXPECT_GE(
      std::count(wins[0].begin(), wins[0].end(), 1) + std::count(wins[1].begin(), wins[1].end(), 1),
      kRounds / 2);
}

TEST(Ledger, RandomGrantsAndReleasesKeepTheSums) {
  Ledger ledger;
  for (const char* uuid : {"A", "B", "C"}) {
    ledger.SetDevice(uuid, 10'000, true, "");
  }
  std::uint64_t seed = 7;
  const auto next = [&](std::uint64_t below) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33) % below;
  };
  int granted = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string name = "s" + std::to_string(next(40));
    if (next(3) == 0) {
      ledger.Release(name);
    } else {
      std::vector<SliceDevice> wanted;
      for (const char* uuid : {"A", "B", "C"}) {
        if (next(2) == 0) {
          wanted.push_back({uuid, static_cast<std::int64_t>(1 + next(4000)),
                            static_cast<std::int32_t>(1 + next(400))});
        }
      }
      granted += !wanted.empty() && Granted(ledger.TryGrant(name, wanted)) ? 1 : 0;
    }
    std::map<std::string, std::pair<std::int64_t, std::int32_t>> sums;
    for (const auto& [slice, grant] : ledger.grants()) {
      for (const GrantedDevice& device : grant) {
        sums[device.device.uuid].first += device.device.memory_bytes;
        sums[device.device.uuid].second += device.device.share_milli;
      }
    }
    for (const auto& [uuid, device] : ledger.devices()) {
      ASSERT_EQ(sums[uuid].first, device.used_bytes);
      ASSERT_EQ(sums[uuid].second, device.used_milli);
      ASSERT_LE(device.used_bytes, device.memory_bytes);
      ASSERT_LE(device.used_milli, 1000);
    }
  }
  EXPECT_GT(granted, 1000);
}

}  // namespace
}  // namespace sublet::gpu
