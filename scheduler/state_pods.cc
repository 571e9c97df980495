// Pods in the state: from event to task, and what is kept of our own decisions while the API has
// not caught up with them (scheduler/state.h).
#include <algorithm>

#include "base/check.h"
#include "scheduler/state.h"

namespace sublet::scheduler {

const Shape* State::InternShape(const Request& request, const Constraints& constraints) {
  ShapeEntry& entry = shapes_[{request, constraints}];
  if (entry.shape == nullptr) {
    entry.shape = std::make_unique<Shape>(MakeShape(request, constraints, names));
    entry.shape->id = next_shape_++;
  }
  ++entry.users;
  return entry.shape.get();
}

void State::ReleaseShape(const Shape* shape) {
  auto it = shapes_.find({shape->request, shape->constraints});
  SUBLET_CHECK(it != shapes_.end());
  if (--it->second.users == 0) {
    shapes_.erase(it);
  }
}

Status State::StatusFor(const PodSpec& spec) const {
  if (spec.phase == Phase::kSucceeded) {
    return Status::kSucceeded;
  }
  if (spec.phase == Phase::kFailed) {
    return Status::kFailed;
  }
  if (spec.deleted != 0 || spec.phase == Phase::kReleasing) {
    // A pod that is deleted before it ever had a node holds nothing.
    return spec.node.empty() ? Status::kUnknown : Status::kReleasing;
  }
  switch (spec.phase) {
    case Phase::kPending: return spec.node.empty() ? Status::kPending : Status::kBound;
    case Phase::kPromised: return Status::kPipelined;
    case Phase::kGated: return Status::kGated;
    case Phase::kBinding: return Status::kBinding;
    case Phase::kBound: return Status::kBound;
    case Phase::kRunning: return Status::kRunning;
    default: return Status::kUnknown;
  }
}

namespace {

// A node that refuses again and again is not asked in a loop: at once, then after 2, 4 ... 128
// seconds (the time of the refusal is known to the second only). Room on a node ends it earlier:
// Engine::Apply(NodeSpec).
Millis RetryAfterRefusal(const PodSpec& spec) {
  constexpr Millis kFirst = 2000;
  return spec.refusals <= 1 ? 0 : spec.refused + (kFirst << std::min(spec.refusals - 2, 6));
}

}  // namespace

JobId State::JobFor(const PodSpec& spec, int profile) {
  if (profile == kNone) {
    return kNone;
  }
  const std::string key = spec.group.empty() ? "pod:" + spec.uid : spec.group;
  auto it = job_index_.find(key);
  if (it != job_index_.end()) {
    return it->second;
  }
  auto added = std::make_unique<Job>();
  added->key = key;
  added->uid = key;
  added->ns = spec.ns;
  added->name = spec.group.empty() ? spec.name : spec.group.substr(spec.group.find('/') + 1);
  added->single = spec.group.empty();
  added->profile = profile;
  added->scheduler_name = spec.scheduler_name;
  added->priority = spec.priority;
  added->created = spec.created;
  const JobId id = AddJob(std::move(added));
  RebuildTree(job(id), SubGroupSpec{});
  return id;
}

void State::AttachTask(TaskId id, JobId to) {
  Task& t = task(id);
  SUBLET_CHECK(t.job == kNone);
  t.job = to;
  if (to == kNone) {
    return;
  }
  Job& j = job(to);
  const std::string name = t.sub_group.empty() ? "default" : t.sub_group;
  t.pod_set = 0;
  for (std::size_t i = 0; i < j.pod_sets.size(); ++i) {
    if (j.pod_sets[i].name == name) {
      t.pod_set = static_cast<int>(i);
    }
  }
  PodSet& set = j.pod_sets[static_cast<std::size_t>(t.pod_set)];
  auto at = std::lower_bound(set.tasks.begin(), set.tasks.end(), id,
                             [this](TaskId a, TaskId b) { return TaskBefore(task(a), task(b)); });
  set.tasks.insert(at, id);
  ++j.total;
  j.memory_requests += t.shape->request.gpu == GpuKind::kMemory ? 1 : 0;
  // Statuses are counted by a step from a status that counts nowhere.
  const Status status = t.status;
  t.status = Status::kUnknown;
  SetStatus(id, status);
  ++j.version;
  ++j.membership;
}

void State::DetachTask(TaskId id) {
  Task& t = task(id);
  if (t.job == kNone) {
    return;
  }
  const JobId from = t.job;
  Job& j = job(from);
  const Status status = t.status;
  SetStatus(id, Status::kUnknown);
  t.status = status;
  PodSet& set = j.pod_sets[static_cast<std::size_t>(t.pod_set)];
  set.tasks.erase(std::find(set.tasks.begin(), set.tasks.end(), id));
  --j.total;
  j.memory_requests -= t.shape->request.gpu == GpuKind::kMemory ? 1 : 0;
  j.task_failures.erase(id);
  ++j.version;
  ++j.membership;
  t.job = kNone;
  DropJobIfEmpty(from);
}

void State::ClearTask(TaskId id) {
  Task& t = task(id);
  if (ActiveAllocated(t.status)) {
    ChargeQueues(id, -1);
  }
  const NodeId was = t.node;
  while (!t.placements.empty()) {
    Unplace(id, t.placements.size() - 1);
  }
  if (t.foreign && was != kNone) {
    CountNode(was);
  }
  for (auto it = waiting_node_.begin(); it != waiting_node_.end();) {
    it->second.erase(id);
    it = it->second.empty() ? waiting_node_.erase(it) : std::next(it);
  }
  CountRequest(t, -1);
  if (t.counted != Quota{}) {
    shares_dirty_ = true;
  }
  t.counted = Quota{};
  if (was != kNone) {
    ++capacity_generation;
    ++usage_generation;
  }
  pipelined.erase(id);
  withdrawn.erase(id);
  DetachTask(id);
}

TaskId State::NewTask(const std::string& uid) {
  TaskId id = kNone;
  if (free_tasks_.empty()) {
    id = static_cast<TaskId>(tasks.size());
    tasks.emplace_back();
  } else {
    id = free_tasks_.back();
    free_tasks_.pop_back();
  }
  tasks[static_cast<std::size_t>(id)] = std::make_unique<Task>();
  task_index_[uid] = id;
  return id;
}

void State::Settle(TaskId id, const std::string& node_name, NodeId node,
                   const std::vector<int>& groups) {
  Task& t = task(id);
  const Status status = t.status;
  if (ActiveUsed(status) && node != kNone) {
    t.node = node;
    t.groups = groups;
    Place(id, node, status, groups);
  } else if (ActiveUsed(status) && !node_name.empty()) {
    t.groups = groups;
    t.accepted = t.shape->quota;
    t.accepted[kGpu] += t.dra_quota;
    waiting_node_[node_name].insert(id);
  }
  if (ActiveAllocated(status)) {
    ChargeQueues(id, 1);
  }
  if (t.foreign && t.node != kNone) {
    CountNode(t.node);
  }
  if (t.node != kNone) {
    ++usage_generation;
  }
}

namespace {

// What a task takes over as it is.
void CopySpec(const PodSpec& spec, Task* to) {
  Task& t = *to;
  t.uid = spec.uid;
  t.ns = spec.ns;
  t.name = spec.name;
  t.sub_group = spec.sub_group;
  t.scheduler_name = spec.scheduler_name;
  t.group_key = spec.group;
  t.labels = std::make_shared<const Labels>(spec.labels);
  t.claims = spec.claims;
  t.attachments = spec.attachments;
  t.nominated_node = spec.nominated_node;
  t.unschedulable_reason = spec.unschedulable_reason;
  t.legacy_mig = spec.legacy_mig;
  t.never_preempts = spec.never_preempts;
  t.order_priority = spec.task_priority;
  t.role_rank = spec.role_rank;
  t.priority = spec.priority;
  t.created = spec.created;
  t.deleted = spec.deleted;
}

}  // namespace

void State::UpsertPod(const PodSpec& spec, int profile) {
  TaskId id = FindTask(spec.uid);
  Status status = StatusFor(spec);
  NodeId node = spec.node.empty() ? kNone : FindNode(spec.node);
  std::vector<int> groups;
  for (const std::string& name : spec.gpu_groups) {
    groups.push_back(group_names.Intern(name));
  }
  bool real = !spec.node.empty() && spec.phase != Phase::kPromised && spec.phase != Phase::kBinding;
  Millis retry_at = 0;
  int rejected = 0;
  Millis refused = 0;
  std::vector<std::string> devices = spec.gpu_devices;
  if (id != kNone) {
    Task& old = task(id);
    retry_at = old.retry_at;
    rejected = old.rejected;
    refused = old.refused;
    // Our decision is ahead of the API: a bind or an eviction that it does not show yet. A bind
    // that was taken back already may never have been shown to us: the informer keeps only the
    // latest state.
    if (spec.refused <= refused && !old.real && old.node != kNone &&
        (old.status == Status::kBinding || old.status == Status::kAllocated) &&
        status == Status::kPending && spec.node.empty()) {
      status = old.status;
      node = old.node;
      groups = old.groups;
      devices = old.devices;
      real = false;
    } else if (old.status == Status::kReleasing && old.real && CountsForQuota(status)) {
      status = Status::kReleasing;
    }
    ClearTask(id);
    LeaveClaims(id, node != kNone && CountsForQuota(status));
    ReleaseShape(task(id).shape);
    const bool dirty = task(id).dirty;
    *tasks[static_cast<std::size_t>(id)] = Task{};
    task(id).dirty = dirty;
  } else {
    id = NewTask(spec.uid);
  }
  if (spec.refused > refused) {
    refused = spec.refused;
    retry_at = RetryAfterRefusal(spec);
  }
  Task& t = task(id);
  CopySpec(spec, &t);
  t.shape = InternShape(spec.request, spec.constraints);
  t.devices = std::move(devices);
  t.foreign = profile == kNone;
  t.real = real;
  t.retry_at = retry_at;
  t.rejected = rejected;
  t.refused = refused;
  t.status = status;
  for (const std::string& name : t.claims) {
    claim_users_[t.ns + "/" + name].insert(id);
  }
  SetDra(t);
  if (status == Status::kPipelined) {
    pipelined.insert(id);
  }
  AttachTask(id, JobFor(spec, profile));
  Settle(id, spec.node, node, groups);
  MarkDirty(id);
  for (const std::string& name : t.claims) {
    ShareClaim(t.ns + "/" + name);
  }
}

void State::DeletePod(const std::string& uid) {
  const TaskId id = FindTask(uid);
  if (id == kNone) {
    return;
  }
  ClearTask(id);
  LeaveClaims(id, false);
  ReleaseShape(task(id).shape);
  task_index_.erase(uid);
  tasks[static_cast<std::size_t>(id)].reset();
  free_tasks_.push_back(id);
}

}  // namespace sublet::scheduler
