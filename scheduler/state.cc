// Accounting of tasks on nodes (scheduler/state.h).
#include "scheduler/state.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "scheduler/claims.h"

namespace sublet::scheduler {

const char* StatusName(Status status) {
  switch (status) {
    case Status::kPending: return "Pending";
    case Status::kGated: return "Gated";
    case Status::kAllocated: return "Allocated";
    case Status::kPipelined: return "Pipelined";
    case Status::kBinding: return "Binding";
    case Status::kBound: return "Bound";
    case Status::kRunning: return "Running";
    case Status::kReleasing: return "Releasing";
    case Status::kSucceeded: return "Succeeded";
    case Status::kFailed: return "Failed";
    case Status::kUnknown: return "Unknown";
  }
  return "Unknown";
}

bool CountsForQuota(Status status) {
  return status == Status::kAllocated || status == Status::kBinding || status == Status::kBound ||
         status == Status::kRunning;
}
bool ActiveAllocated(Status status) {
  return CountsForQuota(status) || status == Status::kPipelined;
}
bool ActiveUsed(Status status) { return ActiveAllocated(status) || status == Status::kReleasing; }
bool Alive(Status status) {
  return ActiveAllocated(status) || status == Status::kPending || status == Status::kGated;
}

bool TaskBefore(const Task& left, const Task& right) {
  if (left.role_rank != right.role_rank) {
    return left.role_rank < right.role_rank;
  }
  if (left.order_priority.has_value() != right.order_priority.has_value()) {
    return left.order_priority.has_value();
  }
  if (left.order_priority.has_value() && *left.order_priority != *right.order_priority) {
    return *left.order_priority > *right.order_priority;
  }
  return std::tie(left.created, left.uid) < std::tie(right.created, right.uid);
}

const NodeScalar* Node::FindScalar(int name) const {
  for (const NodeScalar& scalar : scalars) {
    if (scalar.name == name) {
      return &scalar;
    }
  }
  return nullptr;
}

GpuGroup* Node::FindGroup(int name) {
  for (GpuGroup& group : groups) {
    if (group.name == name) {
      return &group;
    }
  }
  return nullptr;
}

State::State() = default;
State::~State() = default;

void State::SetStatus(TaskId id, Status status) {
  Task& t = task(id);
  const Status old = t.status;
  if (old == status) {
    return;
  }
  t.status = status;
  MarkDirty(id);
  if (t.job == kNone) {
    return;
  }
  Job& j = job(t.job);
  PodSet& set = j.pod_sets[static_cast<std::size_t>(t.pod_set)];
  const auto count = [&](Status s, int sign) {
    const int allocated = ActiveAllocated(s) ? sign : 0;
    set.active_allocated += allocated;
    j.active_allocated += allocated;
    set.active_used += ActiveUsed(s) ? sign : 0;
    j.active_used += ActiveUsed(s) ? sign : 0;
    set.alive += Alive(s) ? sign : 0;
    set.gated += s == Status::kGated ? sign : 0;
    set.pending += s == Status::kPending ? sign : 0;
    j.pending += s == Status::kPending ? sign : 0;
    j.succeeded += s == Status::kSucceeded ? sign : 0;
    if (CountsForQuota(s)) {
      Add(j.held, t.shape->quota, sign);
      j.held[kGpu] += sign * t.dra_quota;
    }
  };
  count(old, -1);
  count(status, 1);
  ++j.version;
  if (status == Status::kPipelined) {
    pipelined.insert(id);
  } else if (old == Status::kPipelined) {
    pipelined.erase(id);
  }
  ReindexJobSets(t.job);
}

void State::ReindexJobSets(JobId id) {
  Job& j = job(id);
  const auto keep = [id](std::set<JobId>& set, bool wanted, bool* is) {
    if (wanted == *is) {
      return;
    }
    *is = wanted;
    if (wanted) {
      set.insert(id);
    } else {
      set.erase(id);
    }
  };
  keep(pending_jobs, j.pending > 0, &j.in_pending);
  keep(active_jobs, j.active_allocated > 0, &j.in_active);
  bool stale = j.succeeded == 0 && j.active_used > 0;
  if (stale) {
    stale = !TreeSatisfied(j, 0, [&](int set) {
      return j.pod_sets[static_cast<std::size_t>(set)].active_used >=
             j.pod_sets[static_cast<std::size_t>(set)].min_available;
    });
  }
  keep(stale_jobs, stale, &j.in_stale);
}

Quota State::AcceptedOn(const Task& t, const Node& node) const {
  Quota accepted = t.shape->quota;
  if (t.shape->request.gpu == GpuKind::kMemory) {
    accepted[kGpu] +=
        MemoryShare(t.shape->request.gpu_memory_mib, node.gpu_memory) * t.shape->request.gpu_count;
  }
  accepted[kGpu] += t.placements.empty() && count_dra ? Dra(t) : t.dra_quota;
  return accepted;
}

void State::Place(TaskId id, NodeId node_id, Status status, const std::vector<int>& groups) {
  Task& t = task(id);
  t.placements.push_back({node_id, status, groups});
  Node& node = nodes[static_cast<std::size_t>(node_id)];
  node.tasks.push_back(id);
  node.legacy_mig += t.legacy_mig ? 1 : 0;
  if (t.shape->pod_constraints) {
    ++node.placed_constraints;
    ++constrained_tasks;
  }
  t.accepted = AcceptedOn(t, node);
  Account(node_id, t.placements.back(), t, 1);
}

void State::Unplace(TaskId id, std::size_t index) {
  Task& t = task(id);
  const Placement placement = t.placements[index];
  Account(placement.node, placement, t, -1);
  t.placements.erase(t.placements.begin() + static_cast<std::ptrdiff_t>(index));
  Node& node = nodes[static_cast<std::size_t>(placement.node)];
  node.tasks.erase(std::find(node.tasks.rbegin(), node.tasks.rend(), id).base() - 1);
  node.legacy_mig -= t.legacy_mig ? 1 : 0;
  if (t.shape->pod_constraints) {
    --node.placed_constraints;
    --constrained_tasks;
  }
}

void State::Reaccount(TaskId id, std::size_t index, Status status) {
  Task& t = task(id);
  Placement& placement = t.placements[index];
  Account(placement.node, placement, t, -1);
  placement.status = status;
  Account(placement.node, placement, t, 1);
}

void State::ChooseDevices(TaskId id) {
  Task& t = task(id);
  t.devices.clear();
  const Node& node = nodes[static_cast<std::size_t>(t.node)];
  if (t.shape->shared || node.spec.devices.empty() || t.shape->request.gpu != GpuKind::kWhole) {
    return;
  }
  for (std::int64_t i = 0; i < t.shape->request.gpu_count; ++i) {
    std::string uuid = FreeDevice(node, 0);
    if (uuid.empty()) {
      return;
    }
    t.devices.push_back(std::move(uuid));
  }
}

void State::DropPromise(TaskId id) {
  Task& t = task(id);
  if (ActiveAllocated(t.status)) {
    ChargeQueues(id, -1);
  }
  while (!t.placements.empty() && !t.real) {
    Unplace(id, t.placements.size() - 1);
  }
  if (t.real) {
    // An evicted pod that was promised another place is still where it was.
    while (t.placements.size() > 1) {
      Unplace(id, t.placements.size() - 1);
    }
    t.node = t.placements.empty() ? kNone : t.placements[0].node;
    t.groups = t.placements.empty() ? std::vector<int>{} : t.placements[0].groups;
    SetStatus(id, Status::kReleasing);
    t.tentative = false;
    return;
  }
  t.node = kNone;
  t.groups.clear();
  t.devices.clear();
  t.tentative = false;
  SetStatus(id, Status::kPending);
  for (const std::string& name : t.claims) {
    if (auto it = claims.find(t.ns + "/" + name); it != claims.end()) {
      ReleaseClaim(*this, it->second, t.uid);
      ShareClaim(it->first);
    }
  }
}

void State::SetPresence(TaskId id, bool present) {
  Task& t = task(id);
  if (present) {
    const Placement hidden = t.hidden;
    Place(id, hidden.node, hidden.status, hidden.groups);
  } else {
    t.hidden = t.placements.back();
    Unplace(id, t.placements.size() - 1);
  }
}

namespace {

template <typename T>
void Move(Status status, std::int64_t amount, T* idle, T* releasing) {
  // A promise is taken from what is being freed; when nothing is, `releasing` goes below zero, so
  // that idle + releasing stays what can still be promised.
  if (status == Status::kPipelined) {
    *releasing -= amount;
    return;
  }
  *idle -= amount;
  if (status == Status::kReleasing) {
    *releasing += amount;
  }
}

}  // namespace

void State::Account(NodeId node_id, const Placement& placement, const Task& t, int sign) {
  NodeHot& h = hot[static_cast<std::size_t>(node_id)];
  Node& node = nodes[static_cast<std::size_t>(node_id)];
  for (int dim = 0; dim < kDims; ++dim) {
    const std::int64_t amount = t.shape->tracked[dim] + (dim == kGpu ? t.dra : 0);
    Move(placement.status, sign * amount, &h.idle[dim], &h.releasing[dim]);
  }
  for (const Scalar& scalar : t.shape->scalars) {
    auto it = std::find_if(node.scalars.begin(), node.scalars.end(),
                           [&](const auto& s) { return s.name == scalar.name; });
    if (it == node.scalars.end()) {
      node.scalars.push_back({scalar.name, 0, 0, 0});
      it = node.scalars.end() - 1;
    }
    Move(placement.status, sign * scalar.amount, &it->idle, &it->releasing);
  }
  if (t.shape->shared) {
    AccountGroups(node_id, placement, t, sign);
  }
}

// A device leaves `idle` while someone holds a part of it, counts as releasing while all holders
// are leaving, and is promised whole while only promises are on it: derived from the sums of the
// group, so that the order of changes never matters.
void State::AccountGroups(NodeId node_id, const Placement& placement, const Task& t, int sign) {
  NodeHot& h = hot[static_cast<std::size_t>(node_id)];
  Node& node = nodes[static_cast<std::size_t>(node_id)];
  const std::int64_t memory = t.shape->request.gpu == GpuKind::kMemory
                                  ? t.shape->request.gpu_memory_mib
                                  : static_cast<std::int64_t>(t.shape->request.portion *
                                                              static_cast<double>(node.gpu_memory));
  const auto idle_part = [](const GpuGroup& g) {
    return g.active + g.releasing > 0 ? -kDevice : 0;
  };
  const auto releasing_part = [](const GpuGroup& g) {
    return g.active > 0 ? 0 : (g.releasing > 0 ? kDevice : 0) - (g.pipelined > 0 ? kDevice : 0);
  };
  for (int name : placement.groups) {
    GpuGroup* group = node.FindGroup(name);
    if (group == nullptr) {
      const std::string& text = group_names.Name(name);
      auto at = std::find_if(node.groups.begin(), node.groups.end(),
                             [&](const GpuGroup& g) { return group_names.Name(g.name) > text; });
      group = &*node.groups.insert(at, GpuGroup{name});
    }
    h.idle[kGpu] -= idle_part(*group);
    h.releasing[kGpu] -= releasing_part(*group);
    std::int64_t& sum = placement.status == Status::kPipelined   ? group->pipelined
                        : placement.status == Status::kReleasing ? group->releasing
                                                                 : group->active;
    sum += sign * memory;
    group->users += sign;
    h.idle[kGpu] += idle_part(*group);
    h.releasing[kGpu] += releasing_part(*group);
    if (group->users == 0) {
      node.groups.erase(node.groups.begin() + (group - node.groups.data()));
    }
  }
  h.has_groups = !node.groups.empty();
}

std::int64_t State::MemoryAsDevices(const Request& request, std::int64_t device) {
  return (request.gpu_count * request.gpu_memory_mib * kDevice + device - 1) / device;
}

std::int64_t State::MinGpuMemory() const {
  if (pinned_min_memory) {
    return 100;
  }
  std::int64_t least = 100;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (hot[i].present && nodes[i].gpu_memory > 100) {
      least = least == 100 ? nodes[i].gpu_memory : std::min(least, nodes[i].gpu_memory);
    }
  }
  return least;
}

