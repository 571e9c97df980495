// Pod groups in the state: how they come, change and go (scheduler/state.h).
#include <algorithm>
#include <functional>

#include "scheduler/slots.h"
#include "scheduler/state.h"

namespace sublet::scheduler {

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

}  // namespace sublet::scheduler
