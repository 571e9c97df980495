// The policies a workload may choose: how Jobs replace and count pods, when CronJobs start, in
// which order StatefulSets update.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "controllers/registry.h"
#include "controllers/testing/cluster.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using kube::Json;
using testing::Cluster;
using testing::PodTemplate;

class Policies : public ::testing::Test {
 protected:
  // A pod with a grace period takes a second to end.
  static void SetUpTestSuite() {
    cluster_ = new Cluster({.nodes = 2, .cpu = "16", .stop_milliseconds = 1000});
  }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  static Cluster* cluster_;

  // Pods that end at once with `code`; "" keeps them running.
  static Json Template(const std::string& app, const std::string& code) {
    Json out = PodTemplate(app);
    if (!code.empty()) {
      out["metadata"]["annotations"] = {{"sublet.dev/simulate-run-seconds", "0"},
                                        {"sublet.dev/simulate-exit-code", code}};
    }
    out["spec"]["restartPolicy"] = "Never";
    out["spec"]["terminationGracePeriodSeconds"] = 30;
    return out;
  }
  static void MakeJob(const std::string& name, Json spec, const std::string& code) {
    spec["template"] = Template(name, code);
    cluster_->Create("batch/v1/jobs", {{"apiVersion", "batch/v1"},
                                       {"kind", "Job"},
                                       {"metadata", {{"name", name}}},
                                       {"spec", std::move(spec)}});
  }
  static void MakeSet(const std::string& name, int replicas, Json spec) {
    spec["replicas"] = replicas;
    spec["serviceName"] = name;
    spec["selector"] = {{"matchLabels", {{"app", name}}}};
    spec["template"] = PodTemplate(name);
    spec["template"]["spec"]["terminationGracePeriodSeconds"] = 30;
    cluster_->Create("apps/v1/statefulsets", {{"apiVersion", "apps/v1"},
                                              {"kind", "StatefulSet"},
                                              {"metadata", {{"name", name}}},
                                              {"spec", std::move(spec)}});
    ASSERT_TRUE(cluster_->Await(
        "v1/pods",
        [&](const Json& pods) { return Ready(pods) == static_cast<std::size_t>(replicas); },
        "app=" + name))
        << cluster_->last();
  }
  static void ChangeTemplate(const std::string& set) {
    cluster_->Patch("apps/v1/statefulsets", set,
                    {{"spec", {{"template", {{"metadata", {{"annotations", {{"v", "2"}}}}}}}}}});
  }
  static std::size_t Ready(const Json& pods) {
    return static_cast<std::size_t>(std::count_if(pods.begin(), pods.end(), [](const Json& pod) {
      return kube::IsConditionTrue(pod, "Ready") && !kube::IsDeleting(pod);
    }));
  }
  // Names of the pods with the changed template.
  static std::set<std::string> Updated(const Json& pods) {
    std::set<std::string> out;
    for (const Json& pod : pods) {
      if (kube::AnnotationOf(pod, "v") == "2" && !kube::IsDeleting(pod)) {
        out.emplace(kube::NameOf(pod));
      }
    }
    return out;
  }
};
Cluster* Policies::cluster_ = nullptr;

