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

TEST(GroupingTest, SegmentsAreSubGroupsWithATopologyOfTheirOwn) {
  const Json annotations = {{"kai.scheduler/segment-size", "2"},
                            {"kai.scheduler/topology", "dc"},
                            {"kai.scheduler/segment-topology-required-placement", "rack"}};
  const Json worker_template = {{"metadata", {{"annotations", annotations}}}};
  const Json topology = {{"topology", "dc"}, {"requiredTopologyLevel", "rack"}};
  const Json torch = Owner("PyTorchJob", "kubeflow.org/v1",
                           {{"pytorchReplicaSpecs",
                             {{"Master", {{"replicas", 1}}},
                              {"Worker", {{"replicas", 5}, {"template", worker_template}}}}}});
  GroupPlan plan = PlanGroup(PodWith({{"training.kubeflow.org/replica-type", "worker"},
                                      {"training.kubeflow.org/replica-index", "4"}}),
                             {torch}, true);
  EXPECT_EQ(plan.problem, "");
  EXPECT_EQ(plan.min_member, 6);
  EXPECT_EQ(plan.sub_group, "worker-2");
  Json group = MakePodGroup(PodWith({}), {torch}, plan);
  EXPECT_EQ(group["spec"]["subGroups"], Json::array({{{"name", "master"}, {"minMember", 1}},
                                                     {{"name", "worker"}, {"minSubGroup", 3}},
                                                     {{"name", "worker-0"},
                                                      {"minMember", 2},
                                                      {"parent", "worker"},
                                                      {"topologyConstraint", topology}},
                                                     {{"name", "worker-1"},
                                                      {"minMember", 2},
                                                      {"parent", "worker"},
                                                      {"topologyConstraint", topology}},
                                                     {{"name", "worker-2"},
                                                      {"minMember", 1},
                                                      {"parent", "worker"},
                                                      {"topologyConstraint", topology}}}));

  Json lws = Owner("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1",
                   {{"leaderWorkerTemplate", {{"size", 5}, {"workerTemplate", worker_template}}}});
  const auto member = [](const char* index) {
    return PodWith({{"leaderworkerset.sigs.k8s.io/group-index", "1"},
                    {"leaderworkerset.sigs.k8s.io/worker-index", index}});
  };
  plan = PlanGroup(member("2"), {lws}, true);
  EXPECT_EQ(plan.name, "pg-top-u-group-1");
  EXPECT_EQ(plan.sub_group, "workers");  // the leader is a third member of the first segment
  group = MakePodGroup(member("2"), {lws}, plan);
  EXPECT_EQ(
      group["spec"]["subGroups"],
      Json::array({{{"name", "segment-0"}, {"minSubGroup", 2}, {"topologyConstraint", topology}},
                   {{"name", "leader"}, {"minMember", 1}, {"parent", "segment-0"}},
                   {{"name", "workers"}, {"minMember", 2}, {"parent", "segment-0"}},
                   {{"name", "segment-1"}, {"minMember", 2}, {"topologyConstraint", topology}}}));
  EXPECT_EQ(PlanGroup(member("3"), {lws}, true).sub_group, "segment-1");
  EXPECT_EQ(PlanGroup(member("0"), {lws}, true).sub_group, "leader");
  lws["spec"]["leaderWorkerTemplate"]["size"] = 4;  // not whole segments and a leader
  plan = PlanGroup(member("1"), {lws}, true);
  EXPECT_EQ(plan.sub_group, "workers");
  EXPECT_EQ(plan.sub_groups[2].min_member, 1);
  EXPECT_EQ(PlanGroup(member("2"), {lws}, true).sub_group, "segment-1");
  lws["spec"]["leaderWorkerTemplate"]["subGroupPolicy"] = {
      {"subGroupSize", 2}, {"subGroupPolicyType", "LeaderExcluded"}};
  EXPECT_NE(PlanGroup(member("2"), {lws}, true).problem, "");
  lws["spec"]["leaderWorkerTemplate"]["size"] = 5;
  plan = PlanGroup(member("1"), {lws}, true);
  EXPECT_EQ(plan.sub_group, "segment-0");
  EXPECT_EQ(plan.sub_groups[0].name, "leader");
  EXPECT_EQ(plan.sub_groups[0].parent, "");
}

