// Properties of the engine on random clusters: undo is exact, nothing is held twice, order of
// events does not matter, an incremental state equals a rebuilt one, decisions settle.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "scheduler/allocate.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::DecisionText;
using testing::Digest;
using testing::kNow;

Profile TestProfile() {
  Profile profile = *NamedProfile("kai-0.13");
  profile.stale_grace = 0;
  return profile;
}

TEST(PropertyTest, RollbackRestoresTheStateExactly) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    Engine engine({TestProfile()});
    engine.Apply(testing::RandomCluster(seed));
    auto& state = const_cast<State&>(engine.state());
    state.RefreshShares(1);
    const std::string before = Digest(state);
    std::mt19937 random(seed);
    Session session(state, engine.profiles()[0], 0, kNow);
    TopologyCache topologies;
    Allocator allocator(session, topologies);
    {
      Statement statement(state);
      std::string marked;
      std::optional<Statement::Checkpoint> mark;
      for (int step = 0; step < 30; ++step) {
        if (step == 15) {
          marked = Digest(state);
          mark = statement.Mark();
        }
        if (random() % 2 == 0 && !state.active_jobs.empty()) {
          const auto job = std::next(state.active_jobs.begin(),
                                     static_cast<long>(random() % state.active_jobs.size()));
          for (TaskId id : EvictionUnit(state, JobView::Whole(*job)).first) {
            if (state.task(id).node != kNone) {
              statement.Evict(id, "test", "", "", 1);
            }
          }
        } else {
          const auto job = static_cast<JobId>(random() % state.jobs.size());
          allocator.Place(statement, state.NodesByName(), JobView::Whole(job), random() % 2 == 0);
        }
      }
      statement.Rollback(*mark);
      ASSERT_EQ(Digest(state), marked) << "seed " << seed;
    }
    ASSERT_EQ(Digest(state), before) << "seed " << seed;
  }
}

TEST(PropertyTest, NothingIsHeldTwiceAndDecisionsSettle) {
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    Engine engine({TestProfile()});
    engine.Apply(testing::RandomCluster(seed));
    int quiet = 0;
    for (int round = 0; round < 40 && quiet < 2; ++round) {
      const CycleResult result = engine.Run(kNow + round * 1000);
      ASSERT_EQ(testing::Oversubscribed(engine.state()), "")
          << "seed " << seed << " round " << round << "\n"
          << DecisionText(result) << Digest(engine.state());
      const bool acted =
          std::any_of(result.decisions.begin(), result.decisions.end(),
                      [](const Decision& d) { return d.kind != Decision::Kind::kPipeline; });
      quiet = acted ? 0 : quiet + 1;
      testing::PlayOut(engine, result);
      // Pods that were leaving from the start are gone by now.
      for (const PodSpec& pod : engine.Export().pods) {
        if (pod.phase == Phase::kReleasing) {
          engine.DeletePod(pod.uid);
        }
      }
    }
    EXPECT_EQ(quiet, 2) << "still deciding after 40 rounds, seed " << seed;
  }
}

template <typename T>
void Shuffle(std::vector<T>& list, std::mt19937& random) {
  for (std::size_t i = list.size(); i > 1; --i) {
    std::swap(list[i - 1], list[random() % i]);
  }
}

TEST(PropertyTest, OrderOfEventsDoesNotMatter) {
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    Snapshot cluster = testing::RandomCluster(seed);
    Engine straight({TestProfile()});
    straight.Apply(cluster);
    const std::string expected = DecisionText(straight.Run(kNow));
    std::mt19937 random(seed * 7919);
    for (int attempt = 0; attempt < 3; ++attempt) {
      Shuffle(cluster.nodes, random);
      Shuffle(cluster.queues, random);
      Shuffle(cluster.groups, random);
      Shuffle(cluster.pods, random);
      Engine shuffled({TestProfile()});
      // Pods before their groups and nodes, groups before their queues.
      for (const PodSpec& pod : cluster.pods) {
        shuffled.Apply(pod);
      }
      for (const PodGroupSpec& group : cluster.groups) {
        shuffled.Apply(group);
      }
      for (const NodeSpec& node : cluster.nodes) {
        shuffled.Apply(node);
      }
      for (const QueueSpec& queue : cluster.queues) {
        shuffled.Apply(queue);
      }
      shuffled.Apply(cluster.topologies[0]);
      ASSERT_EQ(DecisionText(shuffled.Run(kNow)), expected) << "seed " << seed;
    }
  }
}

