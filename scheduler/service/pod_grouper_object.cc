// What owners say of a group, whatever their kind: queue, priority class, preemptibility, topology,
// labels and annotations; and which of the owners is asked (scheduler/service/pod_grouper.h).
#include <algorithm>
#include <map>

#include "scheduler/service/grouping_internal.h"

namespace sublet::scheduler {

using kube::Json;

namespace {

// Group of the API and kind of those that only wrap what is below them.
bool OnlyWraps(const Json& owner) {
  const auto version = kube::GroupVersion::Parse(kube::FindString(owner, {"apiVersion"}));
  const auto kind = kube::FindString(owner, {"kind"});
  return (version.group == "argoproj.io" && kind == "Workflow") ||
         (version.group == "trainer.kubeflow.org" && kind == "TrainJob") ||
         (version.group == "nvidia.com" && kind == "DynamoGraphDeployment") ||
         (version.group == "run.ai" && kind.ends_with("Workload"));
}

// Gives `to` the labels and annotations of `from` that it has none of.
void PassDown(const Json& from, Json* to) {
  for (const char* field : {"labels", "annotations"}) {
    const Json* given = kube::Find(from, {"metadata", field});
    if (given == nullptr || !given->is_object()) {
      continue;
    }
    Json& have = (*to)["metadata"][field];
    for (const auto& [key, value] : given->items()) {
      if (!have.contains(key)) {
        have[key] = value;
      }
    }
  }
}

std::string LabelOfEither(const Json& top, const Json& pod, std::string_view key) {
  const auto own = kube::LabelOf(top, key);
  return std::string(own.empty() ? kube::LabelOf(pod, key) : own);
}

std::string QueueOf(const Json& top, const Json& pod) {
  if (std::string queue = LabelOfEither(top, pod, "kai.scheduler/queue"); !queue.empty()) {
    return queue;
  }
  const std::string project = LabelOfEither(top, pod, "project");
  const std::string pool(kube::LabelOf(pod, "kai.scheduler/node-pool"));
  return project.empty() ? "default-queue" : pool.empty() ? project : project + "-" + pool;
}

std::string PriorityOf(const Json& pod, const std::vector<Json>& owners, const GroupPlan& plan,
                       const std::function<bool(const std::string&)>& exists) {
  if (!plan.priority.empty()) {
    return plan.priority;
  }
  // Kinds with a class of their own ask the top owner only. The pod speaks before the owners above
  // one that has no label of its own: KAI asks them one after the other, and the pod each time.
  std::vector<const Json*> asked;
  for (const Json& owner : owners) {
    asked.push_back(&owner);
  }
  if (asked.empty()) {
    asked.push_back(&pod);
  } else if (plan.default_class != "train") {
    asked = {asked.back()};
  }
  for (const Json* owner : asked) {
    std::string name = LabelOfEither(*owner, pod, "priorityClassName");
    if (name.empty()) {
      name = kube::FindString(pod, {"spec", "priorityClassName"});
    }
    if (!name.empty() && (!exists || exists(name))) {
      return name;
    }
  }
  return plan.default_class;
}

std::string PreemptibilityOf(const Json& pod, const std::vector<Json>& owners) {
  const auto valid = [](std::string_view value) {
    return value == "preemptible" || value == "non-preemptible";
  };
  for (const Json& owner : owners) {
    if (const auto value = kube::LabelOf(owner, "kai.scheduler/preemptibility"); valid(value)) {
      return std::string(value);
    }
  }
  const auto value = kube::LabelOf(pod, "kai.scheduler/preemptibility");
  return valid(value) ? std::string(value) : "";
}

Json SubGroupsOf(const GroupPlan& plan) {
  Json out = Json::array();
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
    if (!group.topology.is_null()) {
      entry["topologyConstraint"] = group.topology;
    }
    out.push_back(std::move(entry));
  }
  return out;
}

Json LabelsFor(const Json& top, const Json& pod) {
  Json labels = kube::LabelsOf(top) == nullptr ? Json::object() : *kube::LabelsOf(top);
  for (const char* key : {"user", "kai.scheduler/node-pool"}) {
    if (const auto value = kube::LabelOf(pod, key); !value.empty() && !labels.contains(key)) {
      labels[key] = value;
    }
  }
  return labels;
}

// Differs: kubectl's copy of the applied owner stays with the owner.
Json AnnotationsFor(const Json& top, const Json& pod) {
  Json annotations = Json::object();
  if (const auto user = kube::AnnotationOf(pod, "user"); !user.empty()) {
    annotations["user"] = user;
  }
  const auto version = kube::GroupVersion::Parse(kube::FindString(top, {"apiVersion"}, "v1"));
  const auto line = [](const char* key, std::string_view value) {
    return std::string(key) + ": " + (value.empty() ? "\"\"" : std::string(value)) + "\n";
  };
  annotations["kai.scheduler/top-owner-metadata"] =
      line("name", kube::NameOf(top)) + line("uid", kube::UidOf(top)) +
      line("group", version.group) + line("version", version.version) +
      line("kind", kube::FindString(top, {"kind"}, "Pod"));
  if (const Json* own = kube::Find(top, {"metadata", "annotations"});
      own != nullptr && own->is_object()) {
    for (const auto& [key, value] : own->items()) {
      if (key != "kubectl.kubernetes.io/last-applied-configuration") {
        annotations[key] = value;
      }
    }
  }
  return annotations;
}

}  // namespace

