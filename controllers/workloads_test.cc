// The workload controllers on a real control plane with simulated nodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "controllers/testing/cluster.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using kube::Json;
using testing::Cluster;
using testing::Deployment;
using testing::PodTemplate;

// One control plane for all tests of the program, a namespace's worth of names apart.
class Workloads : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster({.nodes = 2, .cpu = "8"}); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  static Cluster* cluster_;

  static bool AllReady(const Json& pods, std::size_t count) {
    return pods.size() == count && std::all_of(pods.begin(), pods.end(), [](const Json& pod) {
             return kube::IsConditionTrue(pod, "Ready");
           });
  }
  static std::set<std::string> NamesOf(const Json& items) {
    std::set<std::string> out;
    for (const Json& item : items) {
      out.emplace(kube::NameOf(item));
    }
    return out;
  }
};
Cluster* Workloads::cluster_ = nullptr;

TEST_F(Workloads, DeploymentMakesAReplicaSetAndReportsWhatHelmWaitsFor) {
  cluster_->Create("apps/v1/deployments", Deployment("web", 3));
  ASSERT_TRUE(cluster_->AwaitOne("apps/v1/deployments", "web", [](const Json& web) {
    return kube::FindInt(web, {"status", "availableReplicas"}) == 3 &&
           kube::FindInt(web, {"status", "updatedReplicas"}) == 3 &&
           kube::FindInt(web, {"status", "observedGeneration"}) == kube::GenerationOf(web) &&
           kube::IsConditionTrue(web, "Available") &&
           kube::FindString(*kube::FindCondition(web, "Progressing"), {"reason"}) ==
               "NewReplicaSetAvailable";
  })) << cluster_->last();
  const Json sets = cluster_->List("apps/v1/replicasets", "app=web");
  ASSERT_EQ(sets.size(), 1U);
  EXPECT_EQ(kube::AnnotationOf(sets[0], "deployment.kubernetes.io/revision"), "1");
  EXPECT_EQ(kube::AnnotationOf(sets[0], "deployment.kubernetes.io/desired-replicas"), "3");
  const std::string hash(kube::LabelOf(sets[0], "pod-template-hash"));
  EXPECT_EQ(kube::NameOf(sets[0]), "web-" + hash);
}

TEST_F(Workloads, RollingUpdateReplacesPodsAndKeepsTheOldSetForRollback) {
  cluster_->Create("apps/v1/deployments", Deployment("roll", 4));
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return AllReady(pods, 4); }, "app=roll"))
      << cluster_->last();
  cluster_->Patch("apps/v1/deployments", "roll",
                  {{"spec", {{"template", {{"metadata", {{"annotations", {{"v", "2"}}}}}}}}}});
  ASSERT_TRUE(cluster_->AwaitOne("apps/v1/deployments", "roll", [](const Json& roll) {
    return kube::FindInt(roll, {"status", "observedGeneration"}) == kube::GenerationOf(roll) &&
           kube::FindInt(roll, {"status", "updatedReplicas"}) == 4 &&
           kube::FindInt(roll, {"status", "replicas"}) == 4 &&
           kube::FindInt(roll, {"status", "availableReplicas"}) == 4;
  })) << cluster_->last();
  const Json sets = cluster_->List("apps/v1/replicasets", "app=roll");
  ASSERT_EQ(sets.size(), 2U);
  // Back to the first template: its set gets the newest revision and remembers the old one.
  cluster_->Patch("apps/v1/deployments", "roll",
                  {{"spec", {{"template", {{"metadata", {{"annotations", nullptr}}}}}}}});
  ASSERT_TRUE(cluster_->Await(
      "apps/v1/replicasets",
      [](const Json& all) {
        return std::any_of(all.begin(), all.end(), [](const Json& set) {
          return kube::AnnotationOf(set, "deployment.kubernetes.io/revision") == "3" &&
                 kube::AnnotationOf(set, "deployment.kubernetes.io/revision-history") == "1" &&
                 kube::FindInt(set, {"status", "availableReplicas"}) == 4;
        });
      },
      "app=roll"))
      << cluster_->last();
}

TEST_F(Workloads, AnUnpullableImageStallsTheRolloutAndKeepsTheOldPods) {
  cluster_->Create("apps/v1/deployments", Deployment("stall", 4));
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return AllReady(pods, 4); }, "app=stall"));
  Json broken = PodTemplate("stall", "registry/none:404");
  cluster_->Patch("apps/v1/deployments", "stall", {{"spec", {{"template", broken}}}});
  ASSERT_TRUE(cluster_->AwaitOne("apps/v1/deployments", "stall", [](const Json& stall) {
    return kube::FindInt(stall, {"status", "updatedReplicas"}) == 2 &&
           kube::FindInt(stall, {"status", "availableReplicas"}) == 3;
  })) << cluster_->last();
  // Scaled in the middle: both sets get their share of ten.
  cluster_->Patch("apps/v1/deployments", "stall", {{"spec", {{"replicas", 10}}}});
  ASSERT_TRUE(cluster_->Await(
      "apps/v1/replicasets",
      [](const Json& sets) {
        std::int64_t sum = 0;
        for (const Json& set : sets) {
          sum += kube::FindInt(set, {"spec", "replicas"});
        }
        return sum == 13;  // ten and the surge of three
      },
      "app=stall"))
      << cluster_->last();
}

