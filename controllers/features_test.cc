// Options of the workload controllers, Services' endpoints and node ports.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "controllers/registry.h"
#include "controllers/testing/cluster.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using kube::Json;
using testing::Cluster;
using testing::Deployment;
using testing::PodTemplate;

class Features : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster({.nodes = 2, .cpu = "16"}); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  static Cluster* cluster_;

  static std::set<std::string> NamesOf(const Json& items) {
    std::set<std::string> out;
    for (const Json& item : items) {
      out.emplace(kube::NameOf(item));
    }
    return out;
  }
  static bool AllReady(const Json& pods, std::size_t count) {
    return pods.size() == count && std::all_of(pods.begin(), pods.end(), [](const Json& pod) {
             return kube::IsConditionTrue(pod, "Ready");
           });
  }
  // A template whose pods end after `seconds` with `code`; "" keeps them running.
  static Json Ending(const std::string& app, const std::string& seconds, const std::string& code) {
    Json out = PodTemplate(app);
    if (!seconds.empty()) {
      out["metadata"]["annotations"] = {{"sublet.dev/simulate-run-seconds", seconds},
                                        {"sublet.dev/simulate-exit-code", code}};
    }
    out["spec"]["restartPolicy"] = "Never";
    return out;
  }
  static void MakeJob(const std::string& name, Json spec, Json pod_template) {
    spec["template"] = std::move(pod_template);
    cluster_->Create("batch/v1/jobs", {{"apiVersion", "batch/v1"},
                                       {"kind", "Job"},
                                       {"metadata", {{"name", name}}},
                                       {"spec", std::move(spec)}});
  }
  static bool JobIs(const std::string& name, const std::string& type, const std::string& reason) {
    return cluster_->AwaitOne("batch/v1/jobs", name, [&](const Json& job) {
      const Json* condition = kube::FindCondition(job, type);
      return condition != nullptr && kube::FindString(*condition, {"status"}) == "True" &&
             (reason.empty() || kube::FindString(*condition, {"reason"}) == reason);
    });
  }
  static Json StatefulSet(const std::string& name, int replicas, Json spec) {
    spec["replicas"] = replicas;
    spec["serviceName"] = name;
    spec["selector"] = {{"matchLabels", {{"app", name}}}};
    spec["template"] = PodTemplate(name);
    return {{"apiVersion", "apps/v1"},
            {"kind", "StatefulSet"},
            {"metadata", {{"name", name}}},
            {"spec", std::move(spec)}};
  }
  static Json Service(const std::string& name, Json spec) {
    return {{"apiVersion", "v1"},
            {"kind", "Service"},
            {"metadata", {{"name", name}}},
            {"spec", std::move(spec)}};
  }
};
Cluster* Features::cluster_ = nullptr;

TEST_F(Features, ADeploymentThatDoesNotProgressSaysSo) {
  Json stuck = Deployment("stuck", 1);
  stuck["spec"]["progressDeadlineSeconds"] = 1;
  stuck["spec"]["template"] = PodTemplate("stuck", "nowhere/image:404");
  cluster_->Create("apps/v1/deployments", stuck);
  EXPECT_TRUE(cluster_->AwaitOne("apps/v1/deployments", "stuck", [](const Json& deployment) {
    const Json* condition = kube::FindCondition(deployment, "Progressing");
    return condition != nullptr &&
           kube::FindString(*condition, {"reason"}) == "ProgressDeadlineExceeded" &&
           kube::FindString(*condition, {"status"}) == "False";
  })) << cluster_->last();
}

TEST_F(Features, JobIndexesFailOnTheirOwn) {
  MakeJob("per-index",
          {{"completions", 3},
           {"parallelism", 3},
           {"completionMode", "Indexed"},
           {"backoffLimitPerIndex", 0},
           {"maxFailedIndexes", 3}},
          Ending("per-index", "0", "1"));
  EXPECT_TRUE(JobIs("per-index", "Failed", "FailedIndexes")) << cluster_->last();
  EXPECT_EQ(
      kube::FindString(cluster_->Get("batch/v1/jobs", "per-index"), {"status", "failedIndexes"}),
      "0-2");
  MakeJob("few-failures",
          {{"completions", 4},
           {"parallelism", 1},
           {"completionMode", "Indexed"},
           {"backoffLimitPerIndex", 0},
           {"maxFailedIndexes", 1}},
          Ending("few-failures", "0", "1"));
  EXPECT_TRUE(JobIs("few-failures", "Failed", "MaxFailedIndexesExceeded")) << cluster_->last();
}

