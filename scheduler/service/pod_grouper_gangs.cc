// Kinds whose gangs have several sub groups: PyTorchJob and LeaderWorkerSet with their segments, Ray,
// Grove's PodGang. Names, minima and errors are KAI's; a parent says how many of its children it
// needs, all of them, where KAI before 0.15 wrote a minimum of pods that nothing read.
#include <algorithm>
#include <cctype>

#include "scheduler/service/grouping_internal.h"

namespace sublet::scheduler::grouping {

using kube::Json;

namespace {

constexpr std::int64_t kSegmentsMax = 10'000;

constexpr const char* kTopology = "kai.scheduler/topology";

std::int64_t WholeNumber(std::string_view text) {
  const bool digits =
      !text.empty() && text.size() < 10 &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return digits ? std::atoll(std::string(text).c_str()) : -1;
}

// The pod's annotation, or the one of its template.
std::string FromPodOr(const Json& pod, const Json* pod_template, const char* key) {
  const std::string own(kube::AnnotationOf(pod, key));
  return !own.empty() || pod_template == nullptr
             ? own
             : std::string(kube::FindString(*pod_template, {"metadata", "annotations", key}));
}

Json SegmentConstraint(const Json& pod, const Json* pod_template, const Json& top) {
  std::string topology = FromPodOr(pod, pod_template, kTopology);
  if (topology.empty()) {
    topology = kube::AnnotationOf(top, kTopology);
  }
  return topology.empty()
             ? Json()
             : Constraint(topology,
                          FromPodOr(pod, pod_template,
                                    "kai.scheduler/segment-topology-required-placement"),
                          FromPodOr(pod, pod_template,
                                    "kai.scheduler/segment-topology-preferred-placement"));
}

// A pod template's own constraint; `problem` when it names a level and no topology.
Json TemplateConstraint(const Json* group, const std::string& name, std::string* problem) {
  const Json* pod_template = group == nullptr ? nullptr : kube::Find(*group, {"template"});
  if (pod_template == nullptr) {
    return nullptr;
  }
  const auto annotation = [&](const char* key) {
    return std::string(kube::FindString(*pod_template, {"metadata", "annotations", key}));
  };
  const std::string topology = annotation(kTopology);
  Json out = Constraint(topology, annotation("kai.scheduler/topology-required-placement"),
                        annotation("kai.scheduler/topology-preferred-placement"));
  if (!out.is_null() && topology.empty()) {
    *problem = "topology annotation (kai.scheduler/topology) is required for " + name +
               " when topology placement annotations are set";
  }
  return out;
}

void AddWorkers(const Json& pod, const Json& job, const Json& worker, std::int64_t minimum,
                GroupPlan* plan) {
  const Json* pod_template = kube::Find(worker, {"template"});
  const bool mine = kube::LabelOf(pod, "training.kubeflow.org/replica-type") == "worker";
  const std::string asked = FromPodOr(pod, pod_template, "kai.scheduler/segment-size");
  if (asked.empty()) {
    plan->sub_groups.push_back({"worker", minimum, "", {}});
    plan->sub_group = mine ? "worker" : plan->sub_group;
    return;
  }
  const std::int64_t size = WholeNumber(asked);
  const std::int64_t index = WholeNumber(kube::LabelOf(pod, "training.kubeflow.org/replica-index"));
  const std::int64_t workers = kube::FindInt(worker, {"replicas"}, 1);
  if (size <= 0 || (workers + size - 1) / size > kSegmentsMax) {
    plan->problem =
        "invalid segment size " + asked + " of PyTorchJob " + std::string(kube::NameOf(job));
    return;
  }
  if (mine && index < 0) {
    plan->problem = "replica index label not found on pod " + std::string(kube::NamespaceOf(pod)) +
                    "/" + std::string(kube::NameOf(pod));
    return;
  }
  const std::int64_t segments = (workers + size - 1) / size;
  const Json topology = SegmentConstraint(pod, pod_template, job);
  plan->sub_groups.push_back({"worker", 0, "", segments});
  for (std::int64_t i = 0; i < segments; ++i) {
    const std::int64_t members = std::min(size, workers - i * size);
    plan->sub_groups.push_back({"worker-" + std::to_string(i), members, "worker", {}, topology});
  }
  plan->sub_group = mine ? "worker-" + std::to_string(index / size) : plan->sub_group;
}

}  // namespace

GroupPlan PyTorchPlan(const Json& pod, const Json& job) {
  GroupPlan plan = PerOwner(job, KubeflowMinimum(job, "pytorchReplicaSpecs"), "train");
  const Json* specs = kube::Find(job, {"spec", "pytorchReplicaSpecs"});
  if (specs == nullptr) {
    plan.problem = "pytorchReplicaSpecs not found in PyTorchJob " + std::string(kube::NameOf(job));
    return plan;
  }
  const std::int64_t masters = kube::FindInt(*specs, {"Master", "replicas"}, 0);
  if (masters > 0) {
    plan.sub_groups.push_back({"master", masters, "", {}});
    if (kube::LabelOf(pod, "training.kubeflow.org/replica-type") == "master") {
      plan.sub_group = "master";
    }
  }
  if (const Json* worker = kube::Find(*specs, {"Worker"}); worker != nullptr) {
    AddWorkers(pod, job, *worker, std::max<std::int64_t>(plan.min_member - masters, 0), &plan);
  }
  return plan;
}

GroupPlan RayPlan(const Json& pod, const Json& top) {
  const Json* cluster = kube::Find(top, {"spec", "rayClusterSpec"});
  for (const char* field : {"rayClusterConfig", ""}) {
    if (cluster == nullptr) {
      cluster = *field == '\0' ? kube::Find(top, {"spec"}) : kube::Find(top, {"spec", field});
    }
  }
  GroupPlan plan = PerOwner(top, 1, "train");
  plan.priority = kube::LabelOf(top, "ray.io/priority-class-name");
  const Json none = Json::object();
  const Json& spec = cluster == nullptr ? none : *cluster;
  plan.sub_groups.push_back(
      {"headgroup",
       1,
       "",
       {},
       TemplateConstraint(kube::Find(spec, {"headGroupSpec"}), "headGroupSpec", &plan.problem)});
  const Json groups = spec.value("workerGroupSpecs", Json::array());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Json& group = groups[i];
    const std::int64_t wanted = kube::FindInt(group, {"replicas"}, 0);
    const std::int64_t least = kube::FindInt(group, {"minReplicas"}, 0);
    if (kube::FindBool(group, {"suspend"}) || kube::FindBool(group, {"suspended"}) ||
        (wanted == 0 && least == 0)) {
      continue;
    }
    std::string name(kube::FindString(group, {"groupName"}));
    name = name.empty() ? "worker-group-" + std::to_string(i) : name;
    if (least > wanted) {
      plan.problem =
          "ray-cluster replicas for a workerGroupsSpec can't be less than minReplicas. "
          "Given " +
          std::to_string(wanted) + " replicas and " + std::to_string(least) +
          " minReplicas. Please fix the replicas field for group number " + std::to_string(i);
    }
    const std::int64_t workers =
        (least > 0 ? least : wanted) * kube::FindInt(group, {"numOfHosts"}, 1);
    plan.sub_groups.push_back(
        {name,
         workers,
         "",
         {},
         TemplateConstraint(&group, "workerGroupSpecs." + name, &plan.problem)});
    plan.min_member += workers;
  }
  plan.sub_group = kube::LabelOf(pod, "ray.io/group");
  return plan;
}