TEST_F(Workloads, RecreateDeletesOldPodsBeforeNewOnesStart) {
  Json recreate = Deployment("recreate", 2);
  recreate["spec"]["strategy"] = {{"type", "Recreate"}};
  cluster_->Create("apps/v1/deployments", recreate);
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return AllReady(pods, 2); }, "app=recreate"));
  const auto before = NamesOf(cluster_->List("v1/pods", "app=recreate"));
  cluster_->Patch("apps/v1/deployments", "recreate",
                  {{"spec", {{"template", {{"metadata", {{"annotations", {{"v", "2"}}}}}}}}}});
  ASSERT_TRUE(cluster_->Await(
      "v1/pods",
      [&](const Json& pods) {
        const auto now = NamesOf(pods);
        std::vector<std::string> both;
        std::set_intersection(before.begin(), before.end(), now.begin(), now.end(),
                              std::back_inserter(both));
        EXPECT_TRUE(both.empty() || both.size() == now.size()) << "old and new pods side by side";
        return both.empty() && AllReady(pods, 2);
      },
      "app=recreate"))
      << cluster_->last();
}

TEST_F(Workloads, ReplicaSetAdoptsReleasesAndScalesDown) {
  Json set = Deployment("rs", 2);
  set["kind"] = "ReplicaSet";
  Json orphan = PodTemplate("rs");
  orphan["apiVersion"] = "v1";
  orphan["kind"] = "Pod";
  orphan["metadata"]["name"] = "rs-orphan";
  cluster_->Create("v1/pods", orphan);
  cluster_->Create("apps/v1/replicasets", set);
  ASSERT_TRUE(cluster_->AwaitOne("v1/pods", "rs-orphan", [](const Json& pod) {
    return !pod.is_null() && kube::ControllerOf(pod).has_value();
  })) << cluster_->last();
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return AllReady(pods, 2); }, "app=rs"));
  cluster_->Patch("v1/pods", "rs-orphan", {{"metadata", {{"labels", {{"app", "other"}}}}}});
  ASSERT_TRUE(cluster_->AwaitOne("v1/pods", "rs-orphan", [](const Json& pod) {
    return !kube::ControllerOf(pod).has_value();
  }));
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return AllReady(pods, 2); }, "app=rs"));
  cluster_->Patch("apps/v1/replicasets", "rs", {{"spec", {{"replicas", 0}}}});
  EXPECT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return pods.empty(); }, "app=rs"));
  EXPECT_FALSE(cluster_->Get("v1/pods", "rs-orphan").is_null());
}

TEST_F(Workloads, StatefulSetCreatesInOrderUpdatesByPartitionAndScalesFromTheTop) {
  Json set = Deployment("state", 3);
  set["kind"] = "StatefulSet";
  set["spec"]["serviceName"] = "state";
  set["spec"]["volumeClaimTemplates"] =
      Json::array({{{"metadata", {{"name", "data"}}},
                    {"spec",
                     {{"accessModes", {"ReadWriteOnce"}},
                      {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}}});
  cluster_->Create("apps/v1/statefulsets", set);
  ASSERT_TRUE(cluster_->Await(
      "v1/pods",
      [](const Json& pods) {
        for (std::size_t i = 0; i + 1 < pods.size(); ++i) {
          EXPECT_TRUE(kube::IsConditionTrue(pods[i], "Ready"))
              << "a pod was made before its predecessor was ready";
        }
        return AllReady(pods, 3);
      },
      "app=state"))
      << cluster_->last();
  EXPECT_EQ(NamesOf(cluster_->List("v1/pods", "app=state")),
            (std::set<std::string>{"state-0", "state-1", "state-2"}));
  const Json pod = cluster_->Get("v1/pods", "state-1");
  EXPECT_EQ(kube::LabelOf(pod, "apps.kubernetes.io/pod-index"), "1");
  EXPECT_EQ(kube::FindString(pod, {"spec", "subdomain"}), "state");
  EXPECT_EQ(NamesOf(cluster_->List("v1/persistentvolumeclaims", "app=state")),
            (std::set<std::string>{"data-state-0", "data-state-1", "data-state-2"}));
  const auto revision_of = [](const Json& value) {
    return std::string(kube::LabelOf(value, "controller-revision-hash"));
  };
  const std::string first = revision_of(pod);
  cluster_->Patch(
      "apps/v1/statefulsets", "state",
      {{"spec",
        {{"updateStrategy", {{"type", "RollingUpdate"}, {"rollingUpdate", {{"partition", 2}}}}},
         {"template", {{"metadata", {{"annotations", {{"v", "2"}}}}}}}}}});
  ASSERT_TRUE(cluster_->AwaitOne("v1/pods", "state-2", [&](const Json& changed) {
    return !changed.is_null() && revision_of(changed) != first &&
           kube::IsConditionTrue(changed, "Ready");
  })) << cluster_->last();
  EXPECT_EQ(revision_of(cluster_->Get("v1/pods", "state-1")), first);
  cluster_->Patch("apps/v1/statefulsets", "state",
                  {{"spec", {{"updateStrategy", {{"rollingUpdate", {{"partition", 0}}}}}}}});
  ASSERT_TRUE(cluster_->AwaitOne("apps/v1/statefulsets", "state", [](const Json& value) {
    return kube::FindString(value, {"status", "currentRevision"}) ==
               kube::FindString(value, {"status", "updateRevision"}) &&
           kube::FindInt(value, {"status", "updatedReplicas"}) == 3;
  })) << cluster_->last();
  cluster_->Patch("apps/v1/statefulsets", "state", {{"spec", {{"replicas", 1}}}});
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return pods.size() == 1; }, "app=state"));
  EXPECT_EQ(cluster_->List("apps/v1/controllerrevisions", "app=state").size(), 2U);
}

