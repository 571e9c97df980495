// Events: how objects come, change and go (scheduler/state.h).
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/check.h"
#include "scheduler/state.h"

namespace sublet::scheduler {

namespace {

// Takes a free number or a new one.
template <typename V>
int TakeSlot(std::vector<int>& free, V& vector) {
  if (free.empty()) {
    vector.emplace_back();
    return static_cast<int>(vector.size()) - 1;
  }
  const int id = free.back();
  free.pop_back();
  return id;
}

std::string LabelOr(const Labels& labels, const char* key) {
  const std::string* value = FindLabel(labels, key);
  return value == nullptr ? std::string() : *value;
}

}  // namespace

// --- nodes ---

void State::ReadNodeLabels(Node& node) {
  const NodeSpec& spec = node.spec;
  node.gpu_count = -1;
  if (const std::string count = LabelOr(spec.labels, "nvidia.com/gpu.count"); !count.empty()) {
    node.gpu_count = std::atoll(count.c_str());
  }
  node.gpu_memory = 100;
  node.gpu_memory_synced = false;
  if (const std::string text = LabelOr(spec.labels, "nvidia.com/gpu.memory"); !text.empty()) {
    std::int64_t memory = std::atoll(text.c_str());
    if (memory >= 1024 * 1024) {  // some versions of GPU feature discovery write bytes
      memory /= 1024 * 1024;
    }
    if (memory > 0) {
      node.gpu_memory = memory - memory % 100;
      node.gpu_memory_synced = true;
    }
  }
  node.mig = false;
  const std::string worker = LabelOr(spec.labels, "node-role.kubernetes.io/mig-enabled");
  if (FindLabel(spec.labels, "node-role.kubernetes.io/mig-enabled") != nullptr) {
    node.mig = worker == "true" || worker == "1" || worker == "t" || worker == "T" ||
               worker == "True" || worker == "TRUE";
  } else {
    for (const auto& [name, amount] : spec.scalars) {
      node.mig = node.mig || name.compare(0, 15, "nvidia.com/mig-") == 0;
    }
  }
  const std::string strategy = LabelOr(spec.labels, "nvidia.com/mig.strategy");
  node.mig_single = node.mig && strategy == "single";
  node.mig_mixed = node.mig && strategy == "mixed";
}

void State::FillNode(NodeId id, const NodeSpec& spec) {
  Node& node = nodes[static_cast<std::size_t>(id)];
  NodeHot& h = hot[static_cast<std::size_t>(id)];
  node.spec = spec;
  ReadNodeLabels(node);
  const bool present = h.present;
  const int rank = h.rank;
  h = NodeHot{};
  h.present = true;
  h.rank = rank;
  h.usable = spec.ready && !spec.unschedulable;
  h.cpu = spec.cpu;
  h.gpu = spec.gpus * kDevice;
  h.cpu_only = !node.mig && spec.gpus <= 0 && spec.dra_gpus <= 0;
  h.idle = {spec.cpu, spec.memory, spec.gpus * kDevice, spec.pods};
  node.scalars.clear();
  for (const auto& [name, amount] : spec.scalars) {
    node.scalars.push_back({names.Intern(name), amount, amount, 0});
  }
  node.groups.clear();
  // What others (another tenant, a pod that is not ours) hold of a device is a share nobody here
  // can move.
  for (const GpuDevice& device : spec.devices) {
    const std::int64_t others =
        device.healthy ? device.memory_bytes - device.free_bytes : device.memory_bytes;
    if (others <= 0) {
      continue;
    }
    constexpr std::int64_t kMiB = INT64_C(1) << 20;
    GpuGroup group{group_names.Intern(device.uuid)};
    group.active =
        device.healthy ? std::min((others + kMiB - 1) / kMiB, node.gpu_memory) : node.gpu_memory;
    group.users = 1;
    node.groups.push_back(group);
    h.idle[kGpu] -= kDevice;
    h.has_groups = true;
  }
  std::sort(node.groups.begin(), node.groups.end(), [this](const GpuGroup& a, const GpuGroup& b) {
    return group_names.Name(a.name) < group_names.Name(b.name);
  });
  // Placements are accounted again against the new amounts; a group's share may have changed with
  // them.
  std::vector<std::pair<TaskId, std::size_t>> done;
  for (TaskId occupant : node.tasks) {
    Task& t = task(occupant);
    for (std::size_t i = 0; i < t.placements.size(); ++i) {
      if (t.placements[i].node == id &&
          std::find(done.begin(), done.end(), std::pair{occupant, i}) == done.end()) {
        done.emplace_back(occupant, i);
        Account(id, t.placements[i], t, 1);
        break;
      }
    }
    if (present && t.node == id && CountsForQuota(t.status)) {
      ChargeQueues(occupant, -1);
      t.accepted = AcceptedOn(t, node);
      ChargeQueues(occupant, 1);
      MarkDirty(occupant);
    }
  }
  CountNode(id);
}

void State::CountNode(NodeId id) {
  Node& node = nodes[static_cast<std::size_t>(id)];
  Quota now{};
  if (hot[static_cast<std::size_t>(id)].present && hot[static_cast<std::size_t>(id)].usable) {
    now = {node.spec.cpu, node.spec.memory, node.spec.gpus * kDevice};
    for (const auto& [name, amount] : node.spec.scalars) {
      std::int64_t parts = 0;
      std::int64_t memory_gb = 0;
      if (ParseMigProfile(name, &parts, &memory_gb)) {
        now[kGpu] += parts * amount * kDevice;
      }
    }
    for (TaskId occupant : node.tasks) {
      const Task& t = task(occupant);
      if (t.foreign && ActiveUsed(t.status)) {
        Add(now, t.accepted, -1);
      }
    }
  }
  if (now != node.counted) {
    Add(total, node.counted, -1);
    Add(total, now, 1);
    node.counted = now;
    shares_dirty_ = true;
  }
}

void State::UpsertNode(const NodeSpec& spec) {
  ++capacity_generation;
  ++node_generation;
  auto it = node_index_.find(spec.name);
  if (it != node_index_.end()) {
    FillNode(it->second, spec);
    return;
  }
  const int id = TakeSlot(free_nodes_, nodes);
  hot.resize(nodes.size());
  nodes[static_cast<std::size_t>(id)] = Node{};
  node_index_[spec.name] = id;
  by_name_dirty_ = true;
  FillNode(id, spec);
  auto waiting = waiting_node_.find(spec.name);
  if (waiting != waiting_node_.end()) {
    const std::set<TaskId> arrived = std::move(waiting->second);
    waiting_node_.erase(waiting);
    for (TaskId occupant : arrived) {
      Task& t = task(occupant);
      ChargeQueues(occupant, CountsForQuota(t.status) ? -1 : 0);
      t.node = id;
      Place(occupant, id, t.status, t.groups);
      ChargeQueues(occupant, CountsForQuota(t.status) ? 1 : 0);
      MarkDirty(occupant);
    }
    CountNode(id);
  }
}

void State::DeleteNode(const std::string& name) {
  auto it = node_index_.find(name);
  if (it == node_index_.end()) {
    return;
  }
  const NodeId id = it->second;
  ++capacity_generation;
  ++node_generation;
  const std::vector<TaskId> occupants = nodes[static_cast<std::size_t>(id)].tasks;
  for (TaskId occupant : occupants) {
    Task& t = task(occupant);
    for (std::size_t i = t.placements.size(); i-- > 0;) {
      if (t.placements[i].node == id) {
        Unplace(occupant, i);
      }
    }
    if (t.node == id) {
      t.node = kNone;
      if (t.real) {
        waiting_node_[name].insert(occupant);
      } else {
        if (CountsForQuota(t.status)) {
          t.node = id;
          ChargeQueues(occupant, -1);
          t.node = kNone;
        }
        t.groups.clear();
        SetStatus(occupant, Status::kPending);
      }
    }
  }
  hot[static_cast<std::size_t>(id)].present = false;
  CountNode(id);
  nodes[static_cast<std::size_t>(id)] = Node{};
  hot[static_cast<std::size_t>(id)] = NodeHot{};
  node_index_.erase(it);
  free_nodes_.push_back(id);
  by_name_dirty_ = true;
}

// --- queues ---

void State::UpsertQueue(const QueueSpec& spec) {
  ++capacity_generation;
  shares_dirty_ = true;
  auto it = queue_index_.find(spec.name);
  if (it == queue_index_.end()) {
    const int id = TakeSlot(free_queues_, queues);
    queues[static_cast<std::size_t>(id)] = Queue{};
    queues[static_cast<std::size_t>(id)].present = true;
    it = queue_index_.emplace(spec.name, id).first;
    queues_dirty_ = true;
  }
  Queue& q = queue(it->second);
  queues_dirty_ =
      queues_dirty_ || q.spec.parent != spec.parent || q.spec.model_limits != spec.model_limits;
  // A Queue object says nothing of the past: what SetUsage told stays.
  const bool silent = std::all_of(std::begin(spec.usage), std::end(spec.usage),
                                  [](double used) { return used == 0; });
  const std::array<double, 3> usage{q.spec.usage[0], q.spec.usage[1], q.spec.usage[2]};
  q.spec = spec;
  if (silent) {
    std::copy(usage.begin(), usage.end(), q.spec.usage);
  }
  q.share.name = spec.name;
  q.share.priority = spec.priority;
  q.share.created = spec.created;
  const QueueQuota* quotas[] = {&spec.cpu, &spec.memory, &spec.gpu};
  for (int i = 0; i < kShareDims; ++i) {
    q.share.r[i].deserved = quotas[i]->quota;
    q.share.r[i].limit = quotas[i]->limit;
    q.share.r[i].weight = quotas[i]->weight;
  }
}

void State::DeleteQueue(const std::string& name) {
  auto it = queue_index_.find(name);
  if (it == queue_index_.end()) {
    return;
  }
  ++capacity_generation;
  queues[static_cast<std::size_t>(it->second)] = Queue{};
  free_queues_.push_back(it->second);
  queue_index_.erase(it);
  queues_dirty_ = true;
}

void State::RelinkQueues() {
  queues_dirty_ = false;
  shares_dirty_ = true;
  model_limits = false;
  for (Queue& q : queues) {
    q.children.clear();
    q.parent = kNone;
    q.allocated = q.allocated_np = q.request = Quota{};
    q.by_model.clear();
    model_limits = model_limits || !q.spec.model_limits.empty();
  }
  for (auto& [name, id] : queue_index_) {  // by name: children in name order
    Queue& q = queue(id);
    q.parent = q.spec.parent.empty() ? kNone : FindQueue(q.spec.parent);
    // A loop of parents would never end; the queue that closes it is cut off as a root of its own.
    for (QueueId at = q.parent; at != kNone; at = queue(at).parent) {
      if (at == id) {
        q.parent = kNone;
        break;
      }
    }
    q.share.parent = q.parent;
    if (q.parent != kNone) {
      queue(q.parent).children.push_back(id);
    }
  }
  RecountAll();
}

void State::RecountAll() {
  for (Queue& q : queues) {
    for (ResourceShare& share : q.share.r) {
      share.allocated = share.allocated_np = 0;
    }
  }
  for (auto& j : jobs) {
    if (j != nullptr) {
      j->queue = FindQueue(j->queue_name);
    }
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i] == nullptr || tasks[i]->job == kNone) {
      continue;
    }
    Task& t = *tasks[i];
    t.counted = Quota{};
    if (ActiveAllocated(t.status)) {
      ChargeQueues(static_cast<TaskId>(i), 1);
    }
    MarkDirty(static_cast<TaskId>(i));
  }
}

