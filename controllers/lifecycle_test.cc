// What keeps a cluster tidy: lost nodes and eviction, pod GC, quotas, budgets, aggregated roles,
// claims.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controllers/garbage_graph.h"
#include "controllers/registry.h"
#include "controllers/testing/cluster.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using kube::Json;
using testing::Cluster;
using testing::Deployment;
using testing::PodTemplate;

class Lifecycle : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster({.nodes = 2, .cpu = "8"}); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  static Cluster* cluster_;

  static Json Pod(const std::string& name, Json spec = Json::object()) {
    Json pod = PodTemplate(name);
    pod["apiVersion"] = "v1";
    pod["kind"] = "Pod";
    pod["metadata"]["name"] = name;
    pod["spec"].update(spec);
    return pod;
  }
  static Json Quota(const std::string& name, Json spec) {
    return {{"apiVersion", "v1"},
            {"kind", "ResourceQuota"},
            {"metadata", {{"name", name}}},
            {"spec", std::move(spec)}};
  }
  static bool Used(const std::string& quota, const std::string& resource,
                   const std::string& amount) {
    return cluster_->AwaitOne("v1/resourcequotas", quota, [&](const Json& object) {
      const Json* used = kube::Find(object, {"status", "used"});
      return used != nullptr && used->value(resource, "") == amount;
    });
  }
  static Result<Json> Evict(const std::string& pod) {
    return cluster_->client().Create(
        {{"", "v1", "pods"}, "test", pod, "eviction"},
        {{"apiVersion", "policy/v1"}, {"kind", "Eviction"}, {"metadata", {{"name", pod}}}});
  }
  static void MakeNode(const std::string& name, const std::string& renewed) {
    cluster_->Create("v1/nodes",
                     {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}}}});
    cluster_->Patch(
        "v1/nodes", name,
        {{"status", {{"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}},
        "status");
    cluster_->Create("coordination.k8s.io/v1/leases",
                     {{"apiVersion", "coordination.k8s.io/v1"},
                      {"kind", "Lease"},
                      {"metadata", {{"name", name}}},
                      {"spec", {{"holderIdentity", name}, {"renewTime", renewed}}}},
                     "kube-node-lease");
  }
};
Cluster* Lifecycle::cluster_ = nullptr;

TEST_F(Lifecycle, APodOfALostNodeIsNotReadyAndGoesWhenItsTolerationEnds) {
  const auto tolerate = [](Json seconds) {
    Json toleration = {
        {"key", "node.kubernetes.io/unreachable"}, {"operator", "Exists"}, {"effect", "NoExecute"}};
    if (!seconds.is_null()) {
      toleration["tolerationSeconds"] = seconds;
    }
    return Json{{"nodeName", "lost"}, {"tolerations", Json::array({toleration})}};
  };
  for (const char* name : {"goes", "stays"}) {
    cluster_->Create("v1/pods", Pod(name, tolerate(name[0] == 'g' ? Json(1) : Json())));
    cluster_->Patch("v1/pods", name,
                    {{"status",
                      {{"phase", "Running"},
                       {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}},
                    "status");
  }
  MakeNode("lost", "2020-01-01T00:00:00.000000Z");
  ASSERT_TRUE(cluster_->AwaitOne("v1/nodes", "lost", [](const Json& node) {
    const Json* taints = kube::Find(node, {"spec", "taints"});
    return taints != nullptr && taints->size() == 2 && (*taints)[1]["effect"] == "NoExecute" &&
           (*taints)[1]["key"] == "node.kubernetes.io/unreachable";
  })) << cluster_->last();
  const Json node = cluster_->Get("v1/nodes", "lost");
  EXPECT_EQ(kube::FindString(*kube::FindCondition(node, "Ready"), {"reason"}), "NodeStatusUnknown");
  EXPECT_EQ(kube::FindString(*kube::FindCondition(node, "DiskPressure"), {"reason"}),
            "NodeStatusNeverUpdated");
  EXPECT_TRUE(cluster_->AwaitOne("v1/pods", "goes", [](const Json& pod) { return pod.is_null(); }))
      << cluster_->last();
  EXPECT_TRUE(cluster_->AwaitOne("v1/pods", "stays", [](const Json& pod) {
    return !kube::IsDeleting(pod) && !kube::IsConditionTrue(pod, "Ready");
  })) << cluster_->last();
  EXPECT_TRUE(cluster_->Await("v1/events", [](const Json& events) {
    return std::any_of(events.begin(), events.end(), [](const Json& event) {
      return event["reason"] == "TaintManagerEviction" && event["involvedObject"]["name"] == "goes";
    });
  }));
}

TEST_F(Lifecycle, ATaintThatNothingToleratesEvictsAtOnce) {
  cluster_->Create("v1/nodes",
                   {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "tainted"}}}});
  cluster_->Create(
      "v1/pods",
      Pod("intolerant", {{"nodeName", "tainted"},
                         {"tolerations", Json::array({{{"key", "node.kubernetes.io/not-ready"},
                                                       {"operator", "Exists"}}})}}));
  cluster_->Patch(
      "v1/nodes", "tainted",
      {{"spec", {{"taints", Json::array({{{"key", "gone"}, {"effect", "NoExecute"}}})}}}});
  EXPECT_TRUE(cluster_->AwaitOne("v1/pods", "intolerant", [](const Json& pod) {
    return pod.is_null();
  })) << cluster_->last();
}

TEST_F(Lifecycle, PodGcTakesPodsWithoutNodeAndTheOldestFinishedOnes) {
  std::vector<std::string> others;
  for (const ControllerEntry& entry : AllControllers()) {
    if (std::string_view(entry.name) != "pod-garbage-collector") {
      others.emplace_back(entry.name);
    }
  }
  Settings settings;
  settings.orphan_wait = std::chrono::seconds(0);
  settings.terminated_pods_max = 1;
  ControllerSet collector(cluster_->client(), settings, SystemClock(), others);
  collector.Start();
  cluster_->Create("v1/pods", Pod("orphan", {{"nodeName", "no-such-node"}}));
  EXPECT_TRUE(cluster_->AwaitOne("v1/pods", "orphan", [](const Json& pod) {
    return pod.is_null();
  })) << cluster_->last();
  for (const char* name : {"done-1", "done-2", "done-3"}) {
    Json pod = Pod(name, {{"restartPolicy", "Never"}});
    pod["metadata"]["labels"] = {{"app", "done"}};
    pod["metadata"]["annotations"] = {{"sublet.dev/simulate-run-seconds", "0"}};
    cluster_->Create("v1/pods", pod);
  }
  EXPECT_TRUE(cluster_->Await(
      "v1/pods",
      [](const Json& pods) {
        return pods.size() == 1 && pods[0]["status"]["phase"] == "Succeeded";
      },
      "app=done"))
      << cluster_->last();
  collector.Stop();
}

TEST_F(Lifecycle, QuotaStatusFollowsWhatIsThere) {
  cluster_->Create("v1/resourcequotas", Quota("q", {{"hard",
                                                     {{"pods", "3"},
                                                      {"requests.cpu", "1"},
                                                      {"configmaps", "10"},
                                                      {"services.nodeports", "1"},
                                                      {"count/deployments.apps", "5"}}}}));
  ASSERT_TRUE(Used("q", "configmaps", "1")) << cluster_->last();  // kube-root-ca.crt
  EXPECT_EQ(cluster_->Get("v1/resourcequotas", "q")["status"]["hard"]["requests.cpu"], "1");
  const Json cpu = {
      {"containers", Json::array({{{"name", "c"},
                                   {"image", "busybox"},
                                   {"resources", {{"requests", {{"cpu", "600m"}}}}}}})}};
  cluster_->Create("v1/pods", Pod("q-1", cpu));
  EXPECT_EQ(cluster_->Get("v1/resourcequotas", "q")["status"]["used"]["requests.cpu"], "600m");
  const auto refused =
      cluster_->client().Create({{"", "v1", "pods"}, "test", "", ""}, Pod("q-2", cpu));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(),
            "pods \"q-2\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: "
            "requests.cpu=600m, limited: requests.cpu=1");
  cluster_->Delete("v1/pods", "q-1");
  EXPECT_TRUE(Used("q", "requests.cpu", "0")) << cluster_->last();
  cluster_->Create("v1/configmaps",
                   {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "m"}}}});
  EXPECT_TRUE(Used("q", "configmaps", "2")) << cluster_->last();
  cluster_->Delete("v1/configmaps", "m");
  EXPECT_TRUE(Used("q", "configmaps", "1")) << cluster_->last();
  cluster_->Create("apps/v1/deployments", Deployment("counted", 0));
  EXPECT_TRUE(Used("q", "count/deployments.apps", "1")) << cluster_->last();
  cluster_->Delete("apps/v1/deployments", "counted");
  EXPECT_TRUE(Used("q", "count/deployments.apps", "0")) << cluster_->last();
  // Somebody's wrong status and a changed limit are set right.
  cluster_->Patch("v1/resourcequotas", "q",
                  {{"spec", {{"hard", {{"pods", "7"}, {"requests.cpu", nullptr}}}}}});
  EXPECT_TRUE(cluster_->AwaitOne("v1/resourcequotas", "q", [](const Json& quota) {
    return quota["status"]["hard"]["pods"] == "7" &&
           !quota["status"]["used"].contains("requests.cpu");
  })) << cluster_->last();
  cluster_->Delete("v1/resourcequotas", "q");
}

