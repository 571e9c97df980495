#include "scheduler/case_loader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sublet::scheduler {

using kube::Json;

namespace {

constexpr const char* kSchedulerName = "case";

std::string StringAt(const Json& object, const char* key) {
  return object.contains(key) && object.at(key).is_string() ? object.at(key).get<std::string>()
                                                            : "";
}

std::optional<Millis> SecondsAt(const Json& object, const char* key) {
  if (!object.contains(key) || !object.at(key).is_number()) {
    return std::nullopt;
  }
  constexpr double kLongest = 1e10;  // seconds, three hundred years
  return static_cast<Millis>(std::clamp(object.at(key).get<double>(), -kLongest, kLongest) * 1000);
}

Labels LabelsFrom(const Json& object) {
  Labels labels;
  for (const auto& [key, value] : object.items()) {  // sorted: nlohmann keeps objects as std::map
    labels.emplace_back(key, value.get<std::string>());
  }
  return labels;
}

Status StatusFrom(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Status::kUnknown); ++i) {
    if (name == StatusName(static_cast<Status>(i))) {
      return static_cast<Status>(i);
    }
  }
  return Status::kUnknown;
}

Phase PhaseFrom(Status status) {
  switch (status) {
    case Status::kPending: return Phase::kPending;
    case Status::kGated: return Phase::kGated;
    case Status::kPipelined: return Phase::kPromised;
    case Status::kAllocated:
    case Status::kBinding: return Phase::kBinding;
    case Status::kBound: return Phase::kBound;
    case Status::kRunning: return Phase::kRunning;
    case Status::kReleasing: return Phase::kReleasing;
    case Status::kSucceeded: return Phase::kSucceeded;
    case Status::kFailed: return Phase::kFailed;
    case Status::kUnknown: return Phase::kUnknown;
  }
  return Phase::kUnknown;
}

std::optional<TopologyConstraint> ConstraintFrom(const Json& object) {
  if (!object.contains("topology") || !object.at("topology").is_object()) {
    return std::nullopt;
  }
  const Json& constraint = object.at("topology");
  return TopologyConstraint{StringAt(constraint, "topology"), StringAt(constraint, "required"),
                            StringAt(constraint, "preferred")};
}

SubGroupSpec TreeFrom(const Json& object) {
  SubGroupSpec spec;
  spec.name = StringAt(object, "name");
  spec.topology = ConstraintFrom(object);
  if (object.contains("minSubGroup") && object.at("minSubGroup").is_number()) {
    spec.min_sub_group = object.at("minSubGroup").get<int>();
  }
  for (const Json& set : object.at("podSets")) {
    spec.pod_sets.push_back(
        {StringAt(set, "name"), set.at("minAvailable").get<int>(), ConstraintFrom(set)});
  }
  for (const Json& group : object.at("groups")) {
    spec.groups.push_back(TreeFrom(group));
  }
  return spec;
}

QueueQuota QuotaFrom(const Json& queue, const char* resource) {
  return {queue.at("deserved").at(resource).get<double>(),
          queue.at("limit").at(resource).get<double>(),
          queue.at("weight").at(resource).get<double>()};
}

PodAffinityTerm TermFrom(const Json& object, const std::string& ns) {
  PodAffinityTerm term;
  term.topology_key = StringAt(object, "topologyKey");
  for (const auto& [key, value] : object.at("matchLabels").items()) {
    term.selector.push_back({key, SelectorOperator::kIn, {value.get<std::string>()}});
  }
  term.namespaces = {ns};
  return term;
}

}  // namespace

std::map<std::string, TaskRow> LoadTasks(const Json& test) {
  std::map<std::string, TaskRow> rows;
  for (const Json& job : test.at("jobs")) {
    for (const Json& task : job.at("tasks")) {
      TaskRow row;
      row.status = StatusFrom(StringAt(task, "state"));
      row.node = StringAt(task, "node");
      for (const Json& group : task.at("gpuGroups")) {
        row.groups.push_back(group.get<std::string>());
      }
      rows[StringAt(task, "name")] = std::move(row);
    }
  }
  return rows;
}

