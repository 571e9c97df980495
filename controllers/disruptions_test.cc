// What ends pods against their will, and what holds that back: zones of lost nodes, nodes out of
// service, budgets for unready pods; and the quotas and limits that refuse a pod beforehand.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controllers/testing/cluster.h"
#include "controllers/zone_evictions.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using kube::Json;
using std::chrono::seconds;
using testing::Cluster;
using testing::PodTemplate;

MonotonicTime At(int second) { return MonotonicTime(seconds(1000 + second)); }

TEST(ZoneEvictions, OneNodeAtOnceAndTheNextAtTheRateOfItsZone) {
  ZoneEvictions zones({});
  for (int i = 0; i < 10; ++i) {
    zones.Put("n" + std::to_string(i), "a", i >= 2);
  }
  EXPECT_EQ(zones.Ask("n0", At(0)), std::chrono::nanoseconds(0));
  EXPECT_EQ(zones.Ask("n0", At(0)), std::chrono::nanoseconds(0)) << "its turn was taken back";
  EXPECT_EQ(zones.Ask("n1", At(4)), seconds(6));
  EXPECT_EQ(zones.Ask("n1", At(10)), std::chrono::nanoseconds(0));
  zones.Put("b0", "b", false);
  zones.Put("b1", "b", true);
  EXPECT_EQ(zones.Ask("b0", At(10)), std::chrono::nanoseconds(0))
      << "zones do not wait for each other";
  // Ready again and lost again: a new turn.
  zones.Put("n1", "a", true);
  zones.Put("n1", "a", false);
  EXPECT_EQ(zones.Ask("n1", At(11)), seconds(9));
}

TEST(ZoneEvictions, AZoneThatFailsInPartStopsWhenItIsSmallAndSlowsDownWhenItIsLarge) {
  ZoneEvictions zones({});
  EXPECT_FALSE(zones.Put("other", "elsewhere", true) && zones.AllDisrupted());
  for (int i = 0; i < 4; ++i) {
    zones.Put("s" + std::to_string(i), "small", i == 3);
  }
  EXPECT_EQ(zones.StateOf("small"), ZoneState::kPartialDisruption);
  EXPECT_EQ(zones.Ask("s0", At(0)), std::nullopt);
  EXPECT_TRUE(zones.Put("s0", "small", true)) << "two of four are few again";
  EXPECT_EQ(zones.StateOf("small"), ZoneState::kNormal);
  EXPECT_EQ(zones.Ask("s1", At(0)), std::chrono::nanoseconds(0));
  for (int i = 0; i < 60; ++i) {
    zones.Put("l" + std::to_string(i), "large", i >= 40);
  }
  EXPECT_EQ(zones.StateOf("large"), ZoneState::kPartialDisruption);
  EXPECT_EQ(zones.Ask("l0", At(0)), std::chrono::nanoseconds(0));
  EXPECT_EQ(zones.Ask("l1", At(10)), seconds(90));
}

TEST(ZoneEvictions, NobodyIsEvictedWhileNoNodeIsReadyAnywhere) {
  ZoneEvictions zones({});
  EXPECT_TRUE(zones.AllDisrupted()) << "nothing is known yet";
  zones.Put("a", "1", true);
  zones.Put("b", "2", false);
  EXPECT_EQ(zones.StateOf("2"), ZoneState::kFullDisruption);
  EXPECT_EQ(zones.Ask("b", At(0)), std::chrono::nanoseconds(0)) << "another zone is well";
  EXPECT_TRUE(zones.Put("a", "1", false));
  EXPECT_TRUE(zones.AllDisrupted());
  EXPECT_EQ(zones.Ask("b", At(20)), std::nullopt);
  EXPECT_TRUE(zones.Put("a", "1", true));
  EXPECT_EQ(zones.Ask("b", At(20)), std::chrono::nanoseconds(0));
  EXPECT_TRUE(zones.Remove("a"));
  EXPECT_TRUE(zones.AllDisrupted());
}