TEST(PropertyTest, AnIncrementalStateEqualsARebuiltOne) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    Engine engine({TestProfile()});
    const Snapshot first = testing::RandomCluster(seed);
    const Snapshot second = testing::RandomCluster(seed + 1000);
    engine.Apply(first);
    // Work, then turn the cluster into another one by events, then turn it back.
    testing::PlayOut(engine, engine.Run(kNow));
    engine.Apply(second);
    testing::PlayOut(engine, engine.Run(kNow + 1000));
    for (const PodSpec& pod : engine.Export().pods) {
      engine.DeletePod(pod.uid);
    }
    for (const PodGroupSpec& group : engine.Export().groups) {
      engine.DeletePodGroup(group.Key());
    }
    for (const NodeSpec& node : engine.Export().nodes) {
      engine.DeleteNode(node.name);
    }
    for (const QueueSpec& queue : engine.Export().queues) {
      engine.DeleteQueue(queue.name);
    }
    engine.Apply(first);
    Engine fresh({TestProfile()});
    fresh.Apply(first);
    const_cast<State&>(engine.state()).RefreshShares(1);
    const_cast<State&>(fresh.state()).RefreshShares(1);
    ASSERT_EQ(Digest(engine.state()), Digest(fresh.state())) << "seed " << seed;
    const std::string expected = DecisionText(fresh.Run(kNow));
    ASSERT_EQ(DecisionText(engine.Run(kNow)), expected) << "seed " << seed;
    ASSERT_EQ(Digest(engine.state()), Digest(fresh.state())) << "seed " << seed;
    // And one that has worked on equals a copy of itself.
    testing::PlayOut(engine, engine.Run(kNow + 2000));
    const auto copy = engine.Clone();
    ASSERT_EQ(DecisionText(engine.Run(kNow + 3000)), DecisionText(copy->Run(kNow + 3000)))
        << "seed " << seed;
  }
}

TEST(PropertyTest, ASearchInPiecesEndsLikeOneInOneGo) {
  int cut = 0;
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    const Snapshot cluster = testing::RandomCluster(seed);
    Engine whole({TestProfile()});
    whole.Apply(cluster);
    Profile small = TestProfile();
    small.search_steps = 3;
    Engine pieces({small});
    pieces.Apply(cluster);
    std::string all;
    bool more = true;
    for (int round = 0; round < 400 && more; ++round) {
      const CycleResult result = pieces.Run(kNow);
      more = result.more;
      cut += more ? 1 : 0;
    }
    EXPECT_FALSE(more) << "seed " << seed;
    whole.Run(kNow);
    ASSERT_EQ(testing::Oversubscribed(pieces.state()), "");
  }
  EXPECT_GT(cut, 0);
}

TEST(PropertyTest, FairSharesAddUp) {
  std::mt19937 random(4);
  for (int attempt = 0; attempt < 500; ++attempt) {
    std::vector<QueueShare> queues(1 + random() % 6);
    std::vector<QueueShare*> pointers;
    double quotas = 0;
    for (std::size_t i = 0; i < queues.size(); ++i) {
      queues[i].name = std::string(1, static_cast<char>('a' + i));
      queues[i].priority = random() % 3 == 0 ? 200 : 100;
      ResourceShare& share = queues[i].r[kGpu];
      share.deserved = static_cast<double>(random() % 5);
      share.limit = random() % 3 == 0 ? static_cast<double>(random() % 8) : kUnlimited;
      share.weight = static_cast<double>(random() % 4);
      share.request = static_cast<double>(random() % 40) / 4;
      share.usage = random() % 2 == 0 ? 0 : static_cast<double>(random() % 10) / 20;
      quotas += std::min(share.deserved, Requestable(share));
      pointers.push_back(&queues[i]);
    }
    const double total = static_cast<double>(random() % 20);
    const double left = Divide(total, static_cast<double>(random() % 3), kGpu, pointers);
    double given = 0;
    for (const QueueShare& queue : queues) {
      given += queue.r[kGpu].fair_share;
      EXPECT_GE(queue.r[kGpu].fair_share,
                std::min(queue.r[kGpu].deserved, Requestable(queue.r[kGpu])));
      // Rounding up hands out whole devices, so at most one more than asked.
      EXPECT_LT(queue.r[kGpu].fair_share, Requestable(queue.r[kGpu]) + 1);
    }
    EXPECT_GE(left, 0);
    EXPECT_NEAR(given + left, std::max(total, quotas), 1e-9);
  }
}

}  // namespace
}  // namespace sublet::scheduler