TEST_F(Lifecycle, QuotaScopesChooseWhatCounts) {
  cluster_->Create("v1/resourcequotas",
                   Quota("best", {{"hard", {{"pods", "5"}}}, {"scopes", {"BestEffort"}}}));
  cluster_->Create("v1/resourcequotas",
                   Quota("ends", {{"hard", {{"pods", "5"}}}, {"scopes", {"Terminating"}}}));
  ASSERT_TRUE(Used("ends", "pods", "0")) << cluster_->last();
  cluster_->Create(
      "v1/pods", Pod("short", {{"activeDeadlineSeconds", 3600},
                               {"containers",
                                Json::array({{{"name", "c"},
                                              {"image", "busybox"},
                                              {"resources", {{"requests", {{"cpu", "1m"}}}}}}})}}));
  EXPECT_TRUE(Used("ends", "pods", "1")) << cluster_->last();
  cluster_->Delete("v1/pods", "short");
  EXPECT_TRUE(Used("ends", "pods", "0")) << cluster_->last();
  cluster_->Delete("v1/resourcequotas", "best");
  cluster_->Delete("v1/resourcequotas", "ends");
}

TEST_F(Lifecycle, AggregatedClusterRolesFollowTheirParts) {
  const auto role = [](const std::string& name, Json rest) {
    Json out = {{"apiVersion", "rbac.authorization.k8s.io/v1"},
                {"kind", "ClusterRole"},
                {"metadata", {{"name", name}}}};
    out.merge_patch(rest);
    return out;
  };
  const std::string path = "rbac.authorization.k8s.io/v1/clusterroles";
  cluster_->Create(path, role("sum", {{"aggregationRule",
                                       {{"clusterRoleSelectors",
                                         Json::array({{{"matchLabels", {{"part", "yes"}}}}})}}}}));
  const Json rule = {{"apiGroups", {""}}, {"resources", {"pods"}}, {"verbs", {"get"}}};
  cluster_->Create(path, role("part-1", {{"metadata", {{"labels", {{"part", "yes"}}}}},
                                         {"rules", Json::array({rule})}}));
  EXPECT_TRUE(cluster_->AwaitOne(path, "sum", [&](const Json& sum) {
    return sum.is_object() && sum.contains("rules") && sum["rules"] == Json::array({rule});
  })) << cluster_->last();
  cluster_->Delete(path, "part-1");
  EXPECT_TRUE(cluster_->AwaitOne(path, "sum", [](const Json& sum) {
    return !sum.contains("rules") || sum["rules"].empty();
  })) << cluster_->last();
  // The built-in admin role sums up edit and view.
  EXPECT_TRUE(cluster_->AwaitOne(path, "admin", [](const Json& admin) {
    return admin.contains("rules") && admin["rules"].size() > 5;
  }));
}