class Disruptions : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster({.nodes = 2, .cpu = "8"}); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  static Cluster* cluster_;

  static Json Pod(const std::string& name, const Json& spec, const Json& annotations = nullptr) {
    Json pod = PodTemplate("plain");
    pod["apiVersion"] = "v1";
    pod["kind"] = "Pod";
    pod["metadata"]["name"] = name;
    if (!annotations.is_null()) {
      pod["metadata"]["annotations"] = annotations;
    }
    pod["spec"].update(spec);
    return pod;
  }
  static Json WithCpu(const std::string& request, const std::string& limit) {
    Json resources = {{"requests", {{"cpu", request}}}};
    if (!limit.empty()) {
      resources["limits"] = {{"cpu", limit}};
    }
    return {{"containers",
             Json::array({{{"name", "c"}, {"image", "busybox"}, {"resources", resources}}})}};
  }
  static std::string Refusal(const Json& pod) {
    const auto made = cluster_->client().Create({{"", "v1", "pods"}, "test", "", ""}, pod);
    return made.ok() ? "" : made.error().message();
  }
  static Result<Json> Evict(const std::string& pod) {
    return cluster_->client().Create(
        {{"", "v1", "pods"}, "test", pod, "eviction"},
        {{"apiVersion", "policy/v1"}, {"kind", "Eviction"}, {"metadata", {{"name", pod}}}});
  }
  // A node without a kubelet. `lost`: its lease ran out long ago.
  static void MakeNode(const std::string& name, const std::string& zone, bool lost,
                       const char* ready = "True") {
    cluster_->Create(
        "v1/nodes",
        {{"apiVersion", "v1"},
         {"kind", "Node"},
         {"metadata", {{"name", name}, {"labels", {{"topology.kubernetes.io/zone", zone}}}}}});
    cluster_->Patch(
        "v1/nodes", name,
        {{"status", {{"conditions", Json::array({{{"type", "Ready"}, {"status", ready}}})}}}},
        "status");
    if (lost) {
      cluster_->Create(
          "coordination.k8s.io/v1/leases",
          {{"apiVersion", "coordination.k8s.io/v1"},
           {"kind", "Lease"},
           {"metadata", {{"name", name}}},
           {"spec", {{"holderIdentity", name}, {"renewTime", "2020-01-01T00:00:00.000000Z"}}}},
          "kube-node-lease");
    }
  }
  // When the node got its NoExecute taint; nothing while it has none.
  static std::optional<WallTime> Evicted(const Json& node) {
    const Json* taints = kube::Find(node, {"spec", "taints"});
    for (const Json& taint : taints != nullptr ? *taints : Json::array()) {
      if (taint["effect"] == "NoExecute") {
        return kube::FindTime(kube::FindString(taint, {"timeAdded"}));
      }
    }
    return std::nullopt;
  }
  static bool IsUnknown(const std::string& name) {
    return cluster_->AwaitOne("v1/nodes", name, [](const Json& node) {
      const Json* ready = kube::FindCondition(node, "Ready");
      return ready != nullptr && (*ready)["status"] == "Unknown";
    });
  }
};
Cluster* Disruptions::cluster_ = nullptr;

TEST_F(Disruptions, LostNodesOfAZoneAreEvictedOneAfterTheOther) {
  // Zone "slow": two of three lost. Zone "broken": three of four lost. Zone "gone": its only node.
  MakeNode("slow-0", "slow", false);
  MakeNode("broken-0", "broken", false);
  for (const char* name : {"broken-1", "broken-2", "broken-3"}) {
    MakeNode(name, "broken", true, "False");
  }
  for (const char* name : {"broken-1", "broken-2", "broken-3"}) {
    ASSERT_TRUE(IsUnknown(name)) << cluster_->last();
  }
  MakeNode("slow-1", "slow", true);
  MakeNode("slow-2", "slow", true);
  MakeNode("gone-0", "gone", true);
  const auto tainted = [](const std::string& name) {
    return cluster_->AwaitOne("v1/nodes", name,
                              [](const Json& node) { return Evicted(node).has_value(); });
  };
  ASSERT_TRUE(tainted("gone-0")) << cluster_->last();
  ASSERT_TRUE(tainted("slow-1")) << cluster_->last();
  ASSERT_TRUE(tainted("slow-2")) << cluster_->last();
  const auto first = *Evicted(cluster_->Get("v1/nodes", "slow-1"));
  const auto second = *Evicted(cluster_->Get("v1/nodes", "slow-2"));
  EXPECT_GE(second > first ? second - first : first - second, seconds(9));
  // The broken zone had its first node evicted before it was seen to be broken, at most.
  int evicted = 0;
  for (const char* name : {"broken-1", "broken-2", "broken-3"}) {
    evicted += Evicted(cluster_->Get("v1/nodes", name)).has_value() ? 1 : 0;
  }
  EXPECT_LE(evicted, 1);
  for (const char* name :
       {"slow-0", "slow-1", "slow-2", "broken-0", "broken-1", "broken-2", "broken-3", "gone-0"}) {
    cluster_->Delete("v1/nodes", name);
  }
}