namespace {

struct Segments {
  std::int64_t size = 0, replicas = 0;
  // The leader comes on top of whole segments, as a further member of the first.
  bool Even() const { return (replicas - 1) % size == 0; }
  std::int64_t Of(std::int64_t index) const {
    return index == 0 ? 0 : Even() ? (index - 1) / size : index / size;
  }
};

void AddSegments(const Json& pod, const Json& set, const Segments& segments, GroupPlan* plan) {
  const Json* worker = kube::Find(set, {"spec", "leaderWorkerTemplate", "workerTemplate"});
  const Json topology = SegmentConstraint(pod, worker, set);
  const bool apart = kube::FindString(set, {"spec", "leaderWorkerTemplate", "subGroupPolicy",
                                            "subGroupPolicyType"}) == "LeaderExcluded";
  const std::int64_t index =
      WholeNumber(kube::LabelOf(pod, "leaderworkerset.sigs.k8s.io/worker-index"));
  if (index < 0 || (apart && !segments.Even())) {
    plan->problem =
        index < 0 ? "failed to get worker index from pod " + std::string(kube::NamespaceOf(pod)) +
                        "/" + std::string(kube::NameOf(pod))
                  : "replicasSize " + std::to_string(segments.replicas) +
                        " is not divisible by segmentSize " + std::to_string(segments.size) +
                        ". LeaderExcluded policy is only supported when replicasSize is "
                        "divisible by segmentSize.";
    return;
  }
  const std::int64_t last = segments.Of(segments.replicas - 1);
  if (apart) {
    plan->sub_groups.push_back({"leader", 1, "", {}});
  }
  for (std::int64_t i = 0; i <= last; ++i) {
    std::int64_t members = 0;
    for (std::int64_t pods = 1; pods < segments.replicas; ++pods) {
      members += segments.Of(pods) == i ? 1 : 0;
    }
    const std::string name = "segment-" + std::to_string(i);
    if (i == 0 && !apart) {
      plan->sub_groups.push_back({name, 0, "", 2, topology});
      plan->sub_groups.push_back({"leader", 1, name, {}});
      plan->sub_groups.push_back({"workers", members, name, {}});
    } else {
      plan->sub_groups.push_back({name, members, "", {}, topology});
    }
  }
  const std::int64_t mine = segments.Of(index);
  plan->sub_group = index == 0            ? "leader"
                    : mine == 0 && !apart ? "workers"
                                          : "segment-" + std::to_string(mine);
}

}  // namespace

