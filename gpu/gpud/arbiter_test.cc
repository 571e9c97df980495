// Shares on the virtual clock: weights within 3 points per second and 1 per ten, idle time lent,
// joins and leaves, strict and limit, request, debt.
#include "gpu/gpud/arbiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gpu/gpud/lease_model.h"

namespace sublet::gpu {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;
using Slice = LeaseModel::Slice;

Slice Busy(std::int64_t weight, Nanoseconds kernel = 1'000'000) {
  Slice slice;
  slice.policy.weight = weight;
  slice.kernel = kernel;
  return slice;
}

// Runs ten seconds after a warm-up of one and checks shares of each second and of all ten.
void ExpectShares(LeaseModel& model, const std::vector<double>& wanted) {
  model.RunTo(kSecond);
  std::vector<double> total(wanted.size(), 0);
  double all = 0;
  for (int second = 0; second < 10; ++second) {
    const auto got = model.RunTo(model.now() + kSecond);
    double sum = 0;
    for (const Nanoseconds part : got) {
      sum += static_cast<double>(part);
    }
    EXPECT_GE(sum, 0.97 * static_cast<double>(kSecond)) << "conservation, second " << second;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(100 * static_cast<double>(got[i]) / sum, wanted[i], 3.0)
          << "slice " << i << ", second " << second;
      total[i] += static_cast<double>(got[i]);
    }
    all += sum;
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(100 * total[i] / all, wanted[i], 1.0) << "slice " << i << ", ten seconds";
  }
  EXPECT_EQ(model.open_max(), 1);
}

TEST(Arbiter, OneToThree) {
  LeaseModel model({Busy(1), Busy(3)});
  ExpectShares(model, {25, 75});
}

TEST(Arbiter, TwentyThirtyFifty) {
  LeaseModel model({Busy(20), Busy(30), Busy(50)});
  ExpectShares(model, {20, 30, 50});
}