TEST_F(Disruptions, ANodeOutOfServiceGivesItsPodsUpAtOnce) {
  MakeNode("outage", "", false, "False");
  const Json tolerant = {
      {"nodeName", "outage"},
      {"terminationGracePeriodSeconds", 3600},
      {"tolerations",
       Json::array({{{"key", "node.kubernetes.io/not-ready"}, {"operator", "Exists"}}})}};
  cluster_->Create("v1/pods", Pod("stranded", tolerant));
  cluster_->Delete("v1/pods", "stranded");
  ASSERT_TRUE(kube::IsDeleting(cluster_->Get("v1/pods", "stranded")))
      << "nobody is there to end it";
  cluster_->Create("v1/pods", Pod("beside", tolerant));
  cluster_->Patch("v1/nodes", "outage",
                  {{"spec",
                    {{"taints", Json::array({{{"key", "node.kubernetes.io/out-of-service"},
                                              {"value", "nodeshutdown"},
                                              {"effect", "NoExecute"}}})}}}});
  for (const char* name : {"stranded", "beside"}) {
    EXPECT_TRUE(cluster_->AwaitOne("v1/pods", name, [](const Json& pod) { return pod.is_null(); }))
        << cluster_->last();
  }
  cluster_->Delete("v1/nodes", "outage");
}

TEST_F(Disruptions, UnreadyPodsMayBeEvictedAsTheirBudgetSays) {
  const Json unready = {{"sublet.dev/simulate-ready", "false"}};
  for (const char* name : {"sick-1", "sick-2", "well"}) {
    cluster_->Create("v1/pods", Pod(name, Json::object(), name[0] == 's' ? unready : Json()));
    ASSERT_TRUE(cluster_->AwaitOne("v1/pods", name, [&](const Json& pod) {
      return kube::FindString(pod, {"status", "phase"}) == "Running" &&
             kube::IsConditionTrue(pod, "Ready") == (name[0] == 'w');
    })) << cluster_->last();
  }
  const std::string path = "policy/v1/poddisruptionbudgets";
  cluster_->Create(
      path, {{"apiVersion", "policy/v1"},
             {"kind", "PodDisruptionBudget"},
             {"metadata", {{"name", "b"}}},
             {"spec", {{"minAvailable", 2}, {"selector", {{"matchLabels", {{"app", "plain"}}}}}}}});
  const auto desired = [&](std::int64_t count) {
    return cluster_->AwaitOne(path, "b", [&](const Json& budget) {
      return kube::FindInt(budget, {"status", "desiredHealthy"}) == count &&
             kube::FindInt(budget, {"status", "currentHealthy"}) == 1 &&
             kube::FindInt(budget, {"status", "observedGeneration"}) == kube::GenerationOf(budget);
    });
  };
  ASSERT_TRUE(desired(2)) << cluster_->last();
  const auto refused = Evict("sick-1");  // IfHealthyBudget: 1 of 2 is well, so nothing may go
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.error().Is(Reason::kTooManyRequests));
  cluster_->Patch(path, "b", {{"spec", {{"minAvailable", 1}}}});
  ASSERT_TRUE(desired(1)) << cluster_->last();
  EXPECT_TRUE(Evict("sick-1").ok()) << "the budget is satisfied without it";
  EXPECT_FALSE(Evict("well").ok());
  cluster_->Patch(path, "b",
                  {{"spec", {{"minAvailable", 2}, {"unhealthyPodEvictionPolicy", "AlwaysAllow"}}}});
  ASSERT_TRUE(desired(2)) << cluster_->last();
  EXPECT_TRUE(Evict("sick-2").ok());
  EXPECT_FALSE(Evict("well").ok());
  for (const char* name : {"sick-1", "sick-2"}) {
    EXPECT_TRUE(cluster_->AwaitOne("v1/pods", name, [](const Json& pod) { return pod.is_null(); }))
        << cluster_->last();
  }
  cluster_->Delete(path, "b");
  cluster_->Delete("v1/pods", "well");
}