// One test, because each of the three waits for the first back-off of ten seconds.
TEST_F(Policies, JobsReplaceFailedPodsAsTheirPoliciesSay) {
  MakeJob("patient", {{"podReplacementPolicy", "Failed"}}, "");
  MakeJob("indexed",
          {{"completions", 2},
           {"parallelism", 2},
           {"completionMode", "Indexed"},
           {"backoffLimitPerIndex", 1}},
          "1");
  MakeJob("lenient",
          {{"completions", 1},
           {"completionMode", "Indexed"},
           {"backoffLimitPerIndex", 1},
           {"podFailurePolicy",
            {{"rules", Json::array({{{"action", "Ignore"},
                                     {"onExitCodes", {{"operator", "In"}, {"values", {7}}}}}})}}}},
          "7");
  // podReplacementPolicy Failed: the next pod comes when the one before has really ended.
  ASSERT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return Ready(pods) == 1; }, "job-name=patient"))
      << cluster_->last();
  cluster_->Delete("v1/pods",
                   std::string(kube::NameOf(cluster_->List("v1/pods", "job-name=patient")[0])));
  ASSERT_TRUE(cluster_->AwaitOne("batch/v1/jobs", "patient", [](const Json& job) {
    return kube::FindInt(job, {"status", "terminating"}) == 1 &&
           kube::FindInt(job, {"status", "active"}) == 0 &&
           kube::FindInt(job, {"status", "failed"}) == 0;
  })) << cluster_->last();
  EXPECT_TRUE(cluster_->Await(
      "v1/pods",
      [](const Json& pods) {
        const bool ending = std::any_of(pods.begin(), pods.end(), [](const Json& pod) {
          return kube::IsDeleting(pod) && kube::FindString(pod, {"status", "phase"}) != "Failed";
        });
        EXPECT_TRUE(!ending || pods.size() == 1) << kube::Dump(pods);
        return Ready(pods) == 1;
      },
      "job-name=patient"))
      << cluster_->last();
  // Per index: the failures are carried on by the next pod, which waits its time.
  ASSERT_TRUE(cluster_->AwaitOne("batch/v1/jobs", "indexed", [](const Json& job) {
    return kube::IsConditionTrue(job, "Failed");
  })) << cluster_->last();
  EXPECT_EQ(
      kube::FindString(cluster_->Get("batch/v1/jobs", "indexed"), {"status", "failedIndexes"}),
      "0,1");
  EXPECT_EQ(kube::FindInt(cluster_->Get("batch/v1/jobs", "indexed"), {"status", "failed"}), 4);
  std::multiset<std::string> failures;
  for (const Json& pod : cluster_->List("v1/pods", "job-name=indexed")) {
    failures.emplace(kube::AnnotationOf(pod, "batch.kubernetes.io/job-index-failure-count"));
    EXPECT_FALSE(kube::HasFinalizer(pod, "batch.kubernetes.io/job-tracking"));
  }
  EXPECT_EQ(failures, (std::multiset<std::string>{"0", "0", "1", "1"}));
  // What a rule ignores does not count, but is waited for as well.
  ASSERT_TRUE(cluster_->Await(
      "v1/pods",
      [](const Json& pods) {
        return std::any_of(pods.begin(), pods.end(), [](const Json& pod) {
          return kube::AnnotationOf(pod, "batch.kubernetes.io/job-index-ignored-failure-count") ==
                     "1" &&
                 kube::AnnotationOf(pod, "batch.kubernetes.io/job-index-failure-count") == "0";
        });
      },
      "job-name=lenient"))
      << cluster_->last();
  EXPECT_EQ(kube::FindInt(cluster_->Get("batch/v1/jobs", "lenient"), {"status", "failed"}), 0);
  for (const char* name : {"patient", "indexed", "lenient"}) {
    cluster_->Delete("batch/v1/jobs", name);
  }
}

// A clock ahead of the real one.
class AheadClock final : public Clock {
 public:
  explicit AheadClock(WallTime now) : ahead_(now - SystemClock().Now()) {}
  WallTime Now() const override { return SystemClock().Now() + ahead_; }
  MonotonicTime Monotonic() const override { return SystemClock().Monotonic(); }

 private:
  const std::chrono::nanoseconds ahead_;
};

class CronPolicies : public Policies {
 protected:
  // The CronJob controller alone, on a clock that shows `now` when it starts.
  struct Alone {
    explicit Alone(WallTime now) : clock(now), set(cluster_->client(), {}, clock, Others()) {
      set.Start();
    }
    static std::vector<std::string> Others() {
      std::vector<std::string> others;
      for (const ControllerEntry& entry : AllControllers()) {
        if (std::string_view(entry.name) != "cronjob") {
          others.emplace_back(entry.name);
        }
      }
      return others;
    }
    const AheadClock clock;
    ControllerSet set;
  };
  static void MakeCron(const std::string& name, Json spec, const std::string& code) {
    spec["jobTemplate"] = {{"metadata", {{"labels", {{"cron", name}}}}},
                           {"spec", {{"backoffLimit", 0}, {"template", Template(name, code)}}}};
    cluster_->Create("batch/v1/cronjobs", {{"apiVersion", "batch/v1"},
                                           {"kind", "CronJob"},
                                           {"metadata", {{"name", name}}},
                                           {"spec", std::move(spec)}});
  }
  // The Jobs of `name` that are not being deleted.
  static std::vector<std::string> JobsOf(const std::string& name) {
    std::vector<std::string> out;
    for (const Json& job : cluster_->List("batch/v1/jobs", "cron=" + name)) {
      if (!kube::IsDeleting(job)) {
        out.emplace_back(kube::NameOf(job));
      }
    }
    return out;
  }
  static std::string JobName(const std::string& cron, WallTime at) {
    return cron + "-" +
           std::to_string(
               std::chrono::duration_cast<std::chrono::minutes>(at.time_since_epoch()).count());
  }
  static bool Told(const std::string& cron, const std::string& reason) {
    return cluster_->Await("v1/events", [&](const Json& events) {
      return std::any_of(events.begin(), events.end(), [&](const Json& event) {
        return event["reason"] == reason && event["involvedObject"]["name"] == cron;
      });
    });
  }
  static bool HasJob(const std::string& name, bool finished) {
    return cluster_->AwaitOne("batch/v1/jobs", name, [&](const Json& job) {
      return !job.is_null() && (!finished || kube::IsConditionTrue(job, "Complete") ||
                                kube::IsConditionTrue(job, "Failed"));
    });
  }
};

