#include "scheduler/eviction_rules.h"

#include <algorithm>

namespace sublet::scheduler {

namespace {

bool KeepsMinimum(const State& state, const VictimJob& victim) {
  const Job& job = state.job(victim.job);
  std::vector<int> going(job.pod_sets.size(), 0);
  for (TaskId id : victim.tasks) {
    ++going[static_cast<std::size_t>(state.task(id).pod_set)];
  }
  for (std::size_t i = 0; i < going.size(); ++i) {
    if (going[i] > 0 && job.pod_sets[i].min_available > job.pod_sets[i].active_used - going[i]) {
      return false;
    }
  }
  return true;
}

// Victims in the units in which they leave: pods above a minimum one by one, the rest together.
VictimUnits UnitsOf(const Session& session, const VictimJob& victim) {
  const State& state = session.state;
  const Job& job = state.job(victim.job);
  std::vector<std::vector<TaskId>> by_set(job.pod_sets.size());
  for (TaskId id : victim.tasks) {
    by_set[static_cast<std::size_t>(state.task(id).pod_set)].push_back(id);
  }
  VictimUnits units;
  units.queue = job.queue;
  const auto add = [&](const std::vector<TaskId>& tasks) {
    Quota sum{};
    bool any = false;
    for (TaskId id : tasks) {
      const Task& task = state.task(id);
      // What the simulation re-placed is no loss.
      if (!session.profile.consolidating_reclaim || !ActiveAllocated(task.status)) {
        Add(sum, task.accepted, 1);
        any = true;
      }
    }
    if (any) {
      units.units.push_back(ToAmounts(sum));
    }
  };
  std::vector<TaskId> core;
  for (std::size_t i = 0; i < by_set.size(); ++i) {
    const auto least = static_cast<std::size_t>(std::max(job.pod_sets[i].min_available, 0));
    for (std::size_t at = 0; at < by_set[i].size(); ++at) {
      if (at < least) {
        core.push_back(by_set[i][at]);
      } else {
        add({by_set[i][at]});
      }
    }
  }
  add(core);
  return units;
}

}  // namespace

std::vector<RuntimeQueue> RuntimeQueues(const State& state) {
  std::vector<RuntimeQueue> queues;
  for (const Queue& queue : state.queues) {
    queues.push_back({queue.spec.name, queue.parent, queue.spec.preempt_min_runtime,
                      queue.spec.reclaim_min_runtime});
  }
  return queues;
}

Millis ProtectedUntil(const Session& session, const std::vector<RuntimeQueue>& queues,
                      const Job& job, const Job& victim, Action action) {
  if (victim.last_start == 0) {
    return 0;
  }
  bool error = false;
  const Millis least =
      action == Action::kPreempt
          ? PreemptMinRuntime(queues, victim.queue, session.profile.preempt_min_runtime, &error)
          : ReclaimMinRuntime(queues, job.queue, victim.queue, session.profile.min_runtime_by_lca,
                              session.profile.reclaim_min_runtime, &error);
  return victim.last_start + least;
}

bool RespectsMinRuntime(Session& session, const std::vector<RuntimeQueue>& queues,
                        const Scenario& scenario, Action action) {
  const Job& job = session.state.job(scenario.preemptor->job);
  for (const VictimJob& victim : scenario.victims) {
    const Job& other = session.state.job(victim.job);
    const Millis until = IsElastic(other) ? ProtectedUntil(session, queues, job, other, action) : 0;
    if (until > session.now && !KeepsMinimum(session.state, victim)) {
      session.MayChangeAt(until);
      return false;
    }
  }
  return true;
}

std::vector<QueueShare> BaseShares::Copy() const {
  std::vector<QueueShare> shares;
  for (const Queue& queue : state_.queues) {
    shares.push_back(queue.share);
    if (queue.base_epoch == state_.solution_epoch) {
      const Amounts allocated = ToAmounts(queue.base_allocated);
      const Amounts fixed = ToAmounts(queue.base_allocated_np);
      for (int i = 0; i < kShareDims; ++i) {
        shares.back().r[i].allocated = allocated[i];
        shares.back().r[i].allocated_np = fixed[i];
      }
    }
  }
  return shares;
}

bool ReclaimAllowed(Session& session, const BaseShares& base, const Scenario& scenario,
                    ReclaimRefusal* why) {
  State& state = session.state;
  const Job& job = state.job(scenario.preemptor->job);
  std::vector<QueueShare> shares = base.Copy();
  std::vector<QueueShare*> queues;
  for (QueueShare& share : shares) {
    queues.push_back(&share);
  }
  std::vector<VictimUnits> victims;
  for (const VictimJob& victim : scenario.victims) {
    VictimUnits units = UnitsOf(session, victim);
    if (units.units.empty()) {
      continue;
    }
    auto same = std::find_if(victims.begin(), victims.end(),
                             [&](const VictimUnits& v) { return v.queue == units.queue; });
    if (same == victims.end()) {
      victims.push_back(std::move(units));
    } else {
      same->units.insert(same->units.end(), units.units.begin(), units.units.end());
    }
  }
  const Reclaimer reclaimer{job.queue, job.preemptible, ToAmounts(*scenario.preemptor->request)};
  return Reclaimable(queues, reclaimer, victims, session.profile.saturation,
                     session.profile.strict_fair_share, why);
}

}  // namespace sublet::scheduler
