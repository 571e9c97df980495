#include "scheduler/service/what_if.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/object.h"
#include "kube/timestamp.h"
#include "scheduler/convert.h"
#include "scheduler/service/pod_grouper.h"

namespace sublet::scheduler {
namespace {

using kube::Find;
using kube::FindInt;
using kube::FindString;
using kube::Json;

constexpr std::int64_t kPodsMax = 10'000;
constexpr std::size_t kOthersMax = 100;

template <typename T, typename Key>
void Put(std::vector<T>& list, T value, const Key& key) {
  const auto found = std::find_if(list.begin(), list.end(),
                                  [&](const T& each) { return key(each) == key(value); });
  if (found == list.end()) {
    list.push_back(std::move(value));
  } else {
    *found = std::move(value);
  }
}

class Builder {
 public:
  Builder(const WhatIfContext& context, Snapshot& snapshot, Millis now)
      : context_(context), snapshot_(snapshot), now_(now) {}

  Result<void> Add(const Json& object) {
    const std::string kind(FindString(object, {"kind"}));
    if (kind.ends_with("List") && object.contains("items")) {
      for (const Json& item : object["items"]) {
        SUBLET_RETURN_IF_ERROR(Add(item));
      }
      return Ok();
    }
    if (kind == "Queue") {
      Put(snapshot_.queues, QueueFromJson(object), [](const QueueSpec& q) { return q.name; });
    } else if (kind == "PodGroup") {
      Json group = object;
      Identify(group);
      AddGroup(group);
    } else if (kind == "Topology") {
      Put(snapshot_.topologies, TopologyFromJson(object),
          [](const TopologySpec& t) { return t.name; });
    } else if (kind == "Node") {
      NodeSpec node = NodeFromJson(object);
      node.ready = true;
      Put(snapshot_.nodes, std::move(node), [](const NodeSpec& n) { return n.name; });
    } else if (kind == "PriorityClass") {
      classes_[std::string(kube::NameOf(object))] = static_cast<int>(FindInt(object, {"value"}));
    } else if (kind == "Pod") {
      Json pod = object;
      Identify(pod);
      return AddPod(std::move(pod), {});
    } else {
      return AddWorkload(object);
    }
    changed_ = true;
    return Ok();
  }

  const std::vector<std::string>& uids() const { return uids_; }
  bool changed() const { return changed_; }

 private:
  void Identify(Json& object) {
    Json& metadata = object["metadata"];
    if (kube::NamespaceOf(object).empty()) {
      metadata["namespace"] = "default";
    }
    if (kube::NameOf(object).empty()) {
      metadata["name"] = std::string(FindString(object, {"metadata", "generateName"}, "new-")) +
                         std::to_string(next_);
    }
    metadata["uid"] = "what-if-" + std::to_string(next_++);
    metadata["creationTimestamp"] = kube::FormatTime(WallTime(std::chrono::milliseconds(now_)));
  }

  std::optional<int> Priority(const std::string& name) const {
    const auto found = classes_.find(name);
    return found != classes_.end() ? std::optional(found->second)
           : context_.priority     ? context_.priority(name)
                                   : std::nullopt;
  }

  void AddGroup(const Json& group) {
    PodGroupSpec spec =
        PodGroupFromJson(group, [this](const std::string& name) { return Priority(name); });
    if (spec.scheduler_name.empty()) {
      spec.scheduler_name = "kai-scheduler";
    }
    Put(snapshot_.groups, std::move(spec), [](const PodGroupSpec& g) { return g.Key(); });
  }

  const Profile* ProfileOf(const std::string& scheduler) const {
    for (const Profile& profile : context_.profiles) {
      if (std::find(profile.scheduler_names.begin(), profile.scheduler_names.end(), scheduler) !=
          profile.scheduler_names.end()) {
        return &profile;
      }
    }
    return nullptr;
  }

