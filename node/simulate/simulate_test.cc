// Simulated pods and nodes: the pure life of a pod, and a small run against the in-memory server.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "client/testing/memory_server.h"
#include "kube/timestamp.h"
#include "node/simulate/simulated_nodes.h"

namespace sublet::node {
namespace {

using kube::Json;

Json PodJson() {
  return *kube::ParseJson(R"({"metadata":{"name":"p","namespace":"a","uid":"u","generation":1},
    "spec":{"nodeName":"sim-0","restartPolicy":"Never","containers":[
      {"name":"c","image":"busybox","resources":{"requests":{"cpu":"1"}}}]},
    "status":{"phase":"Pending"}})");
}

// Applies a step's status the way the server's merge would, conditions by type.
void Apply(Json* pod, const Json& patch) {
  Json status = patch["status"];
  Json& conditions = (*pod)["status"]["conditions"];
  if (!conditions.is_array()) {
    conditions = Json::array();
  }
  for (const Json& condition : status.value("conditions", Json::array())) {
    bool found = false;
    for (Json& present : conditions) {
      if (present["type"] == condition["type"]) {
        present.update(condition);
        found = true;
      }
    }
    if (!found) {
      conditions.push_back(condition);
    }
  }
  status.erase("conditions");
  (*pod)["status"].update(status);
}

const PodPlace kPlace{.host_ip = "10.64.0.1", .pod_ip = "10.128.0.1"};

class PodLife : public ::testing::Test {
 protected:
  PodStep Step(const PodPlace& place = kPlace) {
    return NextStep(ReadSimulatedPod(pod_), place, clock_.Now());
  }
  void Run() {
    PodStep step = Step();
    ASSERT_TRUE(step.patch);
    Apply(&pod_, *step.patch);
  }
  Json pod_ = PodJson();
  FakeClock clock_;
};

TEST_F(PodLife, BecomesRunningAndReadyInOneWriteAndThenNeedsNone) {
  const PodStep step = Step();
  ASSERT_TRUE(step.patch);
  EXPECT_EQ((*step.patch)["metadata"]["annotations"]["sublet.dev/simulated"], "true");
  Apply(&pod_, *step.patch);
  EXPECT_EQ(pod_["status"]["phase"], "Running");
  EXPECT_EQ(pod_["status"]["podIP"], "10.128.0.1");
  EXPECT_EQ(pod_["status"]["observedGeneration"], 1);
  EXPECT_TRUE(ReadSimulatedPod(pod_).ready);
  EXPECT_EQ(pod_["status"]["containerStatuses"][0]["allocatedResources"]["cpu"], "1");
  EXPECT_FALSE(Step().patch);
  EXPECT_FALSE(Step().next);
}

TEST_F(PodLife, FinishesWithTheStatedCodeAfterTheStatedTime) {
  pod_["metadata"]["annotations"] = {{"sublet.dev/simulate-run-seconds", "30"},
                                     {"sublet.dev/simulate-exit-code", "3"}};
  Run();
  const PodStep waiting = Step();
  EXPECT_FALSE(waiting.patch);
  EXPECT_EQ(waiting.next, clock_.Now() + std::chrono::seconds(30));
  clock_.Advance(std::chrono::seconds(30));
  Run();
  EXPECT_EQ(pod_["status"]["phase"], "Failed");
  EXPECT_EQ(pod_["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
  EXPECT_FALSE(ReadSimulatedPod(pod_).ready);
}

TEST_F(PodLife, SucceedsWithCodeZeroAndRestartsWhenItsPolicySaysSo) {
  pod_["metadata"]["annotations"] = {{"sublet.dev/simulate-run-seconds", "5"}};
  Json always = pod_;
  Run();
  clock_.Advance(std::chrono::seconds(5));
  Run();
  EXPECT_EQ(pod_["status"]["phase"], "Succeeded");
  pod_ = always;
  pod_["spec"]["restartPolicy"] = "Always";
  Run();
  clock_.Advance(std::chrono::seconds(15));  // the run, and ten seconds of back-off
  Run();
  EXPECT_EQ(pod_["status"]["phase"], "Running");
  EXPECT_EQ(pod_["status"]["containerStatuses"][0]["restartCount"], 1);
  EXPECT_EQ(pod_["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 0);
}

TEST_F(PodLife, StaysPendingOnAnImageThatCannotBePulled) {
  PodPlace place = kPlace;
  place.image_missing = true;
  const PodStep step = Step(place);
  ASSERT_TRUE(step.patch);
  Apply(&pod_, *step.patch);
  EXPECT_EQ(pod_["status"]["phase"], "Pending");
  EXPECT_EQ(pod_["status"]["containerStatuses"][0]["state"]["waiting"]["reason"],
            "ImagePullBackOff");
  EXPECT_FALSE(ReadSimulatedPod(pod_).ready);
  EXPECT_FALSE(Step(place).patch);
}

TEST_F(PodLife, FailsOnAPortClashAndOnItsDeadline) {
  PodPlace place = kPlace;
  place.rejection = Rejection{"NodePorts", "why"};
  EXPECT_EQ((*Step(place).patch)["status"]["reason"], "NodePorts");
  EXPECT_EQ((*Step(place).patch)["status"]["message"], "Pod was rejected: why");
  pod_["spec"]["activeDeadlineSeconds"] = 10;
  Run();
  EXPECT_EQ(Step().next, clock_.Now() + std::chrono::seconds(10));
  clock_.Advance(std::chrono::seconds(10));
  Run();
  EXPECT_EQ(pod_["status"]["reason"], "DeadlineExceeded");
}

TEST_F(PodLife, ReportsANewGenerationAndOpensWithItsReadinessGate) {
  pod_["spec"]["readinessGates"] = Json::array({{{"conditionType", "example.com/go"}}});
  Run();
  EXPECT_FALSE(ReadSimulatedPod(pod_).ready);
  pod_["status"]["conditions"].push_back({{"type", "example.com/go"}, {"status", "True"}});
  Run();
  EXPECT_TRUE(ReadSimulatedPod(pod_).ready);
  pod_["metadata"]["generation"] = 2;
  Run();
  EXPECT_EQ(pod_["status"]["observedGeneration"], 2);
  EXPECT_FALSE(Step().patch);
}

TEST(SimulatedPodFacts, KnowsSinceWhenItStops) {
  Json pod = {{"metadata",
               {{"name", "p"},
                {"deletionTimestamp", "2026-01-01T00:00:30Z"},
                {"deletionGracePeriodSeconds", 30}}}};
  EXPECT_EQ(ReadSimulatedPod(pod).stopping_since, kube::FindTime("2026-01-01T00:00:00Z"));
  pod["metadata"]["deletionGracePeriodSeconds"] = 0;
  EXPECT_EQ(ReadSimulatedPod(pod).stopping_since, std::nullopt);
}

TEST(NodeObjects, AllocatableFollowsAPatchedCapacity) {
  Json node = NodeObject({.gpus = 8}, 0, FakeClock().Now());
  EXPECT_EQ(node["status"]["capacity"]["nvidia.com/gpu"], "8");
  EXPECT_TRUE(AllocatablePatch(node).is_null());
  node["status"]["capacity"]["example.com/x"] = "3";
  EXPECT_EQ(AllocatablePatch(node)["status"]["allocatable"]["example.com/x"], "3");
}

TEST(NodeObjects, AddressesDifferAcrossThousandsOfNodes) {
  const SimulateOptions options;
  EXPECT_EQ(PodIp(options, 0, 0), "10.128.0.1");
  EXPECT_EQ(PodIp(options, 4999, 253), "10.147.135.254");
  EXPECT_EQ(NodeIp(4999), "10.64.19.136");
  EXPECT_EQ(SlotOf(options, 4999, "10.147.135.254"), 253);
  EXPECT_EQ(SlotOf(options, 4998, "10.147.135.254"), -1);
}

// 5,000 nodes that registered within four seconds, five minutes long, with a server that is slow for a
// while: no node is written twice within 25 s, none is forgotten, and no second sees a burst.
TEST(LeaseSchedule, WritesALeaseAtMostOncePer25SecondsAndSpreadsTheWrites) {
  constexpr int kNodes = 5000;
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  LeaseSchedule schedule(kNodes, kLeaseInterval);
  const MonotonicTime start{};
  std::vector<MonotonicTime> last(kNodes);
  for (int i = 0; i < kNodes; ++i) {
    last[i] = start + seconds(4) * i / kNodes;
    schedule.Written(i, last[i]);
  }
  MonotonicTime::duration longest{};
  std::map<std::int64_t, int> per_second;
  for (MonotonicTime now = start; now < start + seconds(300);) {
    const auto node = schedule.Take(now);
    if (!node) {
      now = *schedule.NextAt();
      continue;
    }
    ASSERT_GE(now - last[*node], seconds(25));
    longest = std::max(longest, now - last[*node]);
    last[*node] = now;
    ++per_second[std::chrono::duration_cast<seconds>(now - start).count()];
    const bool slow = now > start + seconds(100) && now < start + seconds(110);
    now += slow ? milliseconds(20) : milliseconds(1);
  }
  EXPECT_LT(longest, seconds(40));  // leaseDurationSeconds
  for (const auto& [second, writes] : per_second) {
    EXPECT_LE(writes, second < 100 ? 500 : 1000)
        << second;  // after the slow time: one after the other
  }
  for (int i = 0; i < kNodes; ++i) {
    EXPECT_GT(last[i], start + seconds(260)) << i;
  }
}

TEST(LeaseSchedule, ANodeThatWasReplacedStartsAnew) {
  LeaseSchedule schedule(2, kLeaseInterval);
  const MonotonicTime start{};
  EXPECT_FALSE(schedule.NextAt());
  schedule.Written(0, start);
  schedule.Written(0, start + std::chrono::seconds(20));
  EXPECT_EQ(schedule.NextAt(), start + std::chrono::seconds(45));
  EXPECT_FALSE(schedule.Take(start + std::chrono::seconds(44)));
  EXPECT_EQ(schedule.Take(start + std::chrono::seconds(46)), 0);
  EXPECT_EQ(schedule.NextAt(), start + std::chrono::seconds(71));
}

// Against the in-memory server: what takes part in it is merge patches, so statuses suffice.
class Simulation : public ::testing::Test {
 protected:
  Simulation()
      : server_(std::make_shared<client::testing::MemoryServer>()), client_(server_, "t") {}
  void CreatePod(const std::string& name, const std::string& node, Json extra = Json::object()) {
    Json pod = PodJson();
    pod["metadata"]["name"] = name;
    pod["spec"]["nodeName"] = node;
    pod.merge_patch(extra);
    ASSERT_TRUE(client_.Create({{"", "v1", "pods"}, "a", "", ""}, pod).ok());
  }
  // The pod's status once `condition` holds; fails the test after twenty seconds.
  Json Await(const std::string& name, const std::function<bool(const Json&)>& condition) {
    auto watch =
        client_.OpenWatch({{"", "v1", "pods"}, "a", "", ""}, {.send_initial_events = true});
    for (;;) {
      const auto event = (*watch)->Next(After(std::chrono::seconds(20)));
      if (!event.ok() || !*event) {
        ADD_FAILURE() << "no such state of " << name;
        return {};
      }
      const Json& object = *(**event).object;
      if (kube::FindString(object, {"metadata", "name"}) == name &&
          ((**event).type == client::WatchEvent::Type::kDeleted ? condition(nullptr)
                                                                : condition(object))) {
        return object;
      }
    }
  }
  std::shared_ptr<client::testing::MemoryServer> server_;
  client::Client client_;
};

bool IsRunning(const Json& pod) { return kube::FindString(pod, {"status", "phase"}) == "Running"; }

TEST_F(Simulation, RunsPodsOnItsNodesOnlyAndGivesEachAnAddress) {
  CreatePod("one", "sim-0");
  CreatePod("two", "sim-1");
  CreatePod("elsewhere", "other");
  SimulatedNodes nodes(client_, {.nodes = 2});
  nodes.Start();
  ASSERT_TRUE(nodes.WaitRegistered(After(std::chrono::seconds(20))));
  EXPECT_EQ(Await("one", IsRunning)["status"]["podIP"], "10.128.0.1");
  EXPECT_EQ(Await("two", IsRunning)["status"]["podIP"], "10.128.1.1");
  const Json node = *client_.Get({{"", "v1", "nodes"}, "", "sim-1", ""});
  EXPECT_EQ(kube::FindString(node, {"metadata", "labels", "kubernetes.io/hostname"}), "sim-1");
  EXPECT_TRUE(
      client_.Get({{"coordination.k8s.io", "v1", "leases"}, "kube-node-lease", "sim-0", ""}).ok());
  nodes.Stop();
  EXPECT_FALSE(IsRunning(*client_.Get({{"", "v1", "pods"}, "a", "elsewhere", ""})));
}

TEST_F(Simulation, RefusesTheSecondPodOnAHostPortAndGoesOnAfterARestart) {
  const Json port = {
      {"spec",
       {{"containers",
         Json::array({{{"name", "c"},
                       {"image", "busybox"},
                       {"ports", Json::array({{{"hostPort", 80}, {"containerPort", 80}}})}}})}}}};
  CreatePod("one", "sim-0", port);
  {
    SimulatedNodes nodes(client_, {.nodes = 1});
    nodes.Start();
    Await("one", IsRunning);
  }
  CreatePod("two", "sim-0", port);
  SimulatedNodes nodes(client_, {.nodes = 1});
  nodes.Start();
  const Json two = Await("two", [](const Json& pod) {
    return kube::FindString(pod, {"status", "phase"}) == "Failed";
  });
  EXPECT_EQ(two["status"]["reason"], "NodePorts");
  EXPECT_TRUE(IsRunning(*client_.Get({{"", "v1", "pods"}, "a", "one", ""})));
}

TEST_F(Simulation, RefusesWhatTheNodeHasNoRoomForUntilItIsFree) {
  const Json both = {
      {"spec",
       {{"containers",
         Json::array({{{"name", "c"},
                       {"image", "busybox"},
                       {"resources", {{"requests", {{"nvidia.com/gpu", "2"}}}}}}})}}}};
  SimulatedNodes nodes(client_, {.nodes = 1, .gpus = 2});
  nodes.Start();
  ASSERT_TRUE(nodes.WaitRegistered(After(std::chrono::seconds(20))));
  CreatePod("one", "sim-0", both);
  Await("one", IsRunning);
  CreatePod("two", "sim-0", both);
  const Json two = Await("two", [](const Json& pod) {
    return kube::FindString(pod, {"status", "phase"}) == "Failed";
  });
  EXPECT_EQ(two["status"]["reason"], "OutOfnvidia.com/gpu");
  EXPECT_EQ(two["status"]["message"],
            "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 2, "
            "used: 2, capacity: 2");
  ASSERT_TRUE(
      client_.Delete({{"", "v1", "pods"}, "a", "one", ""}, {.grace_period_seconds = 0}).ok());
  CreatePod("three", "sim-0", both);
  Await("three", IsRunning);
}

TEST_F(Simulation, FinishesADeletionAfterReportingTheEndToAFinalizer) {
  CreatePod("one", "sim-0", {{"metadata", {{"finalizers", {"batch.kubernetes.io/job-tracking"}}}}});
  SimulatedNodes nodes(client_, {.nodes = 1});
  nodes.Start();
  Await("one", IsRunning);
  ASSERT_TRUE(client_.Delete({{"", "v1", "pods"}, "a", "one", ""}).ok());
  const Json ended = Await("one", [](const Json& pod) {
    return kube::FindString(pod, {"status", "phase"}) == "Failed";
  });
  EXPECT_EQ(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
}

}  // namespace
}  // namespace sublet::node