void SettleOwners(Json* pod, std::vector<Json>* owners) {
  while (!owners->empty() && OnlyWraps(owners->back())) {
    const Json skipped = std::move(owners->back());
    owners->pop_back();
    PassDown(skipped, owners->empty() ? pod : &owners->back());
  }
  const auto revision = std::find_if(owners->begin(), owners->end(), [](const Json& owner) {
    return kube::FindString(owner, {"kind"}) == "Revision" &&
           kube::FindString(owner, {"apiVersion"}).starts_with("serving.knative.dev/");
  });
  if (revision != owners->end()) {
    owners->erase(std::next(revision), owners->end());
  }
}

std::string PodGangOf(const Json& pod, const std::vector<Json>& owners) {
  return !owners.empty() && kube::FindString(owners.back(), {"apiVersion"}).starts_with("grove.io/")
             ? std::string(kube::LabelOf(pod, "grove.io/podgang"))
             : "";
}

void AddPodGang(Json gang, std::vector<Json>* owners) {
  if (!owners->empty()) {
    PassDown(owners->back(), &gang);
  }
  owners->push_back(std::move(gang));
}

Json MakePodGroup(const Json& pod, const std::vector<Json>& owners, const GroupPlan& plan,
                  const std::function<bool(const std::string&)>& class_exists) {
  const Json& top = owners.empty() ? pod : owners.back();
  Json spec = {{"queue", QueueOf(top, pod)},
               {"priorityClassName", PriorityOf(pod, owners, plan, class_exists)}};
  if (plan.min_sub_group) {
    spec["minSubGroup"] = *plan.min_sub_group;
  } else {
    spec["minMember"] = plan.min_member;
  }
  if (std::string value = PreemptibilityOf(pod, owners); !value.empty()) {
    spec["preemptibility"] = std::move(value);
  }
  for (const auto& [annotation, field] :
       {std::pair<const char*, const char*>{"kai.scheduler/preemption-delay", "preemptionDelay"},
        {"kai.scheduler/staleness-grace-period", "stalenessGracePeriod"}}) {
    if (const auto value = kube::AnnotationOf(top, annotation); !value.empty()) {
      spec[field] = value;
    }
  }
  Json topology = plan.topology.is_null() ? Json::object() : plan.topology;
  for (const auto& [annotation, field] :
       {std::pair<const char*, const char*>{"kai.scheduler/topology", "topology"},
        {"kai.scheduler/topology-required-placement", "requiredTopologyLevel"},
        {"kai.scheduler/topology-preferred-placement", "preferredTopologyLevel"}}) {
    if (const auto value = kube::AnnotationOf(top, annotation);
        !value.empty() && !topology.contains(field)) {
      topology[field] = value;
    }
  }
  if (!topology.empty()) {
    spec["topologyConstraint"] = std::move(topology);
  }
  if (!plan.sub_groups.empty()) {
    spec["subGroups"] = SubGroupsOf(plan);
  }
  Json labels = LabelsFor(top, pod);
  labels["kai.scheduler/queue"] = spec["queue"];
  Json annotations = AnnotationsFor(top, pod);
  // KAI has one scheduler name per shard; here a PodGroup says whose it is when it is not the usual
  // one.
  const auto scheduler = kube::FindString(pod, {"spec", "schedulerName"});
  if (!scheduler.empty() && scheduler != "kai-scheduler") {
    annotations["sublet.dev/scheduler-name"] = scheduler;
  }
  return {{"apiVersion", "scheduling.run.ai/v2alpha2"},
          {"kind", "PodGroup"},
          {"metadata",
           {{"name", plan.name},
            {"namespace", kube::NamespaceOf(pod)},
            {"labels", std::move(labels)},
            {"annotations", std::move(annotations)},
            {"ownerReferences", Json::array({plan.owner})}}},
          {"spec", std::move(spec)}};
}

}  // namespace sublet::scheduler