// --- pod groups ---

void State::RebuildTree(Job& j, const SubGroupSpec& root) {
  std::vector<TaskId> members;
  for (PodSet& set : j.pod_sets) {
    members.insert(members.end(), set.tasks.begin(), set.tasks.end());
  }
  j.groups.clear();
  j.pod_sets.clear();
  std::function<int(const SubGroupSpec&, int)> add = [&](const SubGroupSpec& spec, int parent) {
    const int index = static_cast<int>(j.groups.size());
    j.groups.push_back({spec.name, spec.topology, spec.min_sub_group, parent, {}, {}});
    for (const PodSetSpec& set : spec.pod_sets) {
      j.groups[static_cast<std::size_t>(index)].pod_sets.push_back(
          static_cast<int>(j.pod_sets.size()));
      PodSet added;
      added.name = set.name;
      added.min_available = set.min_available;
      added.topology = set.topology;
      added.parent = index;
      j.pod_sets.push_back(std::move(added));
    }
    for (const SubGroupSpec& child : spec.groups) {
      const int below = add(child, index);
      j.groups[static_cast<std::size_t>(index)].groups.push_back(below);
    }
    return index;
  };
  add(root, kNone);
  if (j.pod_sets.empty()) {
    PodSet added;
    added.name = "default";
    j.pod_sets.push_back(added);
    j.groups[0].pod_sets.push_back(0);
  }
  j.optional_groups = std::any_of(j.groups.begin(), j.groups.end(), [](const SubGroup& group) {
    return group.min_sub_group.has_value() &&
           *group.min_sub_group < static_cast<int>(group.groups.size() + group.pod_sets.size());
  });
  j.total = j.active_allocated = j.pending = j.succeeded = j.active_used = 0;
  j.memory_requests = 0;
  j.held = Quota{};
  for (TaskId id : members) {
    const JobId self = task(id).job;
    task(id).job = kNone;
    AttachTask(id, self);
  }
  ++j.version;
  ++j.membership;
}