std::map<std::string, ClaimSpec> LoadClaims(const Json& test) {
  std::map<std::string, ClaimSpec> claims;
  if (!test.contains("dra") || !test.at("dra").is_object()) {
    return claims;
  }
  for (const Json& object : test.at("dra").at("claims")) {
    ClaimSpec claim;
    claim.ns = StringAt(object, "namespace");
    claim.name = StringAt(object, "name");
    claim.requests.push_back(
        {"", StringAt(object, "deviceClass"), object.at("count").get<std::int64_t>(), false, {}});
    if (object.contains("labels") && object.at("labels").is_object()) {
      claim.queue_label = StringAt(object.at("labels"), "kai.scheduler/queue");
    }
    for (const Json& device : object.at("allocated")) {
      claim.allocated.push_back(
          {StringAt(device, "driver"), StringAt(device, "pool"), StringAt(device, "device")});
    }
    for (const Json& consumer : object.at("reservedFor")) {
      claim.reserved_for.push_back(StringAt(consumer, "name"));
    }
    claim.reserved_for_others = object.value("reservedForOthers", 0);
    claims[claim.Key()] = std::move(claim);
  }
  return claims;
}

Profile ProfileOf(const Json& test, const Profile& base) {
  Profile profile = base;
  profile.scheduler_names = {kSchedulerName};
  profile.stale_grace = test.at("staleGraceSeconds").get<Millis>() * 1000;
  profile.max_consolidation_victims = -1;
  profile.signatures = false;
  if (!test.contains("conf") || !test.at("conf").is_object()) {
    return profile;
  }
  const Json& conf = test.at("conf");
  const auto strategy = [](const std::string& name) {
    return name == "spread"                      ? PlacementOrder::kSpread
           : name == "binpack" || name == "pack" ? PlacementOrder::kBinpack
                                                 : PlacementOrder::kAny;
  };
  const Json& placement = conf.at("nodePlacement");
  profile.gpu = strategy(placement.is_object() ? StringAt(placement, "gpu") : "");
  profile.cpu = strategy(placement.is_object() ? StringAt(placement, "cpu") : "");
  profile.devices = strategy(StringAt(conf, "gpuDevices"));
  const auto active = [&](const char* name) {
    return std::any_of(conf.at("plugins").begin(), conf.at("plugins").end(),
                       [&](const Json& plugin) { return StringAt(plugin, "name") == name; });
  };
  profile.score_sharing = active("gpusharingorder");
  profile.score_availability = active("nodeavailability");
  profile.score_resource_type = active("resourcetype");
  return profile;
}

NodeSpec LoadNode(const Json& object) {
  NodeSpec node;
  node.name = StringAt(object, "name");
  node.labels = LabelsFrom(object.at("labels"));
  node.cpu = object.at("cpuMillis").get<std::int64_t>();
  node.memory = object.at("memoryBytes").get<std::int64_t>();
  node.pods = object.at("maxPods").get<std::int64_t>();
  node.gpus = object.at("gpus").get<std::int64_t>();
  node.dra_gpus = object.value("draGpus", std::int64_t{0});
  for (const auto& [name, count] : object.at("migInstances").items()) {
    node.scalars.emplace_back(name, count.get<std::int64_t>());
  }
  return node;
}

