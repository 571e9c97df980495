// Answers about what would be: suggestions that were tried, and one history under two profiles.
#include "scheduler/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kube/json.h"
#include "scheduler/replay.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using ::testing::HasSubstr;
using testing::kNow;
using testing::MakeGroup;
using testing::MakeNode;
using testing::MakePod;
using testing::MakeQueue;

Snapshot OneNode(int gpus) {
  Snapshot out;
  out.nodes = {MakeNode("n1", gpus)};
  out.queues = {MakeQueue("root", "", kUnlimited), MakeQueue("a", "root", 1),
                MakeQueue("b", "root", 1)};
  return out;
}

std::string Suggested(const Snapshot& snapshot, const std::string& uid) {
  std::string text;
  for (const Suggestion& suggestion : Suggest({*NamedProfile("kai-0.13")}, snapshot, uid, kNow)) {
    EXPECT_TRUE(suggestion.verified);
    text += suggestion.change + ": " + suggestion.outcome + "\n";
  }
  return text;
}

TEST(SuggestTest, ALimitInTheWay) {
  Snapshot cluster = OneNode(4);
  cluster.queues[1].gpu.limit = 1;
  cluster.groups = {MakeGroup("x", "a", 1)};
  cluster.pods = {MakePod("x", 0, 2)};
  EXPECT_THAT(Suggested(cluster, "x-0"),
              HasSubstr("raise the GPU limit of queue a from 1 to 2: it runs on node n1\n"));
}

TEST(SuggestTest, TooLargeForEveryNode) {
  Snapshot cluster = OneNode(2);
  cluster.groups = {MakeGroup("x", "a", 1)};
  cluster.pods = {MakePod("x", 0, 4)};
  const std::string text = Suggested(cluster, "x-0");
  EXPECT_THAT(text, HasSubstr("ask for 2 GPUs instead of 4: it runs on node n1"));
  EXPECT_EQ(text.find("add 1 node"), std::string::npos) << "a node like n1 is too small as well\n"
                                                        << text;
}

TEST(SuggestTest, TheLargestRequestThatWorksAndNoneBelowIt) {
  Snapshot cluster = OneNode(8);
  cluster.queues[1].gpu.limit = 5;
  cluster.groups = {MakeGroup("x", "a", 1), MakeGroup("y", "a", 1)};
  cluster.pods = {MakePod("x", 0, 8), MakePod("y", 0, 2, "n1")};
  const std::string text = Suggested(cluster, "x-0");
  EXPECT_THAT(text, HasSubstr("ask for 3 GPUs instead of 8: it runs on node n1"));
  EXPECT_EQ(text.find("ask for 2"), std::string::npos) << text;
}

TEST(SuggestTest, TheQuotaStaysWhereTheLimitIsEnough) {
  Snapshot cluster = OneNode(4);
  cluster.queues[1].gpu.limit = 1;
  cluster.groups = {MakeGroup("x", "a", 1)};
  cluster.pods = {MakePod("x", 0, 2)};
  EXPECT_EQ(Suggested(cluster, "x-0").find(" quota of queue "), std::string::npos);
}

TEST(SuggestTest, TaintsSelectorsAndAFullCluster) {
  Snapshot cluster = OneNode(1);
  cluster.nodes[0].taints = {{"dedicated", "ml", "NoSchedule"}};
  cluster.groups = {MakeGroup("x", "a", 1)};
  cluster.pods = {MakePod("x", 0, 1)};
  EXPECT_THAT(Suggested(cluster, "x-0"),
              HasSubstr("let it tolerate dedicated=ml:NoSchedule: it runs on node n1"));
  cluster.nodes[0].taints.clear();
  cluster.pods[0].constraints.node_selector = {{"zone", "z"}};
  EXPECT_THAT(Suggested(cluster, "x-0"),
              HasSubstr("drop its node selector and node affinity: it runs"));
  cluster.pods[0].constraints.node_selector.clear();
  cluster.groups.push_back(MakeGroup("y", "a", 1, 125));
  cluster.pods.push_back(MakePod("y", 0, 1, "n1"));
  const std::string text = Suggested(cluster, "x-0");
  EXPECT_THAT(text, HasSubstr("let t/y-0 end (node n1): it runs on node n1"));
  EXPECT_THAT(text, HasSubstr("add 1 node like n1: it runs on node n1~new0"));
}

TEST(SuggestTest, AGangThatWaitsForItsPods) {
  Snapshot cluster = OneNode(4);
  cluster.groups = {MakeGroup("x", "a", 3)};
  cluster.pods = {MakePod("x", 0, 1)};
  EXPECT_THAT(Suggested(cluster, "x-0"),
              HasSubstr("create the 2 pods that its gang is waiting for: it runs on node n1"));
}

TEST(SuggestTest, NothingForAPodThatRuns) {
  Snapshot cluster = OneNode(4);
  cluster.groups = {MakeGroup("x", "a", 1)};
  cluster.pods = {MakePod("x", 0, 1, "n1")};
  EXPECT_EQ(Suggested(cluster, "x-0"), "");
  EXPECT_EQ(Suggested(cluster, "nobody"), "");
}

