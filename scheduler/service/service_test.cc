// What the service makes of objects without a server: pod groups by kind and profile, and the names
// of the metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scheduler/service/metrics.h"
#include "scheduler/service/pod_grouper.h"
#include "scheduler/service/wakeup.h"

namespace sublet::scheduler {
namespace {

using kube::Json;
using ::testing::HasSubstr;

Json Owner(const char* kind, const char* api_version, Json spec) {
  return {{"apiVersion", api_version},
          {"kind", kind},
          {"metadata", {{"name", "top"}, {"namespace", "t"}, {"uid", "u"}}},
          {"spec", std::move(spec)}};
}

Json PodWith(Json labels) {
  return {{"metadata",
           {{"name", "p"}, {"namespace", "t"}, {"uid", "pu"}, {"labels", std::move(labels)}}},
          {"spec", {{"schedulerName", "kai-scheduler"}}}};
}

TEST(GroupingTest, AJobSetIsATreeFromKai016OnAndFlatBefore) {
  const Json jobs = Json::array(
      {{{"name", "driver"}, {"replicas", 1}, {"template", {{"spec", {{"parallelism", 1}}}}}},
       {{"name", "workers"}, {"replicas", 2}, {"template", {{"spec", {{"parallelism", 4}}}}}}});
  Json set = Owner("JobSet", "jobset.x-k8s.io/v1alpha2", {{"replicatedJobs", jobs}});
  const Json pod = PodWith({{"jobset.sigs.k8s.io/replicatedjob-name", "workers"},
                            {"jobset.sigs.k8s.io/job-index", "1"}});
  const Json flat = MakePodGroup(pod, {set}, PlanGroup(pod, {set}, true));
  EXPECT_EQ(flat["spec"]["minMember"], 9);
  EXPECT_FALSE(flat["spec"].contains("subGroups"));

  const GroupPlan plan = PlanGroup(pod, {set}, false);
  EXPECT_EQ(plan.sub_group, "workers-replica-1");
  const Json tree = MakePodGroup(pod, {set}, plan);
  EXPECT_EQ(tree["metadata"]["name"], "pg-top-u");
  EXPECT_FALSE(tree["spec"].contains("minMember"));
  EXPECT_EQ(tree["spec"]["minSubGroup"], 2);
  EXPECT_EQ(tree["spec"]["subGroups"], Json::parse(R"([{"name":"driver","minSubGroup":1},
              {"name":"driver-replica-0","minMember":1,"parent":"driver"},
              {"name":"workers","minSubGroup":2},
              {"name":"workers-replica-0","minMember":4,"parent":"workers"},
              {"name":"workers-replica-1","minMember":4,"parent":"workers"}])"));

  set["spec"]["startupPolicy"]["startupPolicyOrder"] = "InOrder";
  EXPECT_EQ(PlanGroup(pod, {set}, true).name, "pg-top-u-workers");
  EXPECT_EQ(PlanGroup(pod, {set}, false).min_sub_group, 1);
  set["metadata"]["annotations"]["kai.scheduler/batch-min-member"] = "2";
  EXPECT_EQ(PlanGroup(pod, {set}, false).min_sub_group, 2);
}

TEST(GroupingTest, AnMpiLauncherThatComesLateIsNotWaitedFor) {
  const Json replicas = {{"Launcher", {{"replicas", 1}}}, {"Worker", {{"replicas", 4}}}};
  Json job = Owner("MPIJob", "kubeflow.org/v2beta1", {{"mpiReplicaSpecs", replicas}});
  const Json worker = PodWith({{"training.kubeflow.org/job-role", "worker"}});
  const Json launcher = PodWith({{"training.kubeflow.org/job-role", "launcher"}});
  EXPECT_EQ(PlanGroup(worker, {job}, true).min_member, 5);
  EXPECT_FALSE(PlanGroup(launcher, {job}, true).raises_minimum);
  job["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady";
  EXPECT_EQ(PlanGroup(worker, {job}, true).min_member, 4);
  EXPECT_EQ(PlanGroup(launcher, {job}, true).min_member, 5);
  EXPECT_TRUE(PlanGroup(launcher, {job}, true).raises_minimum);
  job["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] = 3;
  EXPECT_EQ(PlanGroup(worker, {job}, true).min_member, 3);
}

TEST(WakeupTest, NewsThatComesWhileTheLastIsReadWakesTheNextCycle) {
  Wakeup wakeup;
  const Deadline past = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  EXPECT_FALSE(wakeup.WaitUntil(past));
  wakeup.Wake();
  bool read = false;
  wakeup.Take([&] { read = true; });
  EXPECT_TRUE(read);
  EXPECT_FALSE(wakeup.WaitUntil(past)) << "all that was told of is read";
  wakeup.Take([&] { wakeup.Wake(); });  // an event between the reading and the waiting
  EXPECT_TRUE(wakeup.WaitUntil(past));
  EXPECT_TRUE(wakeup.WaitUntil(past)) << "until it is taken";
}

TEST(MetricsTest, AreNamedAsKaiNamesThem) {
  SchedulerMetrics metrics;
  Engine engine({*NamedProfile("kai-0.13")});
  QueueSpec queue;
  queue.name = "a";
  engine.Apply(queue);
  std::int64_t ticks = 0;
  engine.MeasureWith([&] { return ++ticks; });
  const CycleResult cycle = engine.Run(1'800'000'000'000);
  EXPECT_EQ(cycle.actions[0].micros, 1);
  metrics.Cycle(cycle, 1500, 1'800'000'000'000, engine);
  metrics.Queues(engine.Queues());
  metrics.Usage({{"a", {0.25, 0.5, 0.75}}});
  metrics.Bound(6'000);
  std::string out;
  metrics.Append(out);
  // pkg/scheduler/metrics/metrics.go under the namespace kai, and the queue controller's.
  for (const char* name : {"e2e_scheduling_latency_milliseconds",
                           "open_session_latency_milliseconds",
                           "close_session_latency_milliseconds",
                           "plugin_scheduling_latency_milliseconds",
                           "action_scheduling_latency_milliseconds",
                           "task_scheduling_latency_milliseconds",
                           "task_bind_latency_milliseconds",
                           "podgroups_scheduled_by_action",
                           "podgroups_acted_on_by_action",
                           "scenarios_simulation_by_action",
                           "scenarios_filtered_by_action",
                           "total_preemption_attempts",
                           "queue_fair_share_cpu_cores",
                           "queue_fair_share_memory_gb",
                           "queue_fair_share_gpu",
                           "queue_cpu_usage",
                           "queue_memory_usage",
                           "queue_gpu_usage",
                           "usage_query_latency_milliseconds",
                           "pod_group_evicted_pods_total",
                           "scenario_search_jobs_total",
                           "scenario_search_action_budget_exhausted_total",
                           "scenario_search_scenarios_total",
                           "queue_info",
                           "queue_deserved_gpus",
                           "queue_quota_cpu_cores",
                           "queue_quota_memory_bytes",
                           "queue_allocated_gpus",
                           "queue_allocated_cpu_cores",
                           "queue_allocated_memory_bytes"}) {
    const std::string head = "# TYPE kai_" + std::string(name) + " ";
    EXPECT_THAT(out, HasSubstr(head));
    EXPECT_EQ(out.find(head), out.rfind(head)) << "one family, said once: " << name;
  }
  EXPECT_THAT(out, HasSubstr("kai_action_scheduling_latency_milliseconds{action=\"reclaim\"}"));
  EXPECT_THAT(out,
              HasSubstr("kai_queue_gpu_usage{queue_name=\"a\",queue_metadata_name=\"a\"} 0.75"));
  EXPECT_THAT(out, HasSubstr("kai_task_bind_latency_milliseconds_bucket{le=\"5\"} 0"));
  EXPECT_THAT(out, HasSubstr("kai_task_bind_latency_milliseconds_bucket{le=\"10\"} 1"));
  EXPECT_THAT(out, HasSubstr("kai_e2e_scheduling_latency_milliseconds 1.5"));
}

}  // namespace
}  // namespace sublet::scheduler