TEST_F(Lifecycle, ABudgetRefusesEvictionsBeyondWhatItAllows) {
  cluster_->Create("apps/v1/deployments", Deployment("guarded", 2));
  cluster_->Create(
      "policy/v1/poddisruptionbudgets",
      {{"apiVersion", "policy/v1"},
       {"kind", "PodDisruptionBudget"},
       {"metadata", {{"name", "guard"}}},
       {"spec", {{"minAvailable", 2}, {"selector", {{"matchLabels", {{"app", "guarded"}}}}}}}});
  const auto budget_is = [](std::int64_t allowed) {
    return cluster_->AwaitOne("policy/v1/poddisruptionbudgets", "guard", [&](const Json& guard) {
      return kube::FindInt(guard, {"status", "currentHealthy"}) == 2 &&
             kube::FindInt(guard, {"status", "expectedPods"}) == 2 &&
             kube::FindInt(guard, {"status", "disruptionsAllowed"}) == allowed &&
             kube::FindInt(guard, {"status", "observedGeneration"}) == kube::GenerationOf(guard);
    });
  };
  ASSERT_TRUE(budget_is(0)) << cluster_->last();
  const std::string pod(kube::NameOf(cluster_->List("v1/pods", "app=guarded")[0]));
  const auto refused = Evict(pod);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.error().Is(Reason::kTooManyRequests));
  EXPECT_EQ(refused.error().message(),
            "Cannot evict pod as it would violate the pod's disruption budget.");
  cluster_->Patch("policy/v1/poddisruptionbudgets", "guard", {{"spec", {{"minAvailable", 1}}}});
  ASSERT_TRUE(budget_is(1)) << cluster_->last();
  const auto evicted = Evict(pod);
  EXPECT_TRUE(evicted.ok()) << evicted.error().message();
  EXPECT_TRUE(cluster_->AwaitOne("v1/pods", pod, [](const Json& gone) { return gone.is_null(); }))
      << cluster_->last();
}