TEST_F(CronPolicies, ConcurrencyHistoryDeadlineAndTimeZone) {
  using std::chrono::minutes;
  using std::chrono::seconds;
  // Due in half an hour, and an hour after that; India's clock shows another hour and half.
  const auto first = std::chrono::time_point_cast<WallTime::duration>(
      std::chrono::floor<minutes>(SystemClock().Now()) + minutes(30));
  const auto second = first + minutes(60);
  const auto of_day = [](WallTime at) {
    return std::chrono::duration_cast<minutes>(at.time_since_epoch()).count() % (24 * 60);
  };
  const std::string hourly = std::to_string(of_day(first) % 60) + " * * * *";
  const auto india = (of_day(first) + 330) % (24 * 60);
  MakeCron("forbids", {{"schedule", hourly}, {"concurrencyPolicy", "Forbid"}}, "");
  MakeCron("replaces", {{"schedule", hourly}, {"concurrencyPolicy", "Replace"}}, "");
  MakeCron("allows", {{"schedule", hourly}}, "");
  MakeCron("keeps", {{"schedule", hourly}, {"successfulJobsHistoryLimit", 1}}, "0");
  MakeCron("forgets", {{"schedule", hourly}, {"failedJobsHistoryLimit", 0}}, "1");
  MakeCron("tardy", {{"schedule", hourly}, {"startingDeadlineSeconds", 5}}, "");
  MakeCron("zoned",
           {{"schedule", std::to_string(india % 60) + " " + std::to_string(india / 60) + " * * *"},
            {"timeZone", "Asia/Kolkata"}},
           "");
  // A controller was here, made this Job, and ended before it wrote the status.
  const Json forbids = cluster_->Get("batch/v1/cronjobs", "forbids");
  Json made = {
      {"apiVersion", "batch/v1"},
      {"kind", "Job"},
      {"metadata", {{"name", JobName("forbids", first)}, {"labels", {{"cron", "forbids"}}}}},
      {"spec", forbids["spec"]["jobTemplate"]["spec"]}};
  kube::SetOwner(&made, kube::ControllerReference(forbids));
  cluster_->Create("batch/v1/jobs", made);
  {
    Alone controller(first + seconds(10));
    for (const char* name : {"forbids", "replaces", "allows", "zoned"}) {
      EXPECT_TRUE(HasJob(JobName(name, first), false)) << name << cluster_->last();
    }
    EXPECT_TRUE(HasJob(JobName("keeps", first), true)) << cluster_->last();
    EXPECT_TRUE(Told("forgets", "SuccessfulDelete")) << cluster_->last();
    // A Job is there before its CronJob's status says so.
    for (const char* name : {"forbids", "replaces", "allows", "keeps"}) {
      EXPECT_TRUE(cluster_->AwaitOne(
          "batch/v1/cronjobs", name,
          [&](const Json& cron) {
            return kube::FindTime(kube::FindString(cron, {"status", "lastScheduleTime"})) == first;
          }))
          << name << cluster_->last();
    }
  }
  EXPECT_TRUE(JobsOf("tardy").empty()) << "its five seconds were over";
  {
    Alone controller(second + seconds(10));
    for (const char* name : {"replaces", "allows", "keeps"}) {
      EXPECT_TRUE(HasJob(JobName(name, second), std::string_view(name) == "keeps"))
          << name << cluster_->last();
    }
    EXPECT_TRUE(cluster_->Await("batch/v1/jobs", [&](const Json&) {
      return JobsOf("keeps") == std::vector<std::string>{JobName("keeps", second)};
    })) << "one success is kept";
    EXPECT_TRUE(cluster_->Await("batch/v1/jobs", [&](const Json&) {
      return JobsOf("replaces") == std::vector<std::string>{JobName("replaces", second)};
    })) << "the running one gives way";
    EXPECT_TRUE(Told("forbids", "JobAlreadyActive")) << cluster_->last();
    EXPECT_EQ(JobsOf("forbids"), std::vector<std::string>{JobName("forbids", first)});
    EXPECT_EQ(JobsOf("allows").size(), 2U);
    EXPECT_TRUE(cluster_->AwaitOne("batch/v1/cronjobs", "replaces", [&](const Json& cron) {
      const Json* active = kube::Find(cron, {"status", "active"});
      return active != nullptr && active->size() == 1 &&
             (*active)[0]["name"] == JobName("replaces", second) &&
             kube::FindTime(kube::FindString(cron, {"status", "lastScheduleTime"})) == second;
    })) << cluster_->last();
    EXPECT_EQ(kube::FindTime(kube::FindString(cluster_->Get("batch/v1/cronjobs", "forbids"),
                                              {"status", "lastScheduleTime"})),
              first)
        << "what was forbidden is not counted as scheduled";
    // The one in the way ends: the missed time is made up for.
    cluster_->Delete("batch/v1/jobs", JobName("forbids", first));
    EXPECT_TRUE(HasJob(JobName("forbids", second), false)) << cluster_->last();
  }
  for (const char* name : {"forbids", "replaces", "allows", "keeps", "forgets", "tardy", "zoned"}) {
    cluster_->Delete("batch/v1/cronjobs", name);
  }
}

