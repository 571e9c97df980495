// Profile kai-0.17: the victim search, the order of sub groups and the counting of GPU memory that
// KAI has since 0.15 to 0.17, against what KAI 0.17 decided on random clusters.
#include <gtest/gtest.h>

#include "scheduler/cases.h"
#include "scheduler/shares.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::DecisionText;
using testing::kNow;
using testing::MakeGroup;
using testing::MakeNode;
using testing::MakePod;
using testing::MakeQueue;

std::size_t Passed(const std::string& text, const char* profile, std::string* failed) {
  const auto outcomes = RunCases(text, *NamedProfile(profile));
  std::size_t passed = 0;
  for (const CaseOutcome& outcome : outcomes.ok() ? *outcomes : std::vector<CaseOutcome>{}) {
    passed += outcome.problems.empty() ? 1 : 0;
    if (!outcome.problems.empty()) {
      *failed += outcome.id + ": " + outcome.problems[0] + "\n";
    }
  }
  return passed;
}

TEST(VictimSearchTest, DecidesWhatKai017DecidedOnRandomClusters) {
  const std::string text =
      testing::ReadFile(testing::SourceFile("scheduler/testdata/kai-0.17.json"));
  std::string failed;
  const std::size_t all = Passed(text, "kai-0.17", &failed);
  EXPECT_EQ(failed, "");
  EXPECT_GT(all, 25u);
  // They are cases that tell it from its predecessor.
  std::string other;
  EXPECT_LT(Passed(text, "kai-0.13", &other), all / 2);
}

// Two nodes full of single jobs of a queue that holds more than its quota; another queue's gang
// needs half of them.
void Fill(Engine& engine) {
  engine.Apply(MakeNode("n1", 4));
  engine.Apply(MakeNode("n2", 4));
  engine.Apply(MakeQueue("org", "", kUnlimited));
  engine.Apply(MakeQueue("a", "org", 2));
  engine.Apply(MakeQueue("b", "org", 6));
  for (int i = 0; i < 8; ++i) {
    const std::string name = "v" + std::to_string(i);
    PodGroupSpec victim = MakeGroup(name, "a", 1);
    victim.created = kNow - 100'000 + i;
    engine.Apply(victim);
    engine.Apply(MakePod(name, 0, 1, i % 2 == 0 ? "n1" : "n2"));
  }
  engine.Apply(MakeGroup("gang", "b", 5));
  for (int i = 0; i < 5; ++i) {
    engine.Apply(MakePod("gang", i, 1));
  }
}

TEST(VictimSearchTest, CutOffAndTakenUpAgainItFindsTheSame) {
  Profile profile = *NamedProfile("kai-0.17");
  Engine whole({profile});
  Fill(whole);
  const std::string wanted = DecisionText(whole.Run(kNow));
  EXPECT_NE(wanted.find("evict v"), std::string::npos);
  profile.search_steps = 4;
  Engine pieces({profile});
  Fill(pieces);
  std::string found;
  int cut = 0;
  for (int round = 0; round < 200 && found.empty(); ++round) {
    const CycleResult result = pieces.Run(kNow);
    found = DecisionText(result);
    cut += result.more ? 1 : 0;
  }
  EXPECT_GT(cut, 2);
  EXPECT_EQ(found, wanted);
}

// Searches that find nothing are what costs: every set of victims is tried. Whatever a cycle may
// spend, it gives way, the search goes on from there, and it ends.
TEST(VictimSearchTest, ASearchInVainGivesWayAndEnds) {
  Profile profile = *NamedProfile("kai-0.17");
  profile.search_steps = 500;
  Engine engine({profile});
  engine.Apply(MakeQueue("org", "", kUnlimited));
  engine.Apply(MakeQueue("a", "org", kUnlimited));
  constexpr int kNodes = 20;
  for (int node = 0; node < kNodes; ++node) {
    const std::string name = "n" + std::to_string(node);
    engine.Apply(MakeNode(name, 8));
    for (int i = 0; i < 8; ++i) {
      const std::string victim = "v" + std::to_string(node * 8 + i);
      engine.Apply(MakeGroup(victim, "a", 1));
      engine.Apply(MakePod(victim, 0, 1, name));
    }
  }
  engine.Apply(MakeGroup("gang", "a", 2, 75));
  for (int i = 0; i < 2; ++i) {
    PodSpec pod = MakePod("gang", i, 8);
    pod.constraints.node_selector = {{"kubernetes.io/hostname", "n0"}};
    engine.Apply(pod);
  }
  int cycles = 0;
  for (bool more = true; more && cycles < 2000; ++cycles) {
    const CycleResult result = engine.Run(kNow);
    EXPECT_LT(result.steps, 1500);
    EXPECT_EQ(DecisionText(result).find("evict"), std::string::npos);
    more = result.more;
  }
  EXPECT_GT(cycles, 3);
  EXPECT_LT(cycles, 2000);
}