TEST_F(Features, AJobSucceedsByItsPolicyBeforeAllIndexesDo) {
  MakeJob("one-is-enough",
          {{"completions", 3},
           {"parallelism", 1},
           {"completionMode", "Indexed"},
           {"successPolicy", {{"rules", Json::array({{{"succeededIndexes", "0"}}})}}}},
          Ending("one-is-enough", "0", "0"));
  EXPECT_TRUE(JobIs("one-is-enough", "Complete", "SuccessPolicy")) << cluster_->last();
  EXPECT_TRUE(JobIs("one-is-enough", "SuccessCriteriaMet", "SuccessPolicy")) << cluster_->last();
}

TEST_F(Features, AJobStopsAtItsDeadline) {
  MakeJob("late", {{"activeDeadlineSeconds", 1}, {"parallelism", 2}, {"completions", 2}},
          Ending("late", "", ""));
  EXPECT_TRUE(JobIs("late", "Failed", "DeadlineExceeded")) << cluster_->last();
  EXPECT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return pods.empty(); }, "job-name=late"))
      << cluster_->last();
}

// A clock that is ten minutes ahead, so that a schedule is due at once.
class AheadClock final : public Clock {
 public:
  WallTime Now() const override { return SystemClock().Now() + std::chrono::minutes(10); }
  MonotonicTime Monotonic() const override { return SystemClock().Monotonic(); }
};

TEST_F(Features, CronJobsRunAtTheirTimesUnlessSuspended) {
  const auto cron = [](const std::string& name, Json spec) {
    spec["schedule"] = "* * * * *";
    spec["jobTemplate"] = {{"spec", {{"template", Ending(name, "0", "0")}}}};
    cluster_->Create("batch/v1/cronjobs", {{"apiVersion", "batch/v1"},
                                           {"kind", "CronJob"},
                                           {"metadata", {{"name", name}}},
                                           {"spec", std::move(spec)}});
  };
  cron("tick", {{"timeZone", "Europe/Berlin"}, {"successfulJobsHistoryLimit", 1}});
  cron("halted", {{"suspend", true}});
  std::vector<std::string> others;
  for (const ControllerEntry& entry : AllControllers()) {
    if (std::string_view(entry.name) != "cronjob") {
      others.emplace_back(entry.name);
    }
  }
  const AheadClock clock;
  ControllerSet ahead(cluster_->client(), {}, clock, others);
  ahead.Start();
  ASSERT_TRUE(cluster_->AwaitOne("batch/v1/cronjobs", "tick", [](const Json& tick) {
    return !kube::FindString(tick, {"status", "lastScheduleTime"}).empty() &&
           !kube::FindString(tick, {"status", "lastSuccessfulTime"}).empty();
  })) << cluster_->last();
  const Json jobs = cluster_->List("batch/v1/jobs");
  const auto made = std::find_if(jobs.begin(), jobs.end(), [](const Json& job) {
    return kube::NameOf(job).starts_with("tick-");
  });
  ASSERT_NE(made, jobs.end());
  EXPECT_FALSE(
      kube::AnnotationOf(*made, "batch.kubernetes.io/cronjob-scheduled-timestamp").empty());
  EXPECT_TRUE(std::none_of(jobs.begin(), jobs.end(), [](const Json& job) {
    return kube::NameOf(job).starts_with("halted-");
  }));
  ahead.Stop();
  cluster_->Delete("batch/v1/cronjobs", "tick");
}

TEST_F(Features, AStatefulSetCountsFromItsFirstOrdinalAndKeepsOrDropsItsClaims) {
  const Json claim = {
      {"metadata", {{"name", "data"}}},
      {"spec",
       {{"accessModes", {"ReadWriteOnce"}}, {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}};
  cluster_->Create("apps/v1/statefulsets",
                   StatefulSet("db", 3,
                               {{"ordinals", {{"start", 5}}},
                                {"podManagementPolicy", "Parallel"},
                                {"persistentVolumeClaimRetentionPolicy",
                                 {{"whenScaled", "Delete"}, {"whenDeleted", "Retain"}}},
                                {"volumeClaimTemplates", Json::array({claim})}}));
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return AllReady(pods, 3); }, "app=db"))
      << cluster_->last();
  EXPECT_EQ(NamesOf(cluster_->List("v1/pods", "app=db")),
            (std::set<std::string>{"db-5", "db-6", "db-7"}));
  cluster_->Patch("apps/v1/statefulsets", "db", {{"spec", {{"replicas", 1}}}});
  EXPECT_TRUE(cluster_->Await("v1/persistentvolumeclaims", [](const Json& claims) {
    return NamesOf(claims) == std::set<std::string>{"data-db-5"};
  })) << cluster_->last();
  cluster_->Delete("apps/v1/statefulsets", "db");
  EXPECT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return pods.empty(); }, "app=db"))
      << cluster_->last();
  EXPECT_EQ(NamesOf(cluster_->List("v1/persistentvolumeclaims")),
            std::set<std::string>{"data-db-5"});
}