TEST(SimulationTest, EvictionsArePlayedOut) {
  Snapshot cluster = OneNode(2);
  cluster.groups = {MakeGroup("x", "a", 1), MakeGroup("y", "a", 1), MakeGroup("z", "b", 1)};
  cluster.pods = {MakePod("x", 0, 1, "n1"), MakePod("y", 0, 1, "n1"), MakePod("z", 0, 1)};
  Simulation simulation({*NamedProfile("kai-0.13")}, cluster);
  const SimulationResult result = simulation.Settle(kNow);
  EXPECT_TRUE(result.settled);
  ASSERT_EQ(result.placed.size(), 1u);
  EXPECT_EQ(result.placed[0].uid, "z-0");
  ASSERT_EQ(result.evicted.size(), 1u);
  EXPECT_EQ(result.evicted[0].action, "reclaim");
  EXPECT_EQ(result.evicted[0].back_on, "");
  EXPECT_EQ(testing::Oversubscribed(simulation.engine().state()), "");
}

// Two queues with quota 2 each on 4 GPUs. a comes first with four pods, b a minute later with two.
std::string TwoQueues() {
  using kube::Json;
  Json items = Json::array();
  items.push_back(
      {{"kind", "Node"},
       {"metadata", {{"name", "n1"}}},
       {"status",
        {{"allocatable",
          {{"cpu", "64"}, {"memory", "256Gi"}, {"pods", "110"}, {"nvidia.com/gpu", "4"}}},
         {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}});
  const Json open = {{"quota", -1}, {"limit", -1}, {"overQuotaWeight", 1}};
  for (const auto& [name, parent] :
       {std::pair<const char*, const char*>{"root", ""}, {"a", "root"}, {"b", "root"}}) {
    items.push_back(
        {{"kind", "Queue"},
         {"metadata", {{"name", name}}},
         {"spec",
          {{"parentQueue", parent},
           {"resources",
            {{"cpu", open},
             {"memory", open},
             {"gpu",
              {{"quota", *parent == '\0' ? 4 : 2}, {"limit", -1}, {"overQuotaWeight", 1}}}}}}}});
  }
  const auto pod = [&](const std::string& name, const std::string& queue, const char* created) {
    Json object = {
        {"kind", "Pod"},
        {"metadata",
         {{"name", name},
          {"namespace", "t"},
          {"uid", name},
          {"creationTimestamp", created},
          {"labels", {{"kai.scheduler/queue", queue}}}}},
        {"spec",
         {{"schedulerName", "kai-scheduler"},
          {"containers", Json::array({{{"name", "c"},
                                       {"resources", {{"limits", {{"nvidia.com/gpu", "1"}}}}}}})}}},
        {"status",
         {{"startTime", "2026-01-01T01:00:00Z"},
          {"containerStatuses",
           Json::array(
               {{{"state", {{"terminated", {{"finishedAt", "2026-01-01T01:10:00Z"}}}}}}})}}}};
    items.push_back(std::move(object));
  };
  for (int i = 0; i < 4; ++i) {
    pod("a" + std::to_string(i), "a", "2026-01-01T00:00:00Z");
  }
  pod("b0", "b", "2026-01-01T00:01:00Z");
  pod("b1", "b", "2026-01-01T00:01:00Z");
  return Json{{"kind", "List"}, {"items", items}}.dump();
}

TEST(ReplayTest, TwoProfilesOnOneHistory) {
  const auto history = ReadHistory(TwoQueues());
  ASSERT_TRUE(history.ok()) << history.error().message();
  EXPECT_EQ(history->pods.size(), 6u);
  EXPECT_EQ(history->pods[0].runs, 600'000);
  const ReplayReport with = Replay(*history, *NamedProfile("kai-0.13"));
  Profile plain = *NamedProfile("kai-0.13");
  plain.actions = {Action::kAllocate};
  const ReplayReport without = Replay(*history, plain);
  EXPECT_EQ(with.placed, 6u);
  EXPECT_EQ(without.placed, 6u);
  EXPECT_EQ(with.evictions, 2u);
  EXPECT_EQ(without.evictions, 0u);
  // With reclaim b gets its quota at once; without, it waits until a's pods end.
  EXPECT_LT(with.places.at("t/b0").second, 1000);
  EXPECT_EQ(without.places.at("t/b0").second, 540'000);
  EXPECT_GT(without.gpu_utilisation, 0);
  EXPECT_LE(without.gpu_utilisation, 1);
  EXPECT_LE(with.fairness, 1 + 1e-9);
  // The same history gives the same report.
  EXPECT_EQ(Replay(*history, *NamedProfile("kai-0.13")).places, with.places);
}

TEST(ReplayTest, WatchEventsAndBadText) {
  std::string events;
  const auto list = kube::ParseJson(TwoQueues());
  for (const auto& item : list->at("items")) {
    events += kube::Json{{"type", "ADDED"}, {"object", item}}.dump() + "\n";
  }
  const auto history = ReadHistory(events);
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(history->pods.size(), 6u);
  EXPECT_FALSE(ReadHistory("").ok());
  EXPECT_FALSE(ReadHistory("{\"a\": {}").ok());
  EXPECT_FALSE(ReadHistory("{\"kind\":\"Pod\",]}").ok());
  EXPECT_FALSE(ReadHistory("[1, 2, {}]").ok());
  EXPECT_EQ(RunReplayCommand({}), 2);
  EXPECT_EQ(RunReplayCommand({"x", "--profile", "kai-9"}), 2);
  EXPECT_EQ(RunReplayCommand({"/nonexistent", "--profile", "default"}), 1);
}

}  // namespace
}  // namespace sublet::scheduler