// Differs: for KAI 0.17 a job lives only when every pod set has its minimum, also when it needs only
// some of them.
TEST(VictimSearchTest, AJobThatNeedsSomeOfItsPodSetsIsNotStaleForWantOfTheOthers) {
  Profile profile = *NamedProfile("kai-0.17");
  profile.stale_grace = 0;
  Engine engine({profile});
  engine.Apply(MakeNode("n1", 1));
  engine.Apply(MakeQueue("org", "", kUnlimited));
  engine.Apply(MakeQueue("a", "org", kUnlimited));
  PodGroupSpec group = MakeGroup("x", "a", 1);
  group.root.pod_sets.clear();
  for (const char* name : {"one", "two"}) {
    PodSetSpec set;
    set.name = name;
    set.min_available = 1;
    group.root.pod_sets.push_back(set);
  }
  group.root.min_sub_group = 1;
  engine.Apply(group);
  PodSpec held = MakePod("x", 0, 1, "n1");
  held.sub_group = "one";
  engine.Apply(held);
  PodSpec waits = MakePod("x", 1, 1);
  waits.sub_group = "two";
  engine.Apply(waits);
  EXPECT_EQ(DecisionText(engine.Run(kNow)).find("evict"), std::string::npos);
  group.root.min_sub_group = 2;
  engine.Apply(group);
  EXPECT_NE(DecisionText(engine.Run(kNow + 1)).find("evict x-0"), std::string::npos);
}

// A job of two pod sets of which it needs one, where there is room for one.
std::string DecidedFor(std::vector<Profile> profiles, const char* scheduler) {
  Engine engine(std::move(profiles));
  engine.Apply(MakeNode("n1", 1));
  engine.Apply(MakeQueue("org", "", kUnlimited));
  engine.Apply(MakeQueue("a", "org", kUnlimited));
  PodGroupSpec group = MakeGroup("x", "a", 1);
  group.scheduler_name = scheduler;
  group.root.pod_sets = {{"one", 1, std::nullopt}, {"two", 1, std::nullopt}};
  group.root.min_sub_group = 1;
  engine.Apply(group);
  for (int i = 0; i < 2; ++i) {
    PodSpec pod = MakePod("x", i, 1);
    pod.scheduler_name = scheduler;
    pod.sub_group = i == 0 ? "one" : "two";
    engine.Apply(pod);
  }
  return DecisionText(engine.Run(kNow));
}

TEST(VictimSearchTest, TwoVersionsSideBySideDecideEachByItsOwnRules) {
  const auto profile = [](const char* name, const char* scheduler) {
    Profile out = *NamedProfile(name);
    out.scheduler_names = {scheduler};
    return out;
  };
  const Profile old_one = profile("kai-0.13", "old");
  const Profile new_one = profile("kai-0.17", "new");
  const std::string now = DecidedFor({new_one}, "new");
  const std::string before = DecidedFor({old_one}, "old");
  EXPECT_NE(now.find("bind x-0 n1"), std::string::npos) << now;
  EXPECT_EQ(before.find("bind"), std::string::npos) << before;
  for (const auto& both : {std::vector{old_one, new_one}, std::vector{new_one, old_one}}) {
    EXPECT_EQ(DecidedFor(both, "new"), now);
    EXPECT_EQ(DecidedFor(both, "old"), before);
  }
}

TEST(VictimSearchTest, AQueueThatMayKeepAllItHasGivesNoVictims) {
  std::vector<QueueShare> shares(3);
  std::vector<QueueShare*> queues;
  for (QueueShare& share : shares) {
    for (ResourceShare& resource : share.r) {
      resource.deserved = resource.limit = kUnlimited;
    }
    queues.push_back(&share);
  }
  shares[1].parent = shares[2].parent = 0;
  ResourceShare& mine = shares[1].r[kGpu];
  ResourceShare& theirs = shares[2].r[kGpu];
  mine.deserved = theirs.deserved = 2;
  mine.limit = theirs.limit = 8;
  mine.fair_share = theirs.fair_share = 4;
  const auto may = [&](double asked, double held) {
    theirs.allocated = held;
    return MayBeVictim(queues, {1, true, {0, 0, asked}}, 2);
  };
  EXPECT_TRUE(may(2, 3));   // within the reclaimer's quota, and they are above theirs
  EXPECT_TRUE(may(2, 2));   // exactly at it: another resource may decide
  EXPECT_FALSE(may(2, 1));  // below it
  EXPECT_FALSE(may(3, 4));  // above the reclaimer's quota: they must be above their fair share
  EXPECT_TRUE(may(3, 5));
}

TEST(VictimSearchTest, MemoryIsCountedByTheLargestDeviceForLimitsAndNeverAsNothing) {
  Engine engine({*NamedProfile("kai-0.17")});
  for (const auto& [name, memory] : {std::pair{"n1", "16000"}, {"n2", "80000"}}) {
    NodeSpec node = MakeNode(name, 2);
    for (auto& [key, value] : node.labels) {
      value = key == "nvidia.com/gpu.memory" ? memory : value;
    }
    engine.Apply(node);
  }
  EXPECT_EQ(engine.state().MinGpuMemory(), 16000);
  EXPECT_EQ(engine.state().MaxGpuMemory(), 80000);
  Request request;
  request.gpu = GpuKind::kMemory;
  request.gpu_count = 2;
  request.gpu_memory_mib = 8000;
  EXPECT_EQ(State::MemoryAsDevices(request, 80000), 200);
  request.gpu_memory_mib = 1;
  EXPECT_EQ(State::MemoryAsDevices(request, 80000), 1);
  // A limit of a tenth of a device: what fits into it only on the larger device goes there.
  engine.Apply(MakeQueue("org", "", kUnlimited));
  QueueSpec queue = MakeQueue("a", "org", 1);
  queue.gpu.limit = 0.1;
  engine.Apply(queue);
  engine.Apply(MakeGroup("x", "a", 1));
  PodSpec pod = MakePod("x", 0, 1);
  pod.request.gpu = GpuKind::kMemory;
  pod.request.gpu_memory_mib = 8000;
  engine.Apply(pod);
  EXPECT_EQ(DecisionText(engine.Run(kNow)).substr(0, 11), "bind x-0 n2");
}

}  // namespace
}  // namespace sublet::scheduler