TEST_F(Policies, AParallelStatefulSetMakesItsPodsAtOnceAndUpdatesOneAfterTheOther) {
  MakeSet("wide", 3,
          {{"podManagementPolicy", "Parallel"},
           {"updateStrategy",
            {{"type", "RollingUpdate"}, {"rollingUpdate", {{"maxUnavailable", 2}}}}}});
  // Kubernetes 1.36 serves maxUnavailable of StatefulSets behind a gate that is off by default.
  EXPECT_EQ(kube::Find(cluster_->Get("apps/v1/statefulsets", "wide"),
                       {"spec", "updateStrategy", "rollingUpdate", "maxUnavailable"}),
            nullptr);
  ChangeTemplate("wide");
  std::size_t least = 3;
  std::size_t updated = 0;
  EXPECT_TRUE(cluster_->Await(
      "v1/pods",
      [&](const Json& pods) {
        least = std::min(least, Ready(pods));
        const std::set<std::string> now = Updated(pods);
        EXPECT_TRUE(now.empty() || now.contains("wide-2")) << "from the top";
        EXPECT_GE(now.size(), updated);
        updated = now.size();
        return updated == 3 && Ready(pods) == 3;
      },
      "app=wide"))
      << cluster_->last();
  EXPECT_EQ(least, 2U);
  cluster_->Delete("apps/v1/statefulsets", "wide");
}

TEST_F(Policies, APartitionCountsFromTheFirstOrdinal) {
  MakeSet("part", 3,
          {{"ordinals", {{"start", 5}}},
           {"podManagementPolicy", "Parallel"},
           {"updateStrategy", {{"type", "RollingUpdate"}, {"rollingUpdate", {{"partition", 2}}}}}});
  ChangeTemplate("part");
  EXPECT_TRUE(cluster_->AwaitOne("apps/v1/statefulsets", "part", [](const Json& set) {
    return kube::FindInt(set, {"status", "updatedReplicas"}) == 1 &&
           kube::FindInt(set, {"status", "readyReplicas"}) == 3;
  })) << cluster_->last();
  EXPECT_EQ(Updated(cluster_->List("v1/pods", "app=part")), std::set<std::string>{"part-7"});
  // A pod below the partition is made again as it was.
  cluster_->Delete("v1/pods", "part-5");
  EXPECT_TRUE(cluster_->Await(
      "v1/pods", [](const Json& pods) { return Ready(pods) == 3; }, "app=part"))
      << cluster_->last();
  EXPECT_EQ(Updated(cluster_->List("v1/pods", "app=part")), std::set<std::string>{"part-7"});
  cluster_->Patch("apps/v1/statefulsets", "part",
                  {{"spec", {{"updateStrategy", {{"rollingUpdate", {{"partition", 1}}}}}}}});
  EXPECT_TRUE(cluster_->Await(
      "v1/pods",
      [](const Json& pods) {
        return Ready(pods) == 3 && Updated(pods) == std::set<std::string>{"part-6", "part-7"};
      },
      "app=part"))
      << cluster_->last();
  cluster_->Delete("apps/v1/statefulsets", "part");
}

TEST_F(Policies, OnDeleteLeavesPodsAloneUntilSomebodyDeletesThem) {
  MakeSet("manual", 2, {{"updateStrategy", {{"type", "OnDelete"}}}});
  ChangeTemplate("manual");
  ASSERT_TRUE(cluster_->AwaitOne("apps/v1/statefulsets", "manual", [](const Json& set) {
    return kube::FindString(set, {"status", "updateRevision"}) !=
           kube::FindString(set, {"status", "currentRevision"});
  })) << cluster_->last();
  EXPECT_TRUE(Updated(cluster_->List("v1/pods", "app=manual")).empty());
  cluster_->Delete("v1/pods", "manual-1");
  EXPECT_TRUE(cluster_->Await(
      "v1/pods",
      [](const Json& pods) {
        return Ready(pods) == 2 && Updated(pods) == std::set<std::string>{"manual-1"};
      },
      "app=manual"))
      << cluster_->last();
  cluster_->Delete("apps/v1/statefulsets", "manual");
}

}  // namespace
}  // namespace sublet::controllers
