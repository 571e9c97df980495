// How each kind of owner groups its pods.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "scheduler/service/pod_grouper.h"

namespace sublet::scheduler {
namespace {

using kube::Json;

constexpr std::int64_t kReplicasMax = 10'000;  // Jobs of one replicated job that become sub groups

std::string GroupName(const Json& owner) {
  return "pg-" + std::string(kube::NameOf(owner)) + "-" + std::string(kube::UidOf(owner));
}

Json OwnerReferenceOf(const Json& owner) {
  return {{"apiVersion", kube::FindString(owner, {"apiVersion"})},
          {"kind", kube::FindString(owner, {"kind"})},
          {"name", kube::NameOf(owner)},
          {"uid", kube::UidOf(owner)}};
}

GroupPlan PerOwner(const Json& owner, std::int64_t min_member, const char* priority) {
  GroupPlan plan;
  plan.name = GroupName(owner);
  plan.owner = OwnerReferenceOf(owner);
  plan.min_member = min_member;
  plan.default_class = priority;
  return plan;
}

// The sum of replicas of a map {name: {replicas}} of replica specs (Kubeflow), or its override.
std::int64_t KubeflowMinimum(const Json& job, const char* specs) {
  const std::int64_t asked =
      kube::FindInt(job, {"spec", "runPolicy", "schedulingPolicy", "minAvailable"}, 0);
  if (asked > 0) {
    return asked;
  }
  const std::int64_t elastic = kube::FindInt(job, {"spec", "elasticPolicy", "minReplicas"}, 0);
  if (elastic > 0) {
    return elastic;
  }
  std::int64_t sum = 0;
  if (const Json* replicas = kube::Find(job, {"spec", specs}); replicas != nullptr) {
    for (const auto& [name, spec] : replicas->items()) {
      sum += kube::FindInt(spec, {"replicas"}, 1);
    }
  }
  return std::max<std::int64_t>(sum, 1);
}

GroupPlan Kubeflow(const Json& pod, const Json& job, const char* specs) {
  GroupPlan plan = PerOwner(job, KubeflowMinimum(job, specs), "train");
  const std::string role(kube::LabelOf(pod, "training.kubeflow.org/replica-type"));
  if (kube::FindString(job, {"kind"}) == "PyTorchJob") {
    const Json* replicas = kube::Find(job, {"spec", specs});
    if (replicas != nullptr && kube::Find(job, {"spec", "elasticPolicy"}) == nullptr) {
      for (const auto& [name, spec] : replicas->items()) {
        std::string lower = name;
        std::transform(lower.begin(), lower.end(), lower.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        plan.sub_groups.push_back({lower, kube::FindInt(spec, {"replicas"}, 1), "", {}});
      }
      plan.sub_group = role;
    }
  }
  return plan;
}

GroupPlan Ray(const Json& pod, const Json& top) {
  const Json* cluster = kube::Find(top, {"spec", "rayClusterSpec"});
  if (cluster == nullptr) {
    cluster = kube::Find(top, {"spec", "rayClusterConfig"});
  }
  if (cluster == nullptr) {
    cluster = kube::Find(top, {"spec"});
  }
  GroupPlan plan = PerOwner(top, 1, "train");
  plan.sub_groups.push_back({"headgroup", 1, "", {}});
  if (cluster != nullptr) {
    for (const Json& group : cluster->value("workerGroupSpecs", Json::array())) {
      const std::int64_t workers =
          kube::FindInt(group, {"minReplicas"}, 0) *
          std::max<std::int64_t>(kube::FindInt(group, {"numOfHosts"}, 1), 1);
      plan.sub_groups.push_back(
          {std::string(kube::FindString(group, {"groupName"})), workers, "", {}});
      plan.min_member += workers;
    }
  }
  plan.sub_group = kube::LabelOf(pod, "ray.io/group");
  return plan;
}

GroupPlan JobSet(const Json& pod, const Json& set) {
  std::int64_t minimum = 0;
  const bool in_order =
      kube::FindString(set, {"spec", "startupPolicy", "startupPolicyOrder"}) == "InOrder";
  const std::string replicated(kube::LabelOf(pod, "jobset.sigs.k8s.io/replicatedjob-name"));
  for (const Json& job : set.at("spec").value("replicatedJobs", Json::array())) {
    if (!in_order || kube::FindString(job, {"name"}) == replicated) {
      minimum += kube::FindInt(job, {"replicas"}, 1) *
                 kube::FindInt(job, {"template", "spec", "parallelism"}, 1);
    }
  }
  GroupPlan plan = PerOwner(set, std::max<std::int64_t>(minimum, 1), "train");
  if (in_order) {
    plan.name += "-" + replicated;
  }
  return plan;
}

// KAI from 0.16 on: the root asks for the replicated jobs, each of them for its Jobs, each Job for
// its pods. Those that start in order count one by one.
GroupPlan JobSetTree(const Json& pod, const Json& set) {
  GroupPlan plan = PerOwner(set, 1, "train");
  const bool in_order =
      kube::FindString(set, {"spec", "startupPolicy", "startupPolicyOrder"}) == "InOrder";
  std::int64_t jobs = 0;
  for (const Json& job : set.at("spec").value("replicatedJobs", Json::array())) {
    const std::string name(kube::FindString(job, {"name"}));
    const std::int64_t replicas =
        std::clamp<std::int64_t>(kube::FindInt(job, {"replicas"}, 1), 0, kReplicasMax);
    const std::int64_t pods = std::min(kube::FindInt(job, {"template", "spec", "parallelism"}, 1),
                                       kube::FindInt(job, {"template", "spec", "completions"},
                                                     std::numeric_limits<std::int64_t>::max()));
    plan.sub_groups.push_back({name, 0, "", replicas});
    for (std::int64_t i = 0; i < replicas; ++i) {
      plan.sub_groups.push_back({name + "-replica-" + std::to_string(i), pods, name, {}});
    }
    ++jobs;
  }
  const std::string asked(kube::AnnotationOf(set, "kai.scheduler/batch-min-member"));
  const std::int64_t least = std::atoll(asked.c_str());
  plan.min_sub_group = least > 0 ? least : in_order ? 1 : jobs;
  plan.sub_group = std::string(kube::LabelOf(pod, "jobset.sigs.k8s.io/replicatedjob-name")) +
                   "-replica-" + std::string(kube::LabelOf(pod, "jobset.sigs.k8s.io/job-index"));
  return plan;
}

// A launcher that is made when the workers are ready is not waited for until it is there.
GroupPlan MpiJob(const Json& pod, const Json& job) {
  GroupPlan plan = Kubeflow(pod, job, "mpiReplicaSpecs");
  const bool asked =
      kube::FindInt(job, {"spec", "runPolicy", "schedulingPolicy", "minAvailable"}, 0) > 0;
  if (asked || kube::FindString(job, {"spec", "launcherCreationPolicy"}) != "WaitForWorkersReady") {
    return plan;
  }
  const bool launcher = kube::LabelOf(pod, "training.kubeflow.org/job-role") == "launcher" ||
                        kube::LabelOf(pod, "training.kubeflow.org/replica-type") == "launcher";
  if (launcher) {
    plan.raises_minimum = true;
  } else {
    plan.min_member = std::max<std::int64_t>(
        plan.min_member -
            kube::FindInt(job, {"spec", "mpiReplicaSpecs", "Launcher", "replicas"}, 1),
        1);
  }
  return plan;
}

GroupPlan LeaderWorkerSet(const Json& pod, const Json& set) {
  const std::string index(kube::LabelOf(pod, "leaderworkerset.sigs.k8s.io/group-index"));
  const std::int64_t size = kube::FindInt(set, {"spec", "leaderWorkerTemplate", "size"}, 1);
  GroupPlan plan = PerOwner(set, size, "train");
  plan.name += "-group-" + index;
  plan.sub_groups = {{"leader", 1, "", {}}, {"workers", size - 1, "", {}}};
  plan.sub_group =
      kube::LabelOf(pod, "leaderworkerset.sigs.k8s.io/worker-index") == "0" ? "leader" : "workers";
  return plan;
}

GroupPlan PerPod(const Json& pod, const char* priority) {
  GroupPlan plan = PerOwner(pod, 1, priority);
  plan.owner["apiVersion"] = "v1";
  plan.owner["kind"] = "Pod";
  return plan;
}

}  // namespace

GroupPlan PlanGroup(const Json& pod, const std::vector<Json>& owners, bool jobs_per_pod) {
  if (owners.empty()) {
    return PerPod(pod, "train");
  }
  const Json& top = owners.back();
  const auto kind = kube::FindString(top, {"kind"});
  const auto api_version = kube::FindString(top, {"apiVersion"});
  if (kind == "Deployment") {
    return PerPod(pod, "inference");
  }
  if (kind == "Job" || kind == "CronJob") {
    // The spawned Job, whether or not a CronJob stands above it.
    const auto job = std::find_if(owners.begin(), owners.end(), [](const Json& owner) {
      return kube::FindString(owner, {"kind"}) == "Job";
    });
    const Json& batch = job == owners.end() ? top : *job;
    if (jobs_per_pod && kind == "Job") {
      GroupPlan plan = PerOwner(batch, 1, "train");
      plan.name = "pg-" + std::string(kube::NameOf(pod)) + "-" + std::string(kube::UidOf(batch));
      return plan;
    }
    const std::string asked(kube::AnnotationOf(batch, "kai.scheduler/batch-min-member"));
    return PerOwner(batch, std::max<std::int64_t>(std::atoll(asked.c_str()), 1), "train");
  }
  if (api_version.starts_with("kubeflow.org/")) {
    for (const auto& [job, specs] :
         {std::pair<const char*, const char*>{"PyTorchJob", "pytorchReplicaSpecs"},
          {"TFJob", "tfReplicaSpecs"},
          {"XGBoostJob", "xgbReplicaSpecs"},
          {"JAXJob", "jaxReplicaSpecs"}}) {
      if (kind == job) {
        return Kubeflow(pod, top, specs);
      }
    }
    if (kind == "MPIJob") {
      return MpiJob(pod, top);
    }
    if (kind == "Notebook") {
      return PerOwner(top, 1, "build");
    }
  }
  if (kind == "RayCluster" || kind == "RayJob" || kind == "RayService") {
    return Ray(pod, top);
  }
  if (kind == "JobSet") {
    return jobs_per_pod ? JobSet(pod, top) : JobSetTree(pod, top);
  }
  if (kind == "LeaderWorkerSet") {
    return LeaderWorkerSet(pod, top);
  }
  if (api_version.starts_with("batch.volcano.sh/")) {
    return PerOwner(top, std::max<std::int64_t>(kube::FindInt(top, {"spec", "minAvailable"}), 1),
                    "train");
  }
  if (kind == "PodGang" || api_version.starts_with("grove.io/")) {
    GroupPlan plan = PerOwner(top, 0, "train");
    for (const Json& group : top.value("spec", Json::object()).value("podgroups", Json::array())) {
      plan.sub_groups.push_back({std::string(kube::FindString(group, {"name"})),
                                 kube::FindInt(group, {"minReplicas"}, 1),
                                 "",
                                 {}});
      plan.min_member += plan.sub_groups.back().min_member;
    }
    plan.min_member = std::max<std::int64_t>(plan.min_member, 1);
    plan.sub_group = kube::LabelOf(pod, "grove.io/podclique");
    return plan;
  }
  return PerOwner(top, 1, "train");
}

Json MakePodGroup(const Json& pod, const std::vector<Json>& owners, const GroupPlan& plan) {
  const Json& top = owners.empty() ? pod : owners.back();
  // The first of: a label on any owner from the top down, then the pod's.
  const auto label = [&](std::string_view key) {
    for (auto owner = owners.rbegin(); owner != owners.rend(); ++owner) {
      if (const auto value = kube::LabelOf(*owner, key); !value.empty()) {
        return std::string(value);
      }
    }
    return std::string(kube::LabelOf(pod, key));
  };
  std::string queue = label("kai.scheduler/queue");
  if (queue.empty()) {
    queue = label("project");
  }
  std::string priority = label("priorityClassName");
  if (priority.empty()) {
    priority = kube::FindString(pod, {"spec", "priorityClassName"});
  }
  Json spec = {{"queue", queue.empty() ? "default-queue" : queue},
               {"priorityClassName", priority.empty() ? plan.default_class : priority},
               {"minMember", plan.min_member}};
  if (const std::string value = label("kai.scheduler/preemptibility"); !value.empty()) {
    spec["preemptibility"] = value;
  }
  Json topology = Json::object();
  for (const auto& [annotation, field] :
       {std::pair<const char*, const char*>{"kai.scheduler/topology", "topology"},
        {"kai.scheduler/topology-required-placement", "requiredTopologyLevel"},
        {"kai.scheduler/topology-preferred-placement", "preferredTopologyLevel"}}) {
    if (const auto value = kube::AnnotationOf(top, annotation); !value.empty()) {
      topology[field] = value;
    }
  }
  if (!topology.empty()) {
    spec["topologyConstraint"] = std::move(topology);
  }
  for (const PlannedGroup& group : plan.sub_groups) {
    Json entry = {{"name", group.name}};
    if (group.min_sub_group) {
      entry["minSubGroup"] = *group.min_sub_group;
    } else {
      entry["minMember"] = group.min_member;
    }
    if (!group.parent.empty()) {
      entry["parent"] = group.parent;
    }
    spec["subGroups"].push_back(std::move(entry));
  }
  if (plan.min_sub_group) {
    spec.erase("minMember");
    spec["minSubGroup"] = *plan.min_sub_group;
  }
  Json labels = kube::LabelsOf(top) == nullptr ? Json::object() : *kube::LabelsOf(top);
  labels["kai.scheduler/queue"] = spec["queue"];
  Json group = {{"apiVersion", "scheduling.run.ai/v2alpha2"},
                {"kind", "PodGroup"},
                {"metadata",
                 {{"name", plan.name},
                  {"namespace", kube::NamespaceOf(pod)},
                  {"labels", std::move(labels)},
                  {"ownerReferences", Json::array({plan.owner})}}},
                {"spec", std::move(spec)}};
  // KAI has one scheduler name per shard; here a PodGroup says whose it is when it is not the usual
  // one.
  const auto scheduler = kube::FindString(pod, {"spec", "schedulerName"});
  if (!scheduler.empty() && scheduler != "kai-scheduler") {
    group["metadata"]["annotations"]["sublet.dev/scheduler-name"] = scheduler;
  }
  return group;
}

}  // namespace sublet::scheduler