TEST_F(Workloads, DaemonSetCoversFittingNodesAndFollowsTheirLabels) {
  Json set = Deployment("daemon", 1);
  set["kind"] = "DaemonSet";
  set["spec"].erase("replicas");
  cluster_->Create("apps/v1/daemonsets", set);
  ASSERT_TRUE(cluster_->AwaitOne("apps/v1/daemonsets", "daemon", [](const Json& value) {
    return kube::FindInt(value, {"status", "desiredNumberScheduled"}) == 2 &&
           kube::FindInt(value, {"status", "numberAvailable"}) == 2;
  })) << cluster_->last();
  std::set<std::string> nodes;
  for (const Json& pod : cluster_->List("v1/pods", "app=daemon")) {
    nodes.emplace(kube::FindString(pod, {"spec", "nodeName"}));
  }
  EXPECT_EQ(nodes, (std::set<std::string>{"sim-0", "sim-1"}));
  cluster_->Patch("apps/v1/daemonsets", "daemon",
                  {{"spec", {{"template", {{"spec", {{"nodeSelector", {{"disk", "ssd"}}}}}}}}}});
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return pods.empty(); }, "app=daemon"))
      << cluster_->last();
  cluster_->Patch("v1/nodes", "sim-1", {{"metadata", {{"labels", {{"disk", "ssd"}}}}}});
  EXPECT_TRUE(cluster_->Await(
      "v1/pods",
      [](const Json& pods) {
        return pods.size() == 1 && kube::FindString(pods[0], {"spec", "nodeName"}) == "sim-1";
      },
      "app=daemon"))
      << cluster_->last();
}

Json Job(const std::string& name, Json spec, const std::string& seconds, const std::string& code) {
  Json pod_template = PodTemplate(name);
  pod_template["metadata"]["annotations"] = {{"sublet.dev/simulate-run-seconds", seconds},
                                             {"sublet.dev/simulate-exit-code", code}};
  pod_template["spec"]["restartPolicy"] = "Never";
  spec["template"] = std::move(pod_template);
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", {{"name", name}}},
          {"spec", std::move(spec)}};
}

TEST_F(Workloads, JobRunsItsCompletionsAndCountsEveryPodOnce) {
  cluster_->Create("batch/v1/jobs",
                   Job("work", {{"completions", 5}, {"parallelism", 2}}, "0", "0"));
  ASSERT_TRUE(cluster_->AwaitOne("batch/v1/jobs", "work", [](const Json& job) {
    EXPECT_LE(kube::FindInt(job, {"status", "active"}), 2);
    return kube::IsConditionTrue(job, "Complete");
  })) << cluster_->last();
  const Json job = cluster_->Get("batch/v1/jobs", "work");
  EXPECT_EQ(kube::FindInt(job, {"status", "succeeded"}), 5);
  EXPECT_EQ(job["status"]["uncountedTerminatedPods"], Json::object());
  EXPECT_TRUE(kube::IsConditionTrue(job, "SuccessCriteriaMet"));
  EXPECT_EQ(cluster_->List("v1/pods", "job-name=work").size(), 5U);
  for (const Json& pod : cluster_->List("v1/pods", "job-name=work")) {
    EXPECT_FALSE(kube::HasFinalizer(pod, "batch.kubernetes.io/job-tracking"));
  }
}

