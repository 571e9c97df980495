// How each kind of owner groups its pods.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "scheduler/service/grouping_internal.h"

namespace sublet::scheduler {

using kube::Json;

namespace {

std::string GroupName(const Json& owner) {
  return "pg-" + std::string(kube::NameOf(owner)) + "-" + std::string(kube::UidOf(owner));
}

Json OwnerReferenceOf(const Json& owner) {
  return {{"apiVersion", kube::FindString(owner, {"apiVersion"})},
          {"kind", kube::FindString(owner, {"kind"})},
          {"name", kube::NameOf(owner)},
          {"uid", kube::UidOf(owner)}};
}

}  // namespace

namespace grouping {

GroupPlan PerOwner(const Json& owner, std::int64_t min_member, const char* priority) {
  GroupPlan plan;
  plan.name = GroupName(owner);
  plan.owner = OwnerReferenceOf(owner);
  plan.min_member = min_member;
  plan.default_class = priority;
  return plan;
}

std::int64_t KubeflowMinimum(const Json& job, const char* specs) {
  const std::int64_t asked =
      kube::FindInt(job, {"spec", "runPolicy", "schedulingPolicy", "minAvailable"}, 0);
  if (asked > 0) {
    return asked;
  }
  const std::int64_t elastic = kube::FindInt(job, {"spec", "elasticPolicy", "minReplicas"}, 0);
  if (elastic > 0 && kube::FindString(job, {"kind"}) == "PyTorchJob") {
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

Json Constraint(const std::string& topology, const std::string& required,
                const std::string& preferred) {
  Json out = nullptr;
  for (const auto& [field, value] :
       {std::pair<const char*, const std::string&>{"topology", topology},
        {"requiredTopologyLevel", required},
        {"preferredTopologyLevel", preferred}}) {
    if (!value.empty() && !(required.empty() && preferred.empty())) {
      out[field] = value;
    }
  }
  return out;
}

}  // namespace grouping

namespace {

using grouping::KubeflowMinimum;
using grouping::PerOwner;

constexpr std::int64_t kReplicasMax = 10'000;  // Jobs of one replicated job that become sub groups

GroupPlan Kubeflow(const Json& job, const char* specs) {
  return PerOwner(job, KubeflowMinimum(job, specs), "train");
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
  GroupPlan plan = Kubeflow(job, "mpiReplicaSpecs");
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

GroupPlan PerPod(const Json& pod, const char* priority) {
  GroupPlan plan = PerOwner(pod, 1, priority);
  plan.owner["apiVersion"] = "v1";
  plan.owner["kind"] = "Pod";
  return plan;
}

// A pod that nobody owns; those of one Spark application share a group.
GroupPlan BarePod(const Json& pod) {
  GroupPlan plan = PerPod(pod, "train");
  if (const auto app = kube::LabelOf(pod, "spark-app-selector");
      !app.empty() && !kube::LabelOf(pod, "spark-app-name").empty()) {
    plan.name = app;
  }
  return plan;
}

// The spawned Job, whether or not a CronJob stands above it.
GroupPlan Batch(const Json& pod, const std::vector<Json>& owners, bool jobs_per_pod) {
  const Json& top = owners.back();
  const auto job = std::find_if(owners.begin(), owners.end(), [](const Json& owner) {
    return kube::FindString(owner, {"kind"}) == "Job";
  });
  const Json& batch = job == owners.end() ? top : *job;
  if (jobs_per_pod && kube::FindString(top, {"kind"}) == "Job") {
    GroupPlan plan = PerOwner(batch, 1, "train");
    plan.name = "pg-" + std::string(kube::NameOf(pod)) + "-" + std::string(kube::UidOf(batch));
    return plan;
  }
  const std::string asked(kube::AnnotationOf(batch, "kai.scheduler/batch-min-member"));
  return PerOwner(batch, std::max<std::int64_t>(std::atoll(asked.c_str()), 1), "train");
}

}  // namespace

GroupPlan PlanGroup(const Json& pod, const std::vector<Json>& owners, bool jobs_per_pod) {
  if (owners.empty()) {
    return BarePod(pod);
  }
  const Json& top = owners.back();
  const auto kind = kube::FindString(top, {"kind"});
  const auto api_version = kube::FindString(top, {"apiVersion"});
  if (kind == "Deployment") {
    return PerPod(pod, "inference");
  }
  if (kind == "Job" || kind == "CronJob") {
    return Batch(pod, owners, jobs_per_pod);
  }
  if (api_version.starts_with("kubeflow.org/")) {
    for (const auto& [job, specs] : {std::pair<const char*, const char*>{"TFJob", "tfReplicaSpecs"},
                                     {"XGBoostJob", "xgbReplicaSpecs"},
                                     {"JAXJob", "jaxReplicaSpecs"}}) {
      if (kind == job) {
        return Kubeflow(top, specs);
      }
    }
    if (kind == "PyTorchJob") {
      return grouping::PyTorchPlan(pod, top);
    }
    if (kind == "MPIJob") {
      return MpiJob(pod, top);
    }
    if (kind == "Notebook") {
      return PerOwner(top, 1, "build");
    }
  }
  if (kind == "RayCluster" || kind == "RayJob" || kind == "RayService") {
    return grouping::RayPlan(pod, top);
  }
  if (kind == "JobSet") {
    return jobs_per_pod ? JobSet(pod, top) : JobSetTree(pod, top);
  }
  if (kind == "LeaderWorkerSet") {
    return grouping::LeaderWorkerSetPlan(pod, top);
  }
  if (kind == "Revision" && api_version.starts_with("serving.knative.dev/")) {
    const std::string scale(kube::AnnotationOf(top, "autoscaling.knative.dev/min-scale"));
    return PerOwner(top, scale.empty() ? 1 : std::atoll(scale.c_str()), "inference");
  }
  if (kind == "SPOTRequest") {
    return PerOwner(top, 1, "inference");
  }
  if (kind == "AmlJob") {
    GroupPlan plan = PerOwner(
        top, kube::FindInt(top, {"spec", "job", "options", "envs", "AZUREML_NODE_COUNT"}), "train");
    plan.problem = plan.min_member > 0 ? "" : "azureml envs count not found in spec";
    return plan;
  }
  if (kind == "RunaiJob") {
    GroupPlan plan = PerOwner(top, 1, "train");
    const std::string name(kube::NameOf(pod));
    plan.name = "pg-" + name.substr(0, name.rfind('-')) + "-" + std::string(kube::UidOf(top));
    return plan;
  }
  if (api_version.starts_with("batch.volcano.sh/")) {
    return PerOwner(top, std::max<std::int64_t>(kube::FindInt(top, {"spec", "minAvailable"}), 1),
                    "train");
  }
  if (kind == "PodGang" || api_version.starts_with("grove.io/")) {
    return grouping::GrovePlan(pod, top);
  }
  return PerOwner(top, 1, "train");
}

}  // namespace sublet::scheduler
