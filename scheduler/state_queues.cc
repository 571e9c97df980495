// Queues in the state: how they come, change and go (scheduler/state.h).
#include <algorithm>

#include "scheduler/slots.h"
#include "scheduler/state.h"

namespace sublet::scheduler {

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

}  // namespace sublet::scheduler