GroupPlan LeaderWorkerSetPlan(const Json& pod, const Json& set) {
  const std::int64_t size = kube::FindInt(set, {"spec", "leaderWorkerTemplate", "size"}, 0);
  GroupPlan plan = PerOwner(set, size, "train");
  const std::string policy(kube::FindString(set, {"spec", "startupPolicy"}, "LeaderCreated"));
  if (size <= 0 || size > kSegmentsMax || (policy != "LeaderReady" && policy != "LeaderCreated")) {
    plan.problem = size <= 0 || size > kSegmentsMax ? "invalid leaderWorkerTemplate.size of LWS " +
                                                          std::string(kube::NameOf(set))
                                                    : "unknown startupPolicy: " + policy;
    return plan;
  }
  const std::string group(kube::LabelOf(pod, "leaderworkerset.sigs.k8s.io/group-index"));
  plan.name += group.empty() ? "" : "-group-" + group;
  const bool leader = kube::LabelOf(pod, "leaderworkerset.sigs.k8s.io/worker-index") == "0";
  if (policy == "LeaderReady") {
    // Until it is scheduled, a leader waits for nobody; its workers do not exist before.
    const std::int64_t own =
        WholeNumber(kube::AnnotationOf(pod, "leaderworkerset.sigs.k8s.io/size"));
    const bool alone = leader && kube::FindString(pod, {"spec", "nodeName"}).empty();
    plan.min_member = alone ? 1 : own > 0 ? own : size;
    plan.raises_minimum = !alone;
  }
  std::int64_t segment =
      kube::FindInt(set, {"spec", "leaderWorkerTemplate", "subGroupPolicy", "subGroupSize"}, 0);
  std::string asked(kube::AnnotationOf(set, "kai.scheduler/segment-size"));
  if (asked.empty()) {
    asked = kube::FindString(set, {"spec", "leaderWorkerTemplate", "workerTemplate", "metadata",
                                   "annotations", "kai.scheduler/segment-size"});
  }
  segment = segment > 0 || asked.empty() ? segment : WholeNumber(asked);
  // A leader that comes first has no segments yet, where KAI refuses it.
  if (segment == 0 || plan.min_member == 1) {
    plan.sub_groups.push_back({"leader", 1, "", {}});
    if (plan.min_member > 1) {
      plan.sub_groups.push_back({"workers", plan.min_member - 1, "", {}});
    }
    plan.sub_group = leader ? "leader" : "workers";
    return plan;
  }
  if (segment <= 1 || segment > plan.min_member) {
    plan.problem = segment <= 1
                       ? "segmentSize " + (asked.empty() ? std::to_string(segment) : asked) +
                             " is not valid. It must be greater than 1"
                       : "segmentSize " + std::to_string(segment) +
                             " is greater than replicasSize " + std::to_string(plan.min_member);
    return plan;
  }
  AddSegments(pod, set, {segment, plan.min_member}, &plan);
  return plan;
}

