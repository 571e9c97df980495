// The objects of an engine as values again (scheduler/engine.h).
#include <functional>

#include "scheduler/engine.h"

namespace sublet::scheduler {

namespace {

SubGroupSpec TreeOf(const Job& job, int index) {
  const SubGroup& group = job.groups[static_cast<std::size_t>(index)];
  SubGroupSpec spec;
  spec.name = group.name;
  spec.topology = group.topology;
  spec.min_sub_group = group.min_sub_group;
  for (int set : group.pod_sets) {
    const PodSet& pods = job.pod_sets[static_cast<std::size_t>(set)];
    spec.pod_sets.push_back({pods.name, pods.min_available, pods.topology});
  }
  for (int child : group.groups) {
    spec.groups.push_back(TreeOf(job, child));
  }
  return spec;
}

Phase PhaseOf(Status status) {
  switch (status) {
    case Status::kGated: return Phase::kGated;
    case Status::kAllocated:
    case Status::kBinding: return Phase::kBinding;
    case Status::kBound: return Phase::kBound;
    case Status::kRunning: return Phase::kRunning;
    case Status::kReleasing: return Phase::kReleasing;
    case Status::kSucceeded: return Phase::kSucceeded;
    case Status::kFailed: return Phase::kFailed;
    case Status::kUnknown: return Phase::kUnknown;
    default: return Phase::kPending;
  }
}

PodSpec PodOf(const State& state, const Task& task) {
  PodSpec spec;
  spec.uid = task.uid;
  spec.ns = task.ns;
  spec.name = task.name;
  spec.scheduler_name = task.scheduler_name;
  spec.group = task.group_key;
  spec.sub_group = task.sub_group;
  spec.phase = PhaseOf(task.status);
  const bool holds = ActiveUsed(task.status) && task.status != Status::kPipelined;
  if (holds && task.node != kNone) {
    spec.node = state.nodes[static_cast<std::size_t>(task.node)].spec.name;
    for (int group : task.groups) {
      spec.gpu_groups.push_back(state.group_names.Name(group));
    }
    spec.gpu_devices = task.devices;
  }
  spec.nominated_node = task.nominated_node;
  spec.request = task.shape->request;
  spec.constraints = task.shape->constraints;
  spec.labels = *task.labels;
  spec.claims = task.claims;
  spec.attachments = task.attachments;
  spec.task_priority = task.order_priority;
  spec.role_rank = task.role_rank;
  spec.priority = task.priority;
  spec.never_preempts = task.never_preempts;
  spec.legacy_mig = task.legacy_mig;
  spec.unschedulable_reason = task.unschedulable_reason;
  spec.created = task.created;
  spec.deleted = task.deleted;
  return spec;
}

}  // namespace

Snapshot Engine::Export() const {
  Snapshot out;
  for (std::size_t i = 0; i < state_.nodes.size(); ++i) {
    if (state_.hot[i].present) {
      out.nodes.push_back(state_.nodes[i].spec);
    }
  }
  for (const Queue& queue : state_.queues) {
    if (queue.present) {
      out.queues.push_back(queue.spec);
    }
  }
  for (const auto& job : state_.jobs) {
    if (job == nullptr || !job->from_spec) {
      continue;
    }
    PodGroupSpec spec;
    spec.ns = job->ns;
    spec.name = job->name;
    spec.uid = job->uid;
    spec.queue = job->queue_name;
    spec.scheduler_name = job->scheduler_name;
    spec.priority = job->priority;
    spec.preemptibility = job->preemptibility;
    spec.root = TreeOf(*job, 0);
    spec.created = job->created;
    spec.last_start = job->last_start;
    spec.stale_since = job->stale_since;
    spec.last_eviction = job->last_eviction;
    spec.preemption_delay = job->preemption_delay;
    spec.staleness_grace = job->staleness_grace;
    spec.scheduling_backoff = job->scheduling_backoff;
    out.groups.push_back(std::move(spec));
  }
  for (const auto& task : state_.tasks) {
    if (task != nullptr) {
      out.pods.push_back(PodOf(state_, *task));
    }
  }
  const auto values = [](const auto& map, auto* list) {
    for (const auto& [key, value] : map) {
      list->push_back(value);
    }
  };
  values(state_.topologies, &out.topologies);
  values(state_.claims, &out.claims);
  values(state_.slices, &out.slices);
  values(state_.budgets, &out.budgets);
  values(state_.namespaces, &out.namespaces);
  return out;
}

std::optional<PodSpec> Engine::ExportPod(const std::string& uid) const {
  const TaskId id = state_.FindTask(uid);
  return id == kNone ? std::nullopt : std::optional(PodOf(state_, state_.task(id)));
}

}  // namespace sublet::scheduler