TEST(GroupingTest, ALeaderThatMustBeReadyIsPlacedAloneFirst) {
  const Json lws =
      Owner("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1",
            {{"startupPolicy", "LeaderReady"}, {"leaderWorkerTemplate", {{"size", 3}}}});
  const Json leader = PodWith({{"leaderworkerset.sigs.k8s.io/worker-index", "0"}});
  GroupPlan plan = PlanGroup(leader, {lws}, true);
  EXPECT_EQ(plan.min_member, 1);
  EXPECT_EQ(plan.sub_groups.size(), 1u);
  EXPECT_FALSE(plan.raises_minimum);
  plan = PlanGroup(PodWith({{"leaderworkerset.sigs.k8s.io/worker-index", "1"}}), {lws}, true);
  EXPECT_EQ(plan.min_member, 3);
  EXPECT_EQ(plan.sub_groups.size(), 2u);
  EXPECT_TRUE(plan.raises_minimum);
}

TEST(GroupingTest, RayCountsWhatAGroupWantsAndKnowsItsTopology) {
  Json ray = Owner("RayCluster", "ray.io/v1",
                   {{"headGroupSpec", {{"template", Json::object()}}},
                    {"workerGroupSpecs",
                     Json::array({{{"groupName", "a"}, {"replicas", 3}, {"numOfHosts", 2}},
                                  {{"replicas", 4}, {"minReplicas", 2}},
                                  {{"groupName", "off"}, {"replicas", 4}, {"suspend", true}}})}});
  ray["metadata"]["labels"]["ray.io/priority-class-name"] = "build";
  const Json constraint = {{"kai.scheduler/topology", "dc"},
                           {"kai.scheduler/topology-preferred-placement", "rack"}};
  ray["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["annotations"] = constraint;
  const Json pod = PodWith({{"ray.io/group", "worker-group-1"}});
  const GroupPlan plan = PlanGroup(pod, {ray}, true);
  EXPECT_EQ(plan.min_member, 9);
  const Json group = MakePodGroup(pod, {ray}, plan);
  EXPECT_EQ(group["spec"]["priorityClassName"], "build");
  EXPECT_EQ(group["spec"]["subGroups"], Json::parse(R"([{"name":"headgroup","minMember":1},
              {"name":"a","minMember":6,"topologyConstraint":{"topology":"dc","preferredTopologyLevel":"rack"}},
              {"name":"worker-group-1","minMember":2}])"));
  ray["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["annotations"].erase(
      "kai.scheduler/topology");
  EXPECT_NE(PlanGroup(pod, {ray}, true).problem, "");
}

TEST(GroupingTest, AGroveGangHasItsCliquesBelowTheirTopologyGroups) {
  const Json set = Owner("PodCliqueSet", "grove.io/v1alpha1", Json::object());
  Json gang = Json::parse(R"({"apiVersion":"scheduler.grove.io/v1alpha1","kind":"PodGang",
    "metadata":{"name":"gang","namespace":"t","uid":"gu","annotations":{"grove.io/topology-name":"dc"}},
    "spec":{"priorityClassName":"inference",
      "topologyConstraint":{"packConstraint":{"required":"zone"}},
      "topologyConstraintGroupConfigs":[{"name":"pair","podGroupNames":["a","b"],
        "topologyConstraint":{"packConstraint":{"preferred":"rack"}}}],
      "podgroups":[{"name":"a","minReplicas":2,"podReferences":[{"namespace":"t","name":"p"}]},
                   {"name":"b","minReplicas":1,"podReferences":[]},
                   {"name":"c","minReplicas":3,"podReferences":[],
                    "topologyConstraint":{"packConstraint":{"required":"host"}}}]}})");
  Json pod = PodWith({{"grove.io/podgang", "gang"}});
  std::vector<Json> owners{set};
  owners[0]["metadata"]["labels"]["kai.scheduler/queue"] = "team";
  EXPECT_EQ(PodGangOf(pod, owners), "gang");
  AddPodGang(gang, &owners);
  const GroupPlan plan = PlanGroup(pod, owners, true);
  EXPECT_EQ(plan.problem, "");
  EXPECT_EQ(plan.sub_group, "a");
  const Json group = MakePodGroup(pod, owners, plan);
  EXPECT_EQ(group["metadata"]["name"], "pg-gang-gu");
  EXPECT_EQ(group["spec"],
            Json::parse(R"({"queue":"team","priorityClassName":"inference","minMember":6,
    "topologyConstraint":{"topology":"dc","requiredTopologyLevel":"zone"},
    "subGroups":[{"name":"pair","minSubGroup":2,
        "topologyConstraint":{"topology":"dc","preferredTopologyLevel":"rack"}},
      {"name":"a","minMember":2,"parent":"pair"},{"name":"b","minMember":1,"parent":"pair"},
      {"name":"c","minMember":3,"topologyConstraint":{"topology":"dc","requiredTopologyLevel":"host"}}]})"));
  EXPECT_NE(PlanGroup(PodWith({}), {set}, true).problem, "") << "a Grove pod without its gang";
}