PodGroupSpec LoadGroup(const Json& job, bool started) {
  PodGroupSpec group;
  group.ns = StringAt(job, "namespace");
  group.name = StringAt(job, "name");
  group.uid = group.name;
  group.queue = StringAt(job, "queue");
  group.scheduler_name = kSchedulerName;
  group.priority = job.at("priority").get<int>();
  group.preemptibility = StringAt(job, "preemptibility");
  if (group.preemptibility.empty()) {
    group.preemptibility = job.at("preemptible").get<bool>() ? "preemptible" : "non-preemptible";
  }
  group.root = TreeFrom(job.at("subGroupTree"));
  group.created =
      kCaseNow - static_cast<Millis>(job.at("createdMinutesAgo").get<double>() * 60'000);
  group.last_start = started ? kCaseNow - 60'000 : 0;
  if (job.contains("staleSeconds") && job.at("staleSeconds").is_number()) {
    group.stale_since = kCaseNow - static_cast<Millis>(job.at("staleSeconds").get<double>() * 1000);
  }
  group.preemption_delay = SecondsAt(job, "preemptionDelaySeconds");
  group.staleness_grace = SecondsAt(job, "staleGraceSeconds");
  return group;
}

PodSpec LoadPod(const Json& job, const Json& task, const TaskRow& row) {
  PodSpec pod;
  pod.ns = StringAt(job, "namespace");
  pod.name = StringAt(task, "name");
  pod.uid = pod.name;
  pod.scheduler_name = kSchedulerName;
  pod.group = pod.ns + "/" + StringAt(job, "name");
  pod.sub_group = StringAt(task, "subGroup");
  pod.phase = PhaseFrom(row.status);
  pod.node = row.node;
  pod.gpu_groups = row.groups;
  pod.request.cpu = task.at("cpuMillis").get<std::int64_t>();
  pod.request.memory = task.at("memoryBytes").get<std::int64_t>();
  const double gpus = task.at("gpus").get<double>();
  const auto devices = task.at("fractionDevices").get<std::int64_t>();
  pod.request.gpu_memory_mib = task.at("gpuMemoryMiB").get<std::int64_t>();
  if (task.contains("mig") && task.at("mig").is_object() && !task.at("mig").empty()) {
    pod.request.gpu = GpuKind::kMig;
    for (const auto& [name, count] : task.at("mig").items()) {
      pod.request.scalars.emplace_back(name, count.get<std::int64_t>());
    }
  } else if (pod.request.gpu_memory_mib > 0) {
    pod.request.gpu = GpuKind::kMemory;
    pod.request.gpu_count = std::max<std::int64_t>(devices, 1);
  } else if (devices > 0 && gpus > 0) {
    pod.request.gpu = GpuKind::kFraction;
    pod.request.portion = gpus;
    pod.request.gpu_count = devices;
  } else {
    pod.request.gpu_count = static_cast<std::int64_t>(gpus);
  }
  if (task.contains("priority") && task.at("priority").is_number()) {
    pod.task_priority = task.at("priority").get<int>();
  }
  pod.legacy_mig = task.value("legacyMig", false);
  if (task.contains("labels") && task.at("labels").is_object()) {
    pod.labels = LabelsFrom(task.at("labels"));
  }
  if (task.contains("resourceClaims")) {
    pod.claims = task.at("resourceClaims").get<std::vector<std::string>>();
  }
  if (task.contains("nodeAffinity") && task.at("nodeAffinity").is_object()) {
    const Json& affinity = task.at("nodeAffinity");
    pod.constraints.has_affinity = true;
    pod.constraints.required.push_back({{{StringAt(affinity, "label"), SelectorOperator::kIn,
                                          affinity.at("in").get<std::vector<std::string>>()}},
                                        {}});
  }
  const auto terms = [&](const char* key, std::vector<PodAffinityTerm>* out) {
    if (task.contains(key) && task.at(key).is_object()) {
      out->push_back(TermFrom(task.at(key), pod.ns));
    }
  };
  terms("podAffinity", &pod.constraints.affinity);
  terms("podAntiAffinity", &pod.constraints.anti_affinity);
  return pod;
}

void LoadCluster(const Json& test, const Profile& profile,
                 const std::map<std::string, TaskRow>& rows,
                 const std::map<std::string, ClaimSpec>& claims, Engine* engine) {
  (void)profile;
  for (const Json& object : test.at("queues")) {
    QueueSpec queue;
    queue.name = StringAt(object, "name");
    queue.parent = StringAt(object, "parent");
    queue.priority = object.at("priority").get<int>();
    queue.created = object.at("createdOrder").get<Millis>();
    queue.cpu = QuotaFrom(object, "cpu");
    queue.memory = QuotaFrom(object, "memory");
    queue.gpu = QuotaFrom(object, "gpu");
    queue.preempt_min_runtime = SecondsAt(object, "preemptMinRuntimeSeconds");
    queue.reclaim_min_runtime = SecondsAt(object, "reclaimMinRuntimeSeconds");
    engine->Apply(queue);
  }
  for (const Json& object : test.at("topologies")) {
    engine->Apply(TopologySpec{StringAt(object, "name"),
                               object.at("levels").get<std::vector<std::string>>()});
  }
  for (const Json& object : test.at("nodes")) {
    engine->Apply(LoadNode(object));
  }
  if (test.contains("dra") && test.at("dra").is_object()) {
    for (const Json& object : test.at("dra").at("slices")) {
      DeviceSlice slice;
      slice.name = StringAt(object, "name");
      slice.driver = StringAt(object, "driver");
      slice.pool = StringAt(object, "pool");
      slice.node = StringAt(object, "node");
      for (const Json& device : object.at("devices")) {
        slice.devices.push_back({device.get<std::string>(), {}, {}, true});
      }
      engine->Apply(slice);
    }
  }
  for (const auto& [key, claim] : claims) {
    engine->Apply(claim);
  }
  for (const Json& job : test.at("jobs")) {
    const bool started = std::any_of(
        job.at("tasks").begin(), job.at("tasks").end(),
        [&](const Json& task) { return CountsForQuota(rows.at(StringAt(task, "name")).status); });
    engine->Apply(LoadGroup(job, started));
    for (const Json& task : job.at("tasks")) {
      engine->Apply(LoadPod(job, task, rows.at(StringAt(task, "name"))));
    }
  }
}

}  // namespace sublet::scheduler