TEST(Arbiter, KernelLengthDoesNotChangeTheShares) {
  LeaseModel small_and_large({Busy(25, 50'000), Busy(75, 5'000'000)});
  ExpectShares(small_and_large, {25, 75});
  LeaseModel large_and_small({Busy(25, 5'000'000), Busy(75, 50'000)});
  ExpectShares(large_and_small, {25, 75});
}

// launch, synchronize, launch: nothing is queued ahead, as in inference.
TEST(Arbiter, SynchronousLoopsShareToo) {
  LeaseModel model({Busy(1, 2'000'000), Busy(3, 2'000'000)});
  for (LeaseModel::Slice& slice : model.slices()) {
    slice.queue_depth = 1;
  }
  model.RunTo(kSecond);
  const auto got = model.RunTo(11 * kSecond);
  const double sum = static_cast<double>(got[0] + got[1]);
  EXPECT_NEAR(100 * static_cast<double>(got[0]) / sum, 25, 1.0);
  EXPECT_GE(sum, 0.97 * 10 * kSecond) << "conservation";
}

TEST(Arbiter, AKernelLongerThanItsTurnIsDebt) {
  LeaseModel model({Busy(1, 60'000'000), Busy(1, 1'000'000)});
  model.RunTo(kSecond);
  const auto got = model.RunTo(11 * kSecond);
  const double share = 100 * static_cast<double>(got[0]) / static_cast<double>(got[0] + got[1]);
  EXPECT_NEAR(share, 50, 4);
  EXPECT_GT(model.arbiter().FindAccount(0)->overruns, 0U);
}

TEST(Arbiter, ASliceAloneIsNeverClosed) {
  LeaseModel model({Busy(1), Busy(9)});
  model.slices()[1].has_work = [](Nanoseconds) { return false; };
  model.RunTo(kSecond);
  const auto got = model.RunTo(11 * kSecond);
  EXPECT_GE(got[0], static_cast<Nanoseconds>(0.999 * 10 * kSecond));
  EXPECT_FALSE(model.slices()[0].word.is_contended);
}

TEST(Arbiter, JoinAndLeaveMoveTheSharesAtOnce) {
  LeaseModel model({Busy(1), Busy(3)});
  model.slices()[1].has_work = [](Nanoseconds at) {
    return at >= 5 * kSecond && at < 10 * kSecond;
  };
  for (int second = 1; second <= 15; ++second) {
    const auto got = model.RunTo(second * kSecond);
    const double a = static_cast<double>(got[0]) / kSecond;
    const double b = static_cast<double>(got[1]) / kSecond;
    EXPECT_GE(a + b, 0.97) << "conservation, second " << second;
    const bool both = second > 5 && second <= 10;
    EXPECT_NEAR(100 * a / (a + b), both ? 25.0 : 100.0, 3.0) << "second " << second;
  }
  EXPECT_FALSE(model.slices()[0].word.is_contended);
}

TEST(Arbiter, WhatALightSliceDoesNotUseIsLent) {
  // 1 ms of work every 10 ms, with weight for half the device.
  LeaseModel model({Busy(1), Busy(1, 1'000'000)});
  model.slices()[1].queue_depth = 1;
  model.slices()[1].has_work = [&](Nanoseconds at) {
    return model.slices()[1].launched * 10'000'000ULL <= static_cast<std::uint64_t>(at);
  };
  model.RunTo(kSecond);
  const auto got = model.RunTo(11 * kSecond);
  EXPECT_NEAR(static_cast<double>(got[1]) / (10.0 * kSecond), 0.10, 0.01);
  EXPECT_GE(got[0] + got[1], static_cast<Nanoseconds>(0.90 * 10 * kSecond));
  EXPECT_LE(model.slices()[1].longest_wait, 30'000'000);
}

TEST(Arbiter, StrictSlicesNeverGetMoreThanTheirShare) {
  Slice strict = Busy(250);
  strict.policy.limit_milli = 250;
  LeaseModel model({strict, Busy(1)});
  model.slices()[1].has_work = [](Nanoseconds) { return false; };
  model.RunTo(kSecond);
  const auto got = model.RunTo(11 * kSecond);
  EXPECT_NEAR(static_cast<double>(got[0]) / (10.0 * kSecond), 0.25, 0.02);
}

TEST(Arbiter, ALimitLeavesTheRestToOthers) {
  Slice limited = Busy(9);
  limited.policy.limit_milli = 300;
  LeaseModel model({limited, Busy(1)});
  model.RunTo(kSecond);
  const auto got = model.RunTo(11 * kSecond);
  EXPECT_NEAR(static_cast<double>(got[0]) / (10.0 * kSecond), 0.30, 0.03);
  EXPECT_GE(static_cast<double>(got[1]) / (10.0 * kSecond), 0.64);
}

TEST(Arbiter, ARequestIsGuaranteedAgainstWeights) {
  Slice small = Busy(1);
  small.policy.request_milli = 400;
  LeaseModel model({small, Busy(99)});
  ExpectShares(model, {40, 60});
}

// Slice 0 of both devices is one slice, whose kernels spin until their partners on the other device
// are launched as well; the others are neighbours on one device each.
struct TwoDevices {
  TwoDevices(std::vector<Slice> first, std::vector<Slice> second)
      : devices{LeaseModel(std::move(first)), LeaseModel(std::move(second))} {
    for (int i = 0; i < 2; ++i) {
      Slice& mine = devices[i].slices()[0];
      const Slice& partner = devices[1 - i].slices()[0];
      mine.gets_on = [&mine, &partner] { return partner.launched > mine.finished; };
    }
  }

  // Returns what each slice of the two devices executed from the first second to `until`.
  std::vector<std::vector<Nanoseconds>> Run(Nanoseconds until, bool gather) {
    std::vector<std::vector<Nanoseconds>> got(2);
    for (Nanoseconds at = 0; at < until; at += LeaseModel::kStep) {
      for (int i = 0; i < 2; ++i) {
        const auto more = devices[i].RunTo(at);
        got[i].resize(more.size());
        for (std::size_t k = 0; k < more.size() && at >= kSecond; ++k) {
          got[i][k] += more[k];
        }
      }
      if (gather) {
        for (const std::size_t summoned :
             GatherTurns({&devices[0].arbiter(), &devices[1].arbiter()}, 0)) {
          devices[summoned].Poke();
        }
      }
    }
    return got;
  }

  LeaseModel devices[2];
};

Slice Gang(std::int64_t weight, Nanoseconds kernel) {
  Slice slice = Busy(weight, kernel);
  slice.policy.is_gang = true;
  return slice;
}

double Percent(Nanoseconds part) { return 100 * static_cast<double>(part) / (10.0 * kSecond); }

// Kernels of a gang get on only where both partners are launched: its turns have to meet. What the
// neighbours have is theirs all the same.
TEST(Gang, TurnsOnSeveralDevicesMeet) {
  const std::vector<Slice> first = {Gang(2, 1'000'000), Busy(2)};
  const std::vector<Slice> second = {Gang(2, 1'000'000), Busy(1), Busy(1, 3'000'000)};
  const auto alone = TwoDevices(first, second).Run(11 * kSecond, false);
  const auto met = TwoDevices(first, second).Run(11 * kSecond, true);
  std::printf("a half of two devices in lockstep: %.1f %% done, %.1f %% with turns by themselves\n",
              Percent(met[0][0]), Percent(alone[0][0]));
  EXPECT_GE(Percent(met[0][0]), 30);
  EXPECT_GE(met[0][0], 2 * alone[0][0]);
  EXPECT_NEAR(Percent(met[0][1]), 50, 2);
  EXPECT_NEAR(Percent(met[1][1]), 25, 2);
  EXPECT_NEAR(Percent(met[1][2]), 25, 2);
}

// It has half of one device and a tenth of the other: the other's neighbour pays nothing for that.
TEST(Gang, TurnsThatMeetAreDebtWhereTheShareIsSmaller) {
  const std::vector<Slice> first = {Gang(50, 1'000'000), Busy(50)};
  const std::vector<Slice> second = {Gang(10, 1'000'000), Busy(90)};
  const auto alone = TwoDevices(first, second).Run(11 * kSecond, false);
  const auto met = TwoDevices(first, second).Run(11 * kSecond, true);
  EXPECT_GE(met[0][0], 2 * alone[0][0]);
  EXPECT_LE(Percent(met[1][0]), 10.5);
  EXPECT_NEAR(Percent(met[0][1]), 50, 2);
  EXPECT_NEAR(Percent(met[1][1]), 90, 2);
}

// Short kernels, a quarter of each device: whatever the gang does, the neighbours keep their part.
TEST(Gang, NeighboursOfShortKernelsKeepTheirPart) {
  const auto met = TwoDevices({Gang(1, 200'000), Busy(3)}, {Gang(1, 200'000), Busy(3, 2'000'000)})
                       .Run(11 * kSecond, true);
  EXPECT_NEAR(Percent(met[0][1]), 75, 3);
  EXPECT_NEAR(Percent(met[1][1]), 75, 3);
}

TEST(Gang, OnlyAWantedDeviceIsGathered) {
  const auto idle = [](int) { return LeaseObservation{}; };
  const auto nothing = [](int, const LeaseWord&) {};
  Arbiter first;
  Arbiter second;
  for (Arbiter* arbiter : {&first, &second}) {
    arbiter->Add(0, {.is_gang = true});
    arbiter->Add(1, {});
    arbiter->Want(1);
  }
  first.Want(0);
  const auto busy = [](int) { return LeaseObservation{.is_unfinished = true}; };
  first.Step(1'000'000, busy, nothing);
  ASSERT_GT(first.TurnLength(0), 0);
  second.Step(1'000'000, idle, nothing);
  EXPECT_EQ(GatherTurns({&first, &second}, 0), std::vector<std::size_t>()) << "no want, no turn";
  second.Want(0);
  EXPECT_EQ(GatherTurns({&first, &second}, 0), std::vector<std::size_t>{1});
  EXPECT_EQ(GatherTurns({&first, &second}, 0), std::vector<std::size_t>()) << "once";
}

TEST(EffectiveShares, HoldRequestsLimitsAndWeights) {
  EXPECT_EQ(EffectiveShares({{1, 0, 1000}, {3, 0, 1000}}), (std::vector<std::int32_t>{250, 750}));
  EXPECT_EQ(EffectiveShares({{1, 400, 1000}, {99, 0, 1000}}),
            (std::vector<std::int32_t>{400, 600}));
  EXPECT_EQ(EffectiveShares({{9, 0, 300}, {1, 0, 1000}}), (std::vector<std::int32_t>{300, 700}));
  EXPECT_EQ(EffectiveShares({{5, 0, 1000}}), (std::vector<std::int32_t>{1000}));
  EXPECT_TRUE(EffectiveShares({}).empty());
  std::uint64_t seed = 1;
  const auto next = [&](std::uint64_t below) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int32_t>((seed >> 33) % below);
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<LeasePolicy> policies;
    std::int32_t requests = 0;
    for (int i = next(6); i >= 0; --i) {
      const std::int32_t limit = 1 + next(1000);
      const std::int32_t request =
          std::min(limit, next(static_cast<std::uint64_t>(1001 - requests)));
      requests += request;
      policies.push_back({1 + next(100), request, limit});
    }
    const auto shares = EffectiveShares(policies);
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < policies.size(); ++i) {
      EXPECT_GE(shares[i], policies[i].request_milli) << round;
      EXPECT_LE(shares[i], policies[i].limit_milli) << round;
      sum += shares[i];
    }
    EXPECT_LE(sum, 1000) << round;
  }
}

}  // namespace
}  // namespace sublet::gpu