TEST_F(Lifecycle, AClaimInUseStaysUntilItsPodIsGone) {
  cluster_->Create("v1/persistentvolumeclaims",
                   {{"apiVersion", "v1"},
                    {"kind", "PersistentVolumeClaim"},
                    {"metadata", {{"name", "data"}}},
                    {"spec",
                     {{"accessModes", {"ReadWriteOnce"}},
                      {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}});
  cluster_->Create(
      "v1/pods",
      Pod("user",
          {{"volumes",
            Json::array({{{"name", "d"}, {"persistentVolumeClaim", {{"claimName", "data"}}}}})}}));
  ASSERT_TRUE(cluster_->AwaitOne("v1/pods", "user", [](const Json& pod) {
    return kube::IsConditionTrue(pod, "Ready");
  })) << cluster_->last();
  ASSERT_TRUE(cluster_->AwaitOne("v1/persistentvolumeclaims", "data", [](const Json& claim) {
    return claim["status"]["phase"] == "Bound";
  })) << cluster_->last();
  cluster_->Delete("v1/persistentvolumeclaims", "data");
  EXPECT_TRUE(kube::IsDeleting(cluster_->Get("v1/persistentvolumeclaims", "data")));
  cluster_->Delete("v1/pods", "user");
  EXPECT_TRUE(cluster_->AwaitOne("v1/persistentvolumeclaims", "data", [](const Json& claim) {
    return claim.is_null();
  })) << cluster_->last();
  EXPECT_TRUE(cluster_->Await("v1/persistentvolumes", [](const Json& volumes) {
    return volumes.empty();
  })) << cluster_->last();
}

TEST_F(Lifecycle, AClaimThatWaitsForItsFirstConsumerIsBoundWhereItsPodIsPlaced) {
  cluster_->Create("storage.k8s.io/v1/storageclasses",
                   {{"metadata", {{"name", "late"}}},
                    {"provisioner", "sublet.dev/local-path"},
                    {"volumeBindingMode", "WaitForFirstConsumer"}},
                   "-");
  cluster_->Create("v1/persistentvolumeclaims",
                   {{"metadata", {{"name", "late"}}},
                    {"spec",
                     {{"accessModes", {"ReadWriteOnce"}},
                      {"storageClassName", "late"},
                      {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}});
  ASSERT_TRUE(cluster_->Await("v1/events", [](const Json& events) {
    return std::any_of(events.begin(), events.end(), [](const Json& event) {
      return kube::FindString(event, {"reason"}) == "WaitForFirstConsumer";
    });
  })) << cluster_->last();
  EXPECT_EQ(cluster_->Get("v1/persistentvolumeclaims", "late")["status"]["phase"], "Pending");
  cluster_->Create(
      "v1/pods",
      Pod("late",
          {{"volumes",
            Json::array({{{"name", "d"}, {"persistentVolumeClaim", {{"claimName", "late"}}}}})}}));
  ASSERT_TRUE(cluster_->AwaitOne("v1/persistentvolumeclaims", "late", [](const Json& claim) {
    return kube::FindString(claim, {"status", "phase"}) == "Bound";
  })) << cluster_->last();
  const std::string node(kube::FindString(cluster_->Get("v1/pods", "late"), {"spec", "nodeName"}));
  const Json claim = cluster_->Get("v1/persistentvolumeclaims", "late");
  ASSERT_TRUE(cluster_->Await("v1/persistentvolumes", [&](const Json& volumes) {
    return std::any_of(volumes.begin(), volumes.end(), [&](const Json& volume) {
      return kube::NameOf(volume) == kube::FindString(claim, {"spec", "volumeName"}) &&
             kube::Dump(volume["spec"]["nodeAffinity"]).find('"' + node + '"') != std::string::npos;
    });
  })) << cluster_->last();
  cluster_->Delete("v1/pods", "late");
  cluster_->Delete("v1/persistentvolumeclaims", "late");
  EXPECT_TRUE(cluster_->Await("v1/persistentvolumes", [](const Json& volumes) {
    return volumes.empty();
  })) << cluster_->last();
}

TEST_F(Lifecycle, VolumeAttributesStayWhileAClaimNamesThem) {
  const std::string classes = "storage.k8s.io/v1/volumeattributesclasses";
  for (const char* name : {"fast", "unused"}) {
    cluster_->Create(classes, {{"metadata", {{"name", name}}},
                               {"driverName", "driver.example.com"},
                               {"parameters", {{"speed", "high"}}}});
  }
  cluster_->Create("v1/persistentvolumeclaims",
                   {{"metadata", {{"name", "data"}}},
                    {"spec",
                     {{"accessModes", {"ReadWriteOnce"}},
                      {"storageClassName", "none"},
                      {"volumeAttributesClassName", "fast"},
                      {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}});
  const auto gone = [](const Json& object) { return object.is_null(); };
  cluster_->Delete(classes, "fast");
  cluster_->Delete(classes, "unused");
  EXPECT_TRUE(cluster_->AwaitOne(classes, "unused", gone)) << cluster_->last();
  EXPECT_TRUE(kube::IsDeleting(cluster_->Get(classes, "fast")));
  cluster_->Delete("v1/persistentvolumeclaims", "data");
  EXPECT_TRUE(cluster_->AwaitOne(classes, "fast", gone)) << cluster_->last();
}

client::CachedObject Object(const std::string& name, const std::string& owner = "") {
  client::CachedObject object;
  object.key = {"ns", name};
  object.uid = "uid-" + name;
  if (!owner.empty()) {
    object.owners = {{"v1", "Pod", owner, "uid-" + owner, true, true}};
  }
  return object;
}

TEST(GarbageGraph, AnOwnerThatPassedIsNotAskedForUntilItsEndPasses) {
  const DiscoveredResource pods{{"", "v1", "pods"}, "Pod", true, {}};
  const DiscoveredResource groups{
      {"scheduling.run.ai", "v2alpha2", "podgroups"}, "PodGroup", true, {}};
  const client::CachedObject group = Object("g", "p");
  const kube::OwnerReference& owner = group.owners.front();
  GarbageGraph graph;
  EXPECT_EQ(graph.Put(groups, group), GarbageGraph::Work{"uid-g"});
  EXPECT_FALSE(graph.VerifySeen(owner, pods, "ns")) << "it has not passed yet";
  EXPECT_TRUE(graph.Put(pods, Object("p")).empty());
  EXPECT_FALSE(graph.VerifySeen(owner, pods, "other")) << "an owner elsewhere is none";
  EXPECT_FALSE(graph.VerifySeen(owner, groups, "ns"));
  EXPECT_TRUE(graph.VerifySeen(owner, pods, "ns"));
  EXPECT_TRUE(graph.Put(groups, group).empty()) << "a change of the dependent forgets nothing";
  EXPECT_TRUE(graph.IsVerified("uid-p"));
  EXPECT_EQ(graph.Remove("uid-p"), GarbageGraph::Work{"uid-g"});
  EXPECT_FALSE(graph.VerifySeen(owner, pods, "ns"));
  graph.SetVerified("uid-p");
  EXPECT_FALSE(graph.IsVerified("uid-p")) << "an answer from before the end came after it";
}

}  // namespace
}  // namespace sublet::controllers
