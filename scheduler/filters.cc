#include "scheduler/filters.h"

#include <algorithm>

#include "scheduler/claims.h"
#include "scheduler/messages.h"
#include "scheduler/pod_filters.h"

namespace sublet::scheduler {

std::int64_t DeviceMemory(const Node& node, const Shape& shape) {
  return shape.request.gpu == GpuKind::kMemory
             ? shape.request.gpu_memory_mib
             : static_cast<std::int64_t>(shape.request.portion *
                                         static_cast<double>(node.gpu_memory));
}

bool FitsGroup(const Node& node, const Shape& shape, const GpuGroup& group) {
  return group.active + group.pipelined > 0 &&
         node.gpu_memory - group.active - group.pipelined - DeviceMemory(node, shape) >= 0;
}

namespace {

bool FitsAmounts(const State& state, const Task& task, NodeId id, bool later) {
  const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
  const Shape& shape = *task.shape;
  const auto free = [&](int dim) { return hot.idle[dim] + (later ? hot.releasing[dim] : 0); };
  if (shape.tracked[kCpu] > free(kCpu) || shape.tracked[kMemory] > free(kMemory) ||
      shape.tracked[kPods] > free(kPods)) {
    return false;
  }
  if (!shape.shared && shape.tracked[kGpu] + state.Dra(task) > free(kGpu)) {
    return false;
  }
  const Node& node = state.nodes[static_cast<std::size_t>(id)];
  for (const Scalar& scalar : shape.scalars) {
    const NodeScalar* have = node.FindScalar(scalar.name);
    if (have == nullptr || scalar.amount > have->idle + (later ? have->releasing : 0)) {
      return false;
    }
  }
  if (!shape.shared) {
    return true;
  }
  if (shape.request.gpu == GpuKind::kMemory && shape.request.gpu_memory_mib > node.gpu_memory) {
    return false;
  }
  std::int64_t devices = std::max<std::int64_t>(free(kGpu), 0) / kDevice;
  for (const GpuGroup& group : node.groups) {
    devices += FitsGroup(node, shape, group) ? 1 : 0;
  }
  return devices >= shape.request.gpu_count;
}

}  // namespace

bool FitsNow(const State& state, const Task& task, NodeId node) {
  return (task.shape->best_effort && state.Dra(task) == 0) || FitsAmounts(state, task, node, false);
}
bool FitsLater(const State& state, const Task& task, NodeId node) {
  return FitsAmounts(state, task, node, true);
}

DeviceChoice ChooseGroups(Session& session, const Task& task, NodeId id, bool pipeline_only) {
  State& state = session.state;
  const Node& node = state.nodes[static_cast<std::size_t>(id)];
  const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
  struct Candidate {
    double score;
    const GpuGroup* group;  // nullptr: a whole device
  };
  const PlacementOrder order = session.profile.devices;
  std::vector<Candidate> candidates;
  for (const GpuGroup& group : node.groups) {
    if (FitsGroup(node, *task.shape, group)) {
      const double used = static_cast<double>(group.Used()) / static_cast<double>(node.gpu_memory);
      candidates.push_back({order == PlacementOrder::kBinpack  ? used
                            : order == PlacementOrder::kSpread ? 1 - used
                                                               : 0,
                            &group});
    }
  }
  const std::int64_t whole = hot.idle[kGpu] / kDevice + hot.releasing[kGpu] / kDevice;
  for (std::int64_t i = 0; i < std::min(whole, task.shape->request.gpu_count); ++i) {
    candidates.push_back({order == PlacementOrder::kSpread ? 1.0 : 0.0, nullptr});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.score > b.score; });
  DeviceChoice choice;
  const bool now = FitsNow(state, task, id);
  int fresh = 0;
  for (const Candidate& candidate : candidates) {
    if (static_cast<std::int64_t>(choice.groups.size()) == task.shape->request.gpu_count) {
      break;
    }
    if (candidate.group == nullptr) {
      choice.groups.push_back(state.group_names.Intern(state.NewGroupName(node, task, fresh++)));
      choice.new_group = true;
      choice.later = choice.later || pipeline_only || !now;
      continue;
    }
    const GpuGroup& group = *candidate.group;
    const bool idle = group.Allocated() > 0 &&
                      node.gpu_memory - group.Allocated() - DeviceMemory(node, *task.shape) >= 0;
    choice.later = choice.later || !idle || !now;
    choice.groups.push_back(group.name);
  }
  if (static_cast<std::int64_t>(choice.groups.size()) < task.shape->request.gpu_count) {
    return {};
  }
  return choice;
}