TEST_F(Disruptions, QuotasOfPriorityClassesAndOfNotBestEffortCountTheirPodsOnly) {
  cluster_->Create("scheduling.k8s.io/v1/priorityclasses",
                   {{"apiVersion", "scheduling.k8s.io/v1"},
                    {"kind", "PriorityClass"},
                    {"metadata", {{"name", "gold"}}},
                    {"value", 10}},
                   "-");
  const auto quota = [](const std::string& name, Json spec) {
    spec["hard"] = {{"pods", "1"}};
    cluster_->Create("v1/resourcequotas", {{"apiVersion", "v1"},
                                           {"kind", "ResourceQuota"},
                                           {"metadata", {{"name", name}}},
                                           {"spec", spec}});
    ASSERT_TRUE(cluster_->AwaitOne("v1/resourcequotas", name, [](const Json& object) {
      return kube::Find(object, {"status", "used", "pods"}) != nullptr;
    })) << cluster_->last();
  };
  quota("gold",
        {{"scopeSelector",
          {{"matchExpressions",
            Json::array(
                {{{"scopeName", "PriorityClass"}, {"operator", "In"}, {"values", {"gold"}}}})}}}});
  quota("sized", {{"scopes", {"NotBestEffort"}}});
  cluster_->Create("v1/pods", Pod("gold-1", {{"priorityClassName", "gold"}}));
  EXPECT_EQ(Refusal(Pod("gold-2", {{"priorityClassName", "gold"}})),
            "pods \"gold-2\" is forbidden: exceeded quota: gold, requested: pods=1, used: pods=1, "
            "limited: pods=1");
  cluster_->Create("v1/pods", Pod("sized-1", WithCpu("1m", "")));
  EXPECT_EQ(Refusal(Pod("sized-2", WithCpu("1m", ""))),
            "pods \"sized-2\" is forbidden: exceeded quota: sized, requested: pods=1, used: "
            "pods=1, limited: pods=1");
  cluster_->Create("v1/pods", Pod("neither", Json::object()));
  cluster_->Delete("v1/pods", "gold-1");
  ASSERT_TRUE(cluster_->AwaitOne("v1/resourcequotas", "gold", [](const Json& object) {
    return object["status"]["used"]["pods"] == "0";
  })) << cluster_->last();
  EXPECT_EQ(Refusal(Pod("gold-2", {{"priorityClassName", "gold"}})), "");
  for (const char* name : {"gold", "sized"}) {
    cluster_->Delete("v1/resourcequotas", name);
  }
}

TEST_F(Disruptions, ALimitRangeHoldsTheRatioOfLimitToRequest) {
  cluster_->Create(
      "v1/limitranges",
      {{"apiVersion", "v1"},
       {"kind", "LimitRange"},
       {"metadata", {{"name", "ratio"}}},
       {"spec",
        {{"limits",
          Json::array({{{"type", "Container"}, {"maxLimitRequestRatio", {{"cpu", "2"}}}}})}}}});
  EXPECT_EQ(Refusal(Pod("even", WithCpu("100m", "200m"))), "");
  EXPECT_EQ(Refusal(Pod("steep", WithCpu("100m", "250m"))),
            "pods \"steep\" is forbidden: cpu max limit to request ratio per Container is 2, but "
            "provided ratio is 2.500000");
  EXPECT_EQ(Refusal(Pod("open", WithCpu("100m", ""))),
            "pods \"open\" is forbidden: cpu max limit to request ratio per Container is 2, but no "
            "limit is specified or limit is 0.");
  cluster_->Delete("v1/limitranges", "ratio");
}

}  // namespace
}  // namespace sublet::controllers