JobId State::AddJob(std::unique_ptr<Job> added) {
  const int id = TakeSlot(free_jobs_, jobs);
  job_index_[added->key] = id;
  jobs[static_cast<std::size_t>(id)] = std::move(added);
  return id;
}

void State::DropJobIfEmpty(JobId id) {
  Job& j = job(id);
  if (j.from_spec || j.total > 0) {
    return;
  }
  pending_jobs.erase(id);
  active_jobs.erase(id);
  stale_jobs.erase(id);
  marked_stale.erase(id);
  job_index_.erase(j.key);
  jobs[static_cast<std::size_t>(id)].reset();
  free_jobs_.push_back(id);
}

void State::UpsertPodGroup(const PodGroupSpec& spec, int profile) {
  auto it = job_index_.find(spec.Key());
  JobId id = kNone;
  if (it == job_index_.end()) {
    auto added = std::make_unique<Job>();
    added->key = spec.Key();
    id = AddJob(std::move(added));
  } else {
    id = it->second;
  }
  Job& j = job(id);
  j.from_spec = true;
  j.ns = spec.ns;
  j.name = spec.name;
  j.uid = spec.uid.empty() ? spec.Key() : spec.uid;
  j.scheduler_name = spec.scheduler_name;
  j.profile = profile;
  j.priority = spec.priority;
  j.preemptibility = spec.preemptibility;
  j.created = spec.created;
  j.last_start = std::max(j.last_start, spec.last_start);
  j.stale_since = spec.stale_since != 0 ? spec.stale_since : j.stale_since;
  j.last_eviction = spec.last_eviction;
  j.preemption_delay = spec.preemption_delay;
  j.staleness_grace = spec.staleness_grace;
  j.scheduling_backoff = spec.scheduling_backoff;
  j.gave_up = false;
  const bool preemptible =
      spec.preemptibility.empty() ? spec.priority < 100 : spec.preemptibility == "preemptible";
  if (j.preemptible != preemptible || j.queue_name != spec.queue) {
    for (const PodSet& set : j.pod_sets) {
      for (TaskId member : set.tasks) {
        if (ActiveAllocated(task(member).status)) {
          ChargeQueues(member, -1);
        }
        CountRequest(task(member), -1);
      }
    }
    j.preemptible = preemptible;
    j.queue_name = spec.queue;
    j.queue = FindQueue(spec.queue);
    for (const PodSet& set : j.pod_sets) {
      for (TaskId member : set.tasks) {
        if (ActiveAllocated(task(member).status)) {
          ChargeQueues(member, 1);
        }
        CountRequest(task(member), 1);
      }
    }
    shares_dirty_ = true;
  }
  RebuildTree(j, spec.root);
  ReindexJobSets(id);
}