  Result<void> AddPod(Json pod, const std::vector<Json>& owners) {
    if (static_cast<std::int64_t>(uids_.size()) >= kPodsMax) {
      return BadRequest("the manifest makes more than " + std::to_string(kPodsMax) + " pods");
    }
    const std::string scheduler(FindString(pod, {"spec", "schedulerName"}, "default-scheduler"));
    const Profile* profile = ProfileOf(scheduler);
    if (const auto priority = Priority(std::string(FindString(pod, {"spec", "priorityClassName"})));
        priority) {
      pod["spec"]["priority"] = *priority;
    }
    if (profile != nullptr && !profile->kube && kube::AnnotationOf(pod, "pod-group-name").empty()) {
      std::vector<Json> settled = owners;
      SettleOwners(&pod, &settled);
      const GroupPlan plan = PlanGroup(pod, settled, profile->name != "kai-0.17");
      if (!plan.problem.empty()) {
        return BadRequest(plan.problem);
      }
      Json group = MakePodGroup(pod, settled, plan);
      group["metadata"]["uid"] = plan.name;
      group["metadata"]["creationTimestamp"] = pod["metadata"]["creationTimestamp"];
      pod["metadata"]["annotations"]["pod-group-name"] = plan.name;
      if (!plan.sub_group.empty()) {
        pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] = plan.sub_group;
      }
      if (groups_.insert(std::string(kube::NamespaceOf(group)) + "/" + plan.name).second) {
        PodGroupSpec spec =
            PodGroupFromJson(group, [this](const std::string& name) { return Priority(name); });
        spec.scheduler_name = scheduler;
        Put(snapshot_.groups, std::move(spec), [](const PodGroupSpec& g) { return g.Key(); });
      }
    }
    PodSpec spec = PodFromJson(pod);
    spec.scheduler_name = scheduler;
    uids_.push_back(spec.uid);
    snapshot_.pods.push_back(std::move(spec));
    changed_ = true;
    return Ok();
  }

  // `count` pods of `pod_template` below the owner chain `owners`, nearest first.
  Result<void> AddReplicas(const Json& pod_template, std::int64_t count,
                           const std::vector<Json>& owners) {
    if (count > kPodsMax) {
      return BadRequest("the manifest makes more than " + std::to_string(kPodsMax) + " pods");
    }
    for (std::int64_t i = 0; i < count; ++i) {
      Json pod = pod_template;
      pod["apiVersion"] = "v1";
      pod["kind"] = "Pod";
      pod["metadata"]["name"] = std::string(kube::NameOf(owners.front())) + "-" + std::to_string(i);
      pod["metadata"]["namespace"] = kube::NamespaceOf(owners.front());
      Identify(pod);
      SUBLET_RETURN_IF_ERROR(AddPod(std::move(pod), owners));
    }
    return Ok();
  }

