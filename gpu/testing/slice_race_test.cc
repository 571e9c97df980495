// The slice protocol under races and random deaths of everybody who takes part.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <map>
#include <thread>

#include "gpu/testing/slice_node.h"

namespace sublet::gpu::testing {
namespace {

// Tenants ask, give up, die; gpud dies: nothing is ever lent twice, and nothing is left over.
TEST(Slices, NothingLeaksThroughRandomKills) {
  SliceNode node(2);
  unsigned seed = 11;
  std::map<std::string, bool> alive;
  int restarts = 0;
  for (int round = 0; round < 150; ++round) {
    const std::string uid = "u" + std::to_string(rand_r(&seed) % 12);
    if (alive[uid]) {
      node.Release("t", uid);
      if (node.Until([&] { return !node.Read("t", uid); })) {
        alive[uid] = false;
      }
    } else if (!node.Read("t", uid)) {
      node.Ask("t", uid, 1000 + rand_r(&seed) % 6000, 50 + static_cast<int>(rand_r(&seed) % 400),
               static_cast<int>(rand_r(&seed) % 2));
      alive[uid] = true;
      if (rand_r(&seed) % 3 != 0) {
        node.manager().RunUntilIdle(static_cast<int>(rand_r(&seed) % 4));  // killed in the middle
      }
    }
    if (rand_r(&seed) % 25 == 0) {
      node.StopController();
      node.bench().StopEngine();
      node.bench().StartEngine();
      node.clock().Advance(std::chrono::seconds(16));
      node.StartController("gpud-" + std::to_string(++restarts));
    }
    std::map<std::string, std::int64_t> bytes;
    for (const auto& [name, is_alive] : alive) {
      if (const auto slice = node.Read("t", name)) {
        for (const GrantedDevice& device : slice->status.devices) {
          bytes[device.device.uuid] += device.device.memory_bytes;
        }
      }
    }
    for (const auto& [uuid, sum] : bytes) {
      ASSERT_LE(sum, (16384 - 256) * static_cast<std::int64_t>(kMebibyte));
    }
  }
  EXPECT_GT(restarts, 1);
  for (const auto& [name, is_alive] : alive) {
    node.Release("t", name);
  }
  EXPECT_TRUE(node.Until([&] {
    const GpuNode now = node.ReadNode();
    return std::all_of(now.devices.begin(), now.devices.end(), [](const NodeDevice& device) {
      return device.free_memory_bytes == device.memory_bytes && device.free_share_milli == 1000;
    });
  }));
  EXPECT_TRUE(node.bench().engine().ReadStatus().slices.empty());
}

// Two tenants ask for more than half of the device at the same moment: one has it, never both, and
// what is given back can be had again at once.
TEST(Slices, TwoTenantsRacingForTheLastSliceNeverBothHaveIt) {
  SliceNode node;
  const int rounds = std::getenv("SUBLET_FULL") != nullptr ? 10'000 : 200;
  std::barrier start(3);
  std::atomic<int> round{0};
  std::vector<std::thread> tenants;
  for (const char* tenant : {"a", "b"}) {
    tenants.emplace_back([&, tenant] {
      for (;;) {
        start.arrive_and_wait();
        if (round.load() >= rounds) {
          return;
        }
        node.Ask(tenant, tenant + std::to_string(round.load()), 9000, 600);
        start.arrive_and_wait();
      }
    });
  }
  int wins_of_a = 0;
  std::int64_t generation = 0;
  for (; round < rounds; ++round) {
    start.arrive_and_wait();
    start.arrive_and_wait();
    const std::string uids[2] = {"a" + std::to_string(round.load()),
                                 "b" + std::to_string(round.load())};
    SlicePhase phases[2] = {};
    const bool answered = node.Until([&] {
      for (int i = 0; i < 2; ++i) {
        const auto slice = node.Read(i == 0 ? "a" : "b", uids[i]);
        phases[i] = slice ? slice->status.phase : SlicePhase::kPending;
      }
      return phases[0] != SlicePhase::kPending && phases[1] != SlicePhase::kPending;
    });
    EXPECT_TRUE(answered) << "round " << round;
    EXPECT_NE(phases[0], phases[1]) << "round " << round;
    const bool a_won = phases[0] == SlicePhase::kGranted;
    wins_of_a += a_won ? 1 : 0;
    const auto winner = node.Read(a_won ? "a" : "b", uids[a_won ? 0 : 1]);
    const bool is_newer = winner && !winner->status.devices.empty() &&
                          winner->status.devices[0].ledger_generation > generation;
    EXPECT_TRUE(is_newer) << "round " << round;
    if (!answered || phases[0] == phases[1] || !is_newer) {
      break;
    }
    generation = winner->status.devices[0].ledger_generation;
    node.Release("a", uids[0]);
    node.Release("b", uids[1]);
    EXPECT_TRUE(node.Until([&] { return !node.Read("a", uids[0]) && !node.Read("b", uids[1]); }))
        << "round " << round;
  }
  round = rounds;
  start.arrive_and_wait();
  for (std::thread& tenant : tenants) {
    tenant.join();
  }
  std::printf("%d rounds, %d won by a\n", rounds, wins_of_a);
  EXPECT_TRUE(node.bench().engine().ReadStatus().slices.empty());
}

// Syncers die between grant and pod, node agents leave processes behind, gpud is killed: nobody
// gives anything back by hand, and still nothing is lent twice and nothing is left over.
TEST(Slices, NothingLeaksWhenSyncerAgentAndGpudDieAtRandom) {
  SliceNode node(2);
  unsigned seed = 23;
  struct Job {
    std::string uid;
    int device = 0;
    bool has_pod = false;
    bool syncer_died = false;
    Program process;
  };
  std::vector<Job> jobs;
  int made = 0, restarts = 0, orphans = 0, left_behind = 0;
  const auto gone = [&](const Job& job) { return !node.Read("t", job.uid); };
  for (int round = 0; round < (std::getenv("SUBLET_FULL") != nullptr ? 2000 : 200); ++round) {
    const unsigned dice = rand_r(&seed) % 10;
    if (dice < 4 && jobs.size() < 10) {
      jobs.push_back(
          {.uid = "j" + std::to_string(made++), .device = static_cast<int>(rand_r(&seed) % 2)});
      node.Ask("t", jobs.back().uid, 1000 + rand_r(&seed) % 7000,
               50 + static_cast<int>(rand_r(&seed) % 400), jobs.back().device);
    } else if (!jobs.empty()) {
      Job& job = jobs[rand_r(&seed) % jobs.size()];
      const auto slice = node.Read("t", job.uid);
      const bool granted =
          slice && slice->status.phase == SlicePhase::kGranted && !slice->is_deleting;
      if (granted && !job.has_pod && !job.syncer_died) {
        if (dice == 4) {
          job.syncer_died = true;
          ++orphans;
        } else {
          node.MakePod("t", job.uid);
          job.has_pod = true;
        }
      } else if (granted && job.has_pod && job.process.pid() < 0) {
        job.process = node.bench().Run(job.uid, {"hold", std::to_string(100 * kMebibyte)});
        EXPECT_EQ(job.process.ReadLine(), "ready");
      } else if (job.has_pod && dice > 5) {
        node.DeletePod("t", job.uid);
        job.has_pod = false;
        job.syncer_died = true;
        if (job.process.pid() > 0 && dice > 7) {
          ++left_behind;  // the agent was killed: the container runs on without its pod
        } else if (job.process.pid() > 0) {
          job.process.Kill(SIGKILL);
          job.process.Wait();
        }
      } else if (slice && slice->status.phase == SlicePhase::kDenied) {
        node.Release("t", job.uid);
      } else if (job.process.pid() > 0 && !job.has_pod) {
        job.process.Kill(SIGKILL);
        job.process.Wait();
      }
    }
    if (rand_r(&seed) % 3 != 0) {
      node.manager().RunUntilIdle(static_cast<int>(rand_r(&seed) % 5));
    }
    node.clock().Advance(std::chrono::seconds(rand_r(&seed) % 8));
    if (rand_r(&seed) % 30 == 0) {
      node.StopController();
      node.bench().StopEngine();
      node.bench().StartEngine();
      node.clock().Advance(std::chrono::seconds(16));
      node.StartController("gpud-" + std::to_string(++restarts));
    }
    std::map<std::string, std::int64_t> bytes;
    for (const Job& job : jobs) {
      if (const auto slice = node.Read("t", job.uid)) {
        for (const GrantedDevice& device : slice->status.devices) {
          bytes[device.device.uuid] += device.device.memory_bytes;
        }
      }
      // A running container's memory is never lent to another.
      ASSERT_TRUE(job.process.pid() < 0 || !gone(job)) << "round " << round << ", " << job.uid;
    }
    for (const auto& [uuid, sum] : bytes) {
      ASSERT_LE(sum, (16384 - 256) * static_cast<std::int64_t>(kMebibyte));
    }
    std::erase_if(
        jobs, [&](const Job& job) { return job.process.pid() < 0 && !job.has_pod && gone(job); });
  }
  EXPECT_GT(restarts, 1);
  EXPECT_GT(orphans, 0);
  EXPECT_GT(left_behind, 0);
  for (Job& job : jobs) {
    if (job.has_pod) {
      node.DeletePod("t", job.uid);
    }
    if (job.process.pid() > 0) {
      job.process.Kill(SIGKILL);
      job.process.Wait();
    }
  }
  // The scheduler gives a denied slice back, also one that is answered only now.
  const auto release_denied = [&] {
    for (const Job& job : jobs) {
      if (const auto slice = node.Read("t", job.uid);
          slice && slice->status.phase == SlicePhase::kDenied && !slice->is_deleting) {
        node.Release("t", job.uid);
      }
    }
  };
  node.manager().RunUntilIdle();
  node.clock().Advance(std::chrono::seconds(61));
  EXPECT_TRUE(node.Until([&] {
    release_denied();
    return std::all_of(jobs.begin(), jobs.end(), gone);
  })) <<
      [&] {
        std::string left;
        for (const Job& job : jobs) {
          if (const auto slice = node.Read("t", job.uid)) {
            left += job.uid + " phase " + std::to_string(static_cast<int>(slice->status.phase)) +
                    (slice->is_deleting ? " deleting" : "") + "; ";
          }
        }
        return left;
      }();
  EXPECT_TRUE(node.Until([&] {
    const GpuNode now = node.ReadNode();
    return std::all_of(now.devices.begin(), now.devices.end(), [](const NodeDevice& device) {
      return device.free_memory_bytes == device.memory_bytes && device.free_share_milli == 1000;
    });
  }));
  EXPECT_TRUE(node.bench().engine().ReadStatus().slices.empty());
  EXPECT_TRUE(std::filesystem::is_empty(node.bench().folder() + "/cdi"));
}

}  // namespace
}  // namespace sublet::gpu::testing