void State::DeletePodGroup(const std::string& key) {
  auto it = job_index_.find(key);
  if (it == job_index_.end()) {
    return;
  }
  job(it->second).from_spec = false;
  ++job(it->second).version;
  DropJobIfEmpty(it->second);
}

// --- other objects ---

void State::UpsertTopology(const TopologySpec& spec) {
  topologies[spec.name] = spec;
  ++capacity_generation;
  ++node_generation;
}
void State::DeleteTopology(const std::string& name) {
  topologies.erase(name);
  ++capacity_generation;
  ++node_generation;
}
void State::SetUsage(const std::map<std::string, std::array<double, 3>>& usage) {
  for (const auto& [name, used] : usage) {
    const auto it = queue_index_.find(name);
    if (it != queue_index_.end() &&
        !std::equal(used.begin(), used.end(), queue(it->second).spec.usage)) {
      std::copy(used.begin(), used.end(), queue(it->second).spec.usage);
      shares_dirty_ = true;
    }
  }
}
void State::UpsertNamespace(const NamespaceSpec& space) {
  NamespaceSpec& known = namespaces[space.name];
  if (known.name.empty() || known.labels != space.labels) {
    ++capacity_generation;  // affinity terms may select its pods now, or no longer
  }
  known = space;
}
void State::DeleteNamespace(const std::string& name) {
  namespaces.erase(name);
  ++capacity_generation;
}
void State::UpsertBudget(const DisruptionBudget& budget) {
  budgets[budget.Key()] = budget;
  ++capacity_generation;
}
void State::DeleteBudget(const std::string& key) {
  budgets.erase(key);
  ++capacity_generation;
}

}  // namespace sublet::scheduler