  Result<void> AddWorkload(const Json& object) {
    Json owner = object;
    Identify(owner);
    if (const Json* job = Find(owner, {"spec", "jobTemplate", "spec"});
        job != nullptr) {  // CronJob
      Json made = {{"apiVersion", "batch/v1"},
                   {"kind", "Job"},
                   {"metadata",
                    {{"name", std::string(kube::NameOf(owner)) + "-1"},
                     {"namespace", kube::NamespaceOf(owner)}}},
                   {"spec", *job}};
      Identify(made);
      return Expand(made, {made, owner});
    }
    if (const Json* jobs = Find(owner, {"spec", "replicatedJobs"});
        jobs != nullptr && jobs->is_array()) {  // JobSet
      for (const Json& job : *jobs) {
        const Json* spec = Find(job, {"template", "spec"});
        const Json* pods = spec == nullptr ? nullptr : Find(*spec, {"template"});
        if (pods == nullptr) {
          continue;
        }
        Json labelled = *pods;
        labelled["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] =
            FindString(job, {"name"});
        SUBLET_RETURN_IF_ERROR(AddReplicas(
            labelled, FindInt(job, {"replicas"}, 1) * FindInt(*spec, {"parallelism"}, 1), {owner}));
      }
      return Ok();
    }
    for (const char* specs : {"pytorchReplicaSpecs", "tfReplicaSpecs", "xgbReplicaSpecs",
                              "jaxReplicaSpecs", "mpiReplicaSpecs"}) {
      if (const Json* replicas = Find(owner, {"spec", specs});
          replicas != nullptr && replicas->is_object()) {
        for (const auto& [name, spec] : replicas->items()) {
          Json pods = spec.value("template", Json::object());
          std::string role = name;
          std::transform(role.begin(), role.end(), role.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
          pods["metadata"]["labels"]["training.kubeflow.org/replica-type"] = role;
          SUBLET_RETURN_IF_ERROR(AddReplicas(pods, FindInt(spec, {"replicas"}, 1), {owner}));
        }
        return Ok();
      }
    }
    if (Find(owner, {"spec", "template", "spec"}) !=
        nullptr) {  // what has none makes no pods that we know
      return Expand(owner, {owner});
    }
    return Ok();
  }

  Result<void> Expand(const Json& maker, const std::vector<Json>& owners) {
    const std::int64_t count = FindString(maker, {"kind"}) == "Job"
                                   ? std::min(FindInt(maker, {"spec", "parallelism"}, 1),
                                              FindInt(maker, {"spec", "completions"}, kPodsMax))
                                   : FindInt(maker, {"spec", "replicas"}, 1);
    return AddReplicas(maker["spec"]["template"], count, owners);
  }

  const WhatIfContext& context_;
  Snapshot& snapshot_;
  const Millis now_;
  int next_ = 0;
  bool changed_ = false;
  std::map<std::string, int> classes_;
  std::set<std::string> groups_;
  std::vector<std::string> uids_;
};

Json PlaceJson(const SimulatedPlace& place) {
  Json out = {{"namespace", place.ns}, {"name", place.name}};
  if (!place.node.empty()) {
    out["node"] = place.node;
    if (!place.devices.empty()) {
      out["devices"] = place.devices;
    }
  } else {
    out["why"] = place.message;
  }
  return out;
}

}  // namespace

Result<Json> WhatIf(const WhatIfContext& context, Snapshot snapshot,
                    const std::vector<Json>& objects, Millis now) {
  Builder builder(context, snapshot, now);
  for (const Json& object : objects) {
    SUBLET_RETURN_IF_ERROR(builder.Add(object));
  }
  if (!builder.changed()) {
    return BadRequest(
        "the manifest holds nothing that makes pods or changes queues, groups, topologies or "
        "nodes");
  }
  Simulation simulation(context.profiles, snapshot);
  SimulationResult result = simulation.Settle(now);
  const std::set<std::string> own(builder.uids().begin(), builder.uids().end());
  Json out = {{"pods", Json::array()},
              {"evicted", Json::array()},
              {"others", Json::array()},
              {"cycles", result.cycles},
              {"settled", result.settled}};
  std::set<std::string> told;
  for (const auto* list : {&result.placed, &result.waiting}) {
    for (const SimulatedPlace& place : *list) {
      const bool mine = own.contains(place.uid);
      if (mine || (!place.node.empty() && out["others"].size() < kOthersMax)) {
        told.insert(place.uid);
        out[mine ? "pods" : "others"].push_back(PlaceJson(place));
      }
    }
  }
  for (const std::string& uid : builder.uids()) {
    if (const auto pod = simulation.engine().ExportPod(uid); pod && !told.contains(uid)) {
      const auto explained = simulation.engine().Explain(uid, now);
      out["pods"].push_back(PlaceJson(
          {uid, pod->ns, pod->name, pod->node, {}, explained ? explained->dominant : ""}));
    }
  }
  for (const SimulatedEviction& eviction : result.evicted) {
    out["evicted"].push_back({{"namespace", eviction.ns},
                              {"name", eviction.name},
                              {"node", eviction.node},
                              {"action", eviction.action},
                              {"message", eviction.message},
                              {"backOn", eviction.back_on}});
  }
  return out;
}

}  // namespace sublet::scheduler