TEST_F(Features, RevisionsOfAStatefulSetLeadBack) {
  cluster_->Create("apps/v1/statefulsets", StatefulSet("back", 1, Json::object()));
  const auto revision_is = [](std::size_t count, std::int64_t newest) {
    return cluster_->Await(
        "apps/v1/controllerrevisions",
        [&](const Json& revisions) {
          std::int64_t most = 0;
          for (const Json& revision : revisions) {
            most = std::max(most, kube::FindInt(revision, {"revision"}));
          }
          return revisions.size() == count && most == newest;
        },
        "app=back");
  };
  ASSERT_TRUE(revision_is(1, 1)) << cluster_->last();
  const auto note = [](Json value) {
    cluster_->Patch(
        "apps/v1/statefulsets", "back",
        {{"spec",
          {{"template",
            {{"metadata", {{"annotations", value.is_null() ? Json() : Json{{"v", value}}}}}}}}}});
  };
  note("2");
  ASSERT_TRUE(revision_is(2, 2)) << cluster_->last();
  note(nullptr);  // what `kubectl rollout undo` does: the first revision becomes the newest
  EXPECT_TRUE(revision_is(2, 3)) << cluster_->last();
}

TEST_F(Features, ADaemonSetSurgesSoThatANodeIsNeverWithoutAReadyPod) {
  Json surge = {{"apiVersion", "apps/v1"},
                {"kind", "DaemonSet"},
                {"metadata", {{"name", "surge"}}},
                {"spec",
                 {{"selector", {{"matchLabels", {{"app", "surge"}}}}},
                  {"template", PodTemplate("surge")},
                  {"updateStrategy",
                   {{"type", "RollingUpdate"},
                    {"rollingUpdate", {{"maxSurge", 1}, {"maxUnavailable", 0}}}}}}}};
  cluster_->Create("apps/v1/daemonsets", surge);
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return AllReady(pods, 2); }, "app=surge"))
      << cluster_->last();
  const auto before = NamesOf(cluster_->List("v1/pods", "app=surge"));
  cluster_->Patch("apps/v1/daemonsets", "surge",
                  {{"spec", {{"template", {{"metadata", {{"annotations", {{"v", "2"}}}}}}}}}});
  EXPECT_TRUE(cluster_->Await(
      "v1/pods",
      [&](const Json& pods) {
        std::set<std::string> ready_nodes;
        bool old = false;
        for (const Json& pod : pods) {
          if (kube::IsConditionTrue(pod, "Ready") && !kube::IsDeleting(pod)) {
            ready_nodes.emplace(kube::FindString(pod, {"spec", "nodeName"}));
          }
          old = old || before.contains(std::string(kube::NameOf(pod)));
        }
        EXPECT_EQ(ready_nodes.size(), 2U) << kube::Dump(pods);
        return !old && pods.size() == 2;
      },
      "app=surge"))
      << cluster_->last();
}