TEST(GroupingTest, WrappersAreSkippedAndOwnersAndPodSpeakInKaisOrder) {
  Json workflow = Owner("Workflow", "argoproj.io/v1alpha1", Json::object());
  workflow["metadata"]["labels"] = {{"kai.scheduler/queue", "q"}, {"project", "x"}};
  Json pod = PodWith({{"user", "ann"}, {"kai.scheduler/node-pool", "fast"}});
  std::vector<Json> owners{workflow};
  SettleOwners(&pod, &owners);
  EXPECT_TRUE(owners.empty());
  GroupPlan plan = PlanGroup(pod, owners, true);
  EXPECT_EQ(plan.name, "pg-p-pu");
  Json group = MakePodGroup(pod, owners, plan);
  EXPECT_EQ(group["spec"]["queue"], "q");
  EXPECT_EQ(group["metadata"]["labels"]["kai.scheduler/node-pool"], "fast");
  EXPECT_EQ(group["metadata"]["labels"]["user"], "ann");

  Json set = Owner("StatefulSet", "apps/v1", Json::object());
  set["metadata"]["labels"] = {
      {"project", "x"}, {"priorityClassName", "gone"}, {"kai.scheduler/preemptibility", "maybe"}};
  set["metadata"]["annotations"] = {{"kai.scheduler/preemption-delay", "5m"},
                                    {"kubectl.kubernetes.io/last-applied-configuration", "{}"}};
  pod = PodWith(
      {{"kai.scheduler/node-pool", "fast"}, {"kai.scheduler/preemptibility", "non-preemptible"}});
  plan = PlanGroup(pod, {set}, true);
  group = MakePodGroup(pod, {set}, plan, [](const std::string& name) { return name != "gone"; });
  EXPECT_EQ(group["spec"],
            Json::parse(R"({"queue":"x-fast","priorityClassName":"train","minMember":1,
    "preemptibility":"non-preemptible","preemptionDelay":"5m"})"));
  EXPECT_EQ(group["metadata"]["annotations"]["kai.scheduler/top-owner-metadata"],
            "name: top\nuid: u\ngroup: apps\nversion: v1\nkind: StatefulSet\n");
  EXPECT_EQ(group["metadata"]["annotations"].size(), 2u);

  Json spark = PodWith({{"spark-app-name", "pi"}, {"spark-app-selector", "spark-1"}});
  EXPECT_EQ(PlanGroup(spark, {}, true).name, "spark-1");
  Json revision = Owner("Revision", "serving.knative.dev/v1", Json::object());
  revision["metadata"]["annotations"]["autoscaling.knative.dev/min-scale"] = "3";
  owners = {revision, Owner("Service", "serving.knative.dev/v1", Json::object())};
  SettleOwners(&pod, &owners);
  ASSERT_EQ(owners.size(), 1u);
  plan = PlanGroup(pod, owners, true);
  EXPECT_EQ(plan.min_member, 3);
  EXPECT_EQ(plan.default_class, "inference");
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