namespace {

std::string CapacityReason(Session& session, const Task& task, const Node& node) {
  State& state = session.state;
  const Job& job = state.job(task.job);
  const Shape& shape = *task.shape;
  Amounts request{static_cast<double>(shape.request.cpu), static_cast<double>(shape.request.memory),
                  0};
  if (shape.mig_slices > 0) {
    request[kGpu] = static_cast<double>(shape.mig_slices);
  } else if (shape.shared) {
    request[kGpu] = static_cast<double>(MemoryShare(DeviceMemory(node, shape), node.gpu_memory)) /
                    static_cast<double>(kDevice);
    if (!session.profile.pinned_min_memory) {
      request[kGpu] *=
          static_cast<double>(shape.request.gpu_count);  // before 0.16.2 one device was counted
    }
  } else if (shape.request.gpu_count > 0) {
    // Before 0.16.2 KAI checks one device here; the job's check has counted them all.
    request[kGpu] =
        session.profile.pinned_min_memory ? 1 : static_cast<double>(shape.request.gpu_count);
  }
  std::string reason;
  const std::string* model =
      state.model_limits ? FindLabel(node.spec.labels, "nvidia.com/gpu.product") : nullptr;
  state.EachQueueUp(job.queue, [&](QueueId, Queue& queue) {
    if (!reason.empty()) {
      return;
    }
    if (const int over = OverLimit(queue.share, request); over >= 0) {
      reason = "node does not have enough capacity. Reason: OverLimit, Details: " +
               LimitMessage(queue.share, over, request[over]);
    } else if (const int beyond =
                   job.preemptible ? -1 : NonPreemptibleOverQuota(queue.share, request);
               beyond >= 0) {
      reason = "node does not have enough capacity. Reason: NonPreemptibleOverQuota, Details: " +
               QuotaMessage(queue.share, beyond, request);
    } else if (model != nullptr) {
      for (const auto& [name, limit] : queue.spec.model_limits) {
        auto it = queue.by_model.find(name);
        const double used = it == queue.by_model.end()
                                ? 0
                                : static_cast<double>(it->second) / static_cast<double>(kDevice);
        const double asked =
            static_cast<double>(state.AcceptedOn(task, node)[kGpu]) / static_cast<double>(kDevice);
        if (name == *model && asked > 0 && used + asked > limit) {
          reason = "queue " + queue.spec.name + " has reached its limit of " + name + " GPUs";
        }
      }
    }
  });
  return reason;
}

std::string MigReason(const State& state, const Task& task, const Node& node) {
  const Shape& shape = *task.shape;
  if (task.legacy_mig) {
    return "Legacy MIG jobs cannot be scheduled on node " + node.spec.name;
  }
  const bool mig_request = shape.request.gpu == GpuKind::kMig;
  if (shape.gpus == 0 && state.Dra(task) == 0 && !shape.shared && !mig_request) {
    return "";
  }
  if (shape.gpus > 0 && node.spec.dra_gpus > 0) {
    return "device-plugin GPU requests cannot be scheduled on DRA-only node " + node.spec.name;
  }
  if (!node.mig) {
    return mig_request ? "MIG job cannot be scheduled on non-MIG node" : "";
  }
  if (mig_request && node.legacy_mig > 0) {
    return "MIG job cannot be scheduled on node with legacy MIG jobs";
  }
  if (node.mig_single && (shape.shared || mig_request)) {
    return "only whole gpu jobs can run on a node with MigStrategy='single'";
  }
  if (node.mig_mixed && !mig_request) {
    return "non MIG jobs cant run on a node with MigStrategy='mixed'";
  }
  return "";
}

std::string PodSlotReason(Session& session, const Task& task, NodeId id) {
  const NodeHot& hot = session.state.hot[static_cast<std::size_t>(id)];
  const std::int64_t pods = hot.idle[kPods] + hot.releasing[kPods];
  if (!task.shape->shared) {
    return pods > 0 ? "" : "node(s) pod number exceeded";
  }
  // KAI's reservation pod takes a slot of its own on every newly shared device.
  DeviceChoice choice = ChooseGroups(session, task, id, false);
  if (choice.groups.empty() || choice.later) {
    choice = ChooseGroups(session, task, id, true);
  }
  return (choice.new_group || choice.groups.empty()) && pods < 2 ? "node(s) pod number exceeded"
                                                                 : "";
}

}  // namespace