std::int64_t State::MaxGpuMemory() const {
  std::int64_t most = 100;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    most = hot[i].present ? std::max(most, nodes[i].gpu_memory) : most;
  }
  return most;
}

const std::vector<NodeId>& State::NodesByName() {
  if (by_name_dirty_) {
    by_name_dirty_ = false;
    by_name_.clear();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (hot[i].present) {
        by_name_.push_back(static_cast<NodeId>(i));
      }
    }
    std::sort(by_name_.begin(), by_name_.end(), [this](NodeId a, NodeId b) {
      return nodes[static_cast<std::size_t>(a)].spec.name <
             nodes[static_cast<std::size_t>(b)].spec.name;
    });
    for (std::size_t i = 0; i < by_name_.size(); ++i) {
      hot[static_cast<std::size_t>(by_name_[i])].rank = static_cast<int>(i);
    }
  }
  return by_name_;
}

std::string State::FreeDevice(const Node& node, int index) {
  for (const GpuDevice& device : node.spec.devices) {
    const int name = group_names.Intern(device.uuid);
    bool taken = !device.healthy;
    for (const GpuGroup& group : node.groups) {
      taken = taken || group.name == name;
    }
    for (TaskId other : node.tasks) {
      const auto& held = task(other).devices;
      taken = taken || std::find(held.begin(), held.end(), device.uuid) != held.end();
    }
    if (!taken && index-- == 0) {
      return device.uuid;
    }
  }
  return "";
}

std::string State::NewGroupName(const Node& node, const Task& t, int index) {
  if (!node.spec.devices.empty()) {
    if (std::string uuid = FreeDevice(node, index); !uuid.empty()) {
      return uuid;
    }
  }
  for (int attempt = 0;; ++attempt) {
    std::string name = t.uid + "-" + std::to_string(index + attempt);
    const int id = group_names.Intern(name);
    if (std::none_of(node.groups.begin(), node.groups.end(),
                     [id](const GpuGroup& g) { return g.name == id; })) {
      return name;
    }
  }
}

NodeId State::FindNode(const std::string& name) const {
  auto it = node_index_.find(name);
  return it == node_index_.end() ? kNone : it->second;
}
QueueId State::FindQueue(const std::string& name) const {
  auto it = queue_index_.find(name);
  return it == queue_index_.end() ? kNone : it->second;
}
JobId State::FindJob(const std::string& key) const {
  auto it = job_index_.find(key);
  return it == job_index_.end() ? kNone : it->second;
}
TaskId State::FindTask(const std::string& uid) const {
  auto it = task_index_.find(uid);
  return it == task_index_.end() ? kNone : it->second;
}

}  // namespace sublet::scheduler