TEST_F(Features, ServicesHaveEndpointsSlicesAndNodePorts) {
  cluster_->Create("apps/v1/deployments", Deployment("api", 2));
  const Json service = cluster_->Create(
      "v1/services",
      Service("api",
              {{"type", "NodePort"},
               {"selector", {{"app", "api"}}},
               {"ports", Json::array({{{"name", "http"}, {"port", 80}, {"targetPort", 8080}}})}}));
  const auto node_port = kube::FindInt(service["spec"]["ports"][0], {"nodePort"});
  EXPECT_GE(node_port, 30000);
  EXPECT_LE(node_port, 32767);
  EXPECT_TRUE(cluster_->AwaitOne("v1/endpoints", "api", [](const Json& endpoints) {
    const Json* subsets = kube::Find(endpoints, {"subsets"});
    return subsets != nullptr && subsets->size() == 1 && (*subsets)[0]["addresses"].size() == 2 &&
           (*subsets)[0]["ports"][0]["port"] == 8080;
  })) << cluster_->last();
  EXPECT_TRUE(cluster_->Await(
      "discovery.k8s.io/v1/endpointslices",
      [](const Json& slices) {
        return slices.size() == 1 && slices[0]["endpoints"].size() == 2 &&
               slices[0]["endpoints"][0]["conditions"]["ready"] == true &&
               kube::LabelOf(slices[0], "endpointslice.kubernetes.io/managed-by") ==
                   "endpointslice-controller.k8s.io";
      },
      "kubernetes.io/service-name=api"))
      << cluster_->last();
  // Hand-made Endpoints of a Service without selector are mirrored.
  cluster_->Create("v1/services", Service("outside", {{"ports", Json::array({{{"port", 80}}})}}));
  cluster_->Create("v1/endpoints",
                   {{"apiVersion", "v1"},
                    {"kind", "Endpoints"},
                    {"metadata", {{"name", "outside"}}},
                    {"subsets", Json::array({{{"addresses", Json::array({{{"ip", "192.0.2.7"}}})},
                                              {"ports", Json::array({{{"port", 80}}})}}})}});
  EXPECT_TRUE(cluster_->Await(
      "discovery.k8s.io/v1/endpointslices",
      [](const Json& slices) {
        return slices.size() == 1 &&
               slices[0]["endpoints"][0]["addresses"] == Json::array({"192.0.2.7"}) &&
               kube::LabelOf(slices[0], "endpointslice.kubernetes.io/managed-by") ==
                   "endpointslicemirroring-controller.k8s.io";
      },
      "kubernetes.io/service-name=outside"))
      << cluster_->last();
}

TEST_F(Features, OwnersInACircleAreCollected) {
  std::string uids[3];
  for (int i = 0; i < 3; ++i) {
    Json pod = PodTemplate("ring");
    pod["apiVersion"] = "v1";
    pod["kind"] = "Pod";
    pod["metadata"]["name"] = "ring-" + std::to_string(i);
    uids[i] = kube::UidOf(cluster_->Create("v1/pods", pod));
  }
  for (int i = 0; i < 3; ++i) {
    const int owner = (i + 2) % 3;
    cluster_->Patch("v1/pods", "ring-" + std::to_string(i),
                    {{"metadata",
                      {{"ownerReferences", Json::array({{{"apiVersion", "v1"},
                                                         {"kind", "Pod"},
                                                         {"name", "ring-" + std::to_string(owner)},
                                                         {"uid", uids[owner]},
                                                         {"controller", true},
                                                         {"blockOwnerDeletion", true}}})}}}});
  }
  cluster_->Delete("v1/pods", "ring-0", "Foreground");
  EXPECT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return pods.empty(); }, "app=ring"))
      << cluster_->last();
}

TEST_F(Features, AReplicationControllerKeepsItsCountAndSaysWhyItCannot) {
  cluster_->Create(
      "v1/resourcequotas",
      {{"apiVersion", "v1"},
       {"kind", "ResourceQuota"},
       {"metadata", {{"name", "two"}}},
       {"spec", {{"hard", {{"count/replicationcontrollers", "5"}, {"limits.memory", "1Mi"}}}}}});
  ASSERT_TRUE(cluster_->AwaitOne("v1/resourcequotas", "two", [](const Json& quota) {
    return kube::Find(quota, {"status", "hard"}) != nullptr;
  }));
  cluster_->Create(
      "v1/replicationcontrollers",
      {{"apiVersion", "v1"},
       {"kind", "ReplicationController"},
       {"metadata", {{"name", "old"}}},
       {"spec",
        {{"replicas", 1}, {"selector", {{"app", "old"}}}, {"template", PodTemplate("old")}}}});
  EXPECT_TRUE(cluster_->AwaitOne("v1/replicationcontrollers", "old", [](const Json& old) {
    const Json* failure = kube::FindCondition(old, "ReplicaFailure");
    return failure != nullptr && kube::FindString(*failure, {"reason"}) == "FailedCreate";
  })) << cluster_->last();
  cluster_->Delete("v1/resourcequotas", "two");
  cluster_->Patch("v1/replicationcontrollers", "old", {{"spec", {{"replicas", 2}}}});
  EXPECT_TRUE(cluster_->AwaitOne("v1/replicationcontrollers", "old", [](const Json& old) {
    return kube::FindInt(old, {"status", "readyReplicas"}) == 2 &&
           kube::FindCondition(old, "ReplicaFailure") == nullptr;
  })) << cluster_->last();
}

}  // namespace
}  // namespace sublet::controllers