GroupPlan GrovePlan(const Json& pod, const Json& gang) {
  GroupPlan plan = PerOwner(gang, 0, "train");
  if (kube::FindString(gang, {"kind"}) != "PodGang") {
    plan.problem = "label for podgang name (key: grove.io/podgang) not found in pod " +
                   std::string(kube::NamespaceOf(pod)) + "/" + std::string(kube::NameOf(pod));
    return plan;
  }
  std::string topology(kube::AnnotationOf(gang, "grove.io/topology-name"));
  if (topology.empty()) {
    topology = kube::AnnotationOf(gang, kTopology);
  }
  const auto packed = [&](const Json& object) {
    const auto level = [&](const char* name) {
      return std::string(kube::FindString(object, {"topologyConstraint", "packConstraint", name}));
    };
    Json out = Constraint(topology, level("required"), level("preferred"));
    if (!out.is_null() && topology.empty()) {
      plan.problem = "topology name cannot be empty when topology constraints are defined";
    }
    return out;
  };
  const Json spec = gang.value("spec", Json::object());
  plan.priority = kube::FindString(spec, {"priorityClassName"});
  plan.topology = packed(spec);
  std::map<std::string, std::string> parents;
  for (const Json& config : spec.value("topologyConstraintGroupConfigs", Json::array())) {
    const std::string name(kube::FindString(config, {"name"}));
    const Json members = config.value("podGroupNames", Json::array());
    for (const Json& member : members) {
      parents[member.is_string() ? member.get<std::string>() : ""] = name;
    }
    if (!members.empty()) {
      plan.sub_groups.push_back(
          {name, 0, "", static_cast<std::int64_t>(members.size()), packed(config)});
    }
  }
  for (const Json& group : spec.value("podgroups", Json::array())) {
    const std::string name(kube::FindString(group, {"name"}));
    const std::int64_t least = kube::FindInt(group, {"minReplicas"}, 0);
    if (name.empty() || least <= 0) {
      plan.problem = name.empty() ? "missing required 'name' field"
                                  : "invalid 'minReplicas' field. Must be greater than 0";
    }
    const auto parent = parents.find(name);
    plan.sub_groups.push_back(
        {name, least, parent == parents.end() ? "" : parent->second, {}, packed(group)});
    plan.min_member += least;
    for (const Json& reference : group.value("podReferences", Json::array())) {
      if (kube::FindString(reference, {"name"}) == kube::NameOf(pod) &&
          kube::FindString(reference, {"namespace"}) == kube::NamespaceOf(pod)) {
        plan.sub_group = name;
      }
    }
  }
  return plan;
}

}  // namespace sublet::scheduler::grouping