TEST_F(Workloads, IndexedJobGivesEveryIndexAPodOfItsOwn) {
  cluster_->Create(
      "batch/v1/jobs",
      Job("indexed", {{"completions", 3}, {"parallelism", 3}, {"completionMode", "Indexed"}}, "0",
          "0"));
  ASSERT_TRUE(cluster_->AwaitOne("batch/v1/jobs", "indexed", [](const Json& job) {
    return kube::IsConditionTrue(job, "Complete");
  })) << cluster_->last();
  EXPECT_EQ(
      kube::FindString(cluster_->Get("batch/v1/jobs", "indexed"), {"status", "completedIndexes"}),
      "0-2");
  std::set<std::string> indexes;
  for (const Json& pod : cluster_->List("v1/pods", "job-name=indexed")) {
    indexes.emplace(kube::AnnotationOf(pod, "batch.kubernetes.io/job-completion-index"));
    EXPECT_EQ(kube::FindString(pod["spec"]["containers"][0]["env"][0], {"name"}),
              "JOB_COMPLETION_INDEX");
  }
  EXPECT_EQ(indexes, (std::set<std::string>{"0", "1", "2"}));
}

TEST_F(Workloads, JobFailsAtItsBackoffLimitAndByItsFailurePolicy) {
  cluster_->Create("batch/v1/jobs", Job("fails", {{"backoffLimit", 0}}, "0", "1"));
  ASSERT_TRUE(cluster_->AwaitOne("batch/v1/jobs", "fails", [](const Json& job) {
    return kube::IsConditionTrue(job, "Failed");
  })) << cluster_->last();
  EXPECT_EQ(
      kube::FindString(*kube::FindCondition(cluster_->Get("batch/v1/jobs", "fails"), "Failed"),
                       {"reason"}),
      "BackoffLimitExceeded");
  const Json rule = {
      {"action", "FailJob"},
      {"onExitCodes", {{"containerName", "c"}, {"operator", "In"}, {"values", {42}}}}};
  cluster_->Create(
      "batch/v1/jobs",
      Job("policy", {{"backoffLimit", 6}, {"podFailurePolicy", {{"rules", Json::array({rule})}}}},
          "0", "42"));
  ASSERT_TRUE(cluster_->AwaitOne("batch/v1/jobs", "policy", [](const Json& job) {
    return kube::IsConditionTrue(job, "Failed");
  })) << cluster_->last();
  const Json policy = cluster_->Get("batch/v1/jobs", "policy");
  EXPECT_EQ(kube::FindString(*kube::FindCondition(policy, "Failed"), {"reason"}),
            "PodFailurePolicy");
  EXPECT_NE(std::string(kube::FindString(*kube::FindCondition(policy, "Failed"), {"message"}))
                .find("failed with exit code 42 matching FailJob rule at index 0"),
            std::string::npos);
}

TEST_F(Workloads, SuspendedJobRunsNothingUntilItIsResumed) {
  cluster_->Create("batch/v1/jobs", Job("pause", {{"suspend", true}}, "0", "0"));
  ASSERT_TRUE(cluster_->AwaitOne("batch/v1/jobs", "pause", [](const Json& job) {
    return kube::IsConditionTrue(job, "Suspended");
  })) << cluster_->last();
  EXPECT_TRUE(cluster_->List("v1/pods", "job-name=pause").empty());
  cluster_->Patch("batch/v1/jobs", "pause", {{"spec", {{"suspend", false}}}});
  EXPECT_TRUE(cluster_->AwaitOne("batch/v1/jobs", "pause", [](const Json& job) {
    return kube::IsConditionTrue(job, "Complete");
  })) << cluster_->last();
}

TEST_F(Workloads, AJobThatIsGoneLeavesNoPodWaitingForItsFinalizer) {
  cluster_->Create("batch/v1/jobs",
                   Job("gone", {{"parallelism", 2}, {"completions", 2}}, "3600", "0"));
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return AllReady(pods, 2); }, "job-name=gone"));
  cluster_->Delete("batch/v1/jobs", "gone");
  EXPECT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return pods.empty(); }, "job-name=gone"))
      << cluster_->last();
}

TEST_F(Workloads, FinishedJobGoesAfterItsTimeToLive) {
  cluster_->Create("batch/v1/jobs", Job("ttl", {{"ttlSecondsAfterFinished", 0}}, "0", "0"));
  EXPECT_TRUE(cluster_->AwaitOne("batch/v1/jobs", "ttl", [](const Json& job) {
    return job.is_null();
  })) << cluster_->last();
}

}  // namespace
}  // namespace sublet::controllers