bool TermMatches(const NodeTerm& term, const NodeSpec& node) {
  if (term.labels.empty() && term.fields.empty()) {
    return false;  // an empty term matches no node
  }
  return Matches(term.labels, node.labels) &&
         Matches(term.fields, Labels{{"metadata.name", node.name}});
}

bool NodeAffinityMatches(const Shape& shape, const NodeSpec& node) {
  const Constraints& constraints = shape.constraints;
  for (const auto& [key, value] : constraints.node_selector) {
    const std::string* have = FindLabel(node.labels, key);
    if (have == nullptr || *have != value) {
      return false;
    }
  }
  return !constraints.has_affinity ||
         std::any_of(constraints.required.begin(), constraints.required.end(),
                     [&](const NodeTerm& term) { return TermMatches(term, node); });
}

bool Tolerates(const std::vector<Toleration>& tolerations, const Taint& taint) {
  return std::any_of(tolerations.begin(), tolerations.end(), [&](const Toleration& t) {
    return (t.effect.empty() || t.effect == taint.effect) &&
           (t.key == taint.key || (t.key.empty() && t.exists)) &&
           (t.exists || t.value == taint.value);
  });
}

std::string Filter(Session& session, const Task& task, NodeId id) {
  State& state = session.state;
  const Node& node = state.nodes[static_cast<std::size_t>(id)];
  const Shape& shape = *task.shape;
  const bool kube = session.profile.kube;
  if (!kube) {
    if (std::string reason = CapacityReason(session, task, node); !reason.empty()) {
      return reason;
    }
  }
  if (std::string reason = MigReason(state, task, node); !reason.empty()) {
    return reason;
  }
  if (shape.request.gpu == GpuKind::kMemory && !node.gpu_memory_synced) {
    return "node is not a gpu node or the gpu memory count on the node was not synced yet, task: "
           "<" +
           task.ns + "/" + task.name + ">, node: <" + node.spec.name + ">";
  }
  if (!kube) {
    if (std::string reason = PodSlotReason(session, task, id); !reason.empty()) {
      return reason;
    }
  }
  static const Taint kUnschedulable{"node.kubernetes.io/unschedulable", "", "NoSchedule"};
  if (node.spec.unschedulable && !Tolerates(shape.constraints.tolerations, kUnschedulable)) {
    return "node(s) were unschedulable";
  }
  if (!node.spec.ready) {
    return "node(s) were not ready";
  }
  if (shape.node_constraints) {
    if (!NodeAffinityMatches(shape, node.spec)) {
      return "node(s) didn't match Pod's node affinity/selector";
    }
    for (const auto& volume : shape.constraints.volumes) {
      if (std::none_of(volume.begin(), volume.end(),
                       [&](const NodeTerm& term) { return TermMatches(term, node.spec); })) {
        return "node(s) had volume node affinity conflict";
      }
    }
  }
  for (const Taint& taint : node.spec.taints) {
    if (taint.effect != "PreferNoSchedule" && !Tolerates(shape.constraints.tolerations, taint)) {
      return "node(s) had untolerated taint {" + taint.key + ": " + taint.value + "}";
    }
  }
  if (!task.claims.empty()) {
    if (std::string reason = ClaimsFit(state, task, id); !reason.empty()) {
      return reason;
    }
  }
  return FilterByPods(session, task, id);
}

std::string PreFilter(Session& session, const Task& task) {
  if (!task.unschedulable_reason.empty()) {
    return task.unschedulable_reason;
  }
  if (!task.claims.empty()) {
    const std::string& queue =
        task.job == kNone ? task.name : session.state.job(task.job).queue_name;
    if (std::string reason = CheckClaims(session.state, task, queue, session.profile.kube);
        !reason.empty()) {
      return reason;
    }
  }
  return "";
}

}  // namespace sublet::scheduler
