// JobView: a job as the orders and the placement see it. Either the job itself, read live, or a
// part of it: some of its tasks with their own minima (the first k pods of a pending gang; the pods
// of a victim that are still to be taken). What to place next and what to evict next are computed
// on views. Threads: one, the scheduler's.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "scheduler/state.h"

namespace sublet::scheduler {

struct JobView {
  JobId job = kNone;
  bool part = false;
  // Parallel to Job::pod_sets; used when `part`.
  std::vector<std::vector<TaskId>> tasks;
  std::vector<int> minima, active;
  std::vector<int> least;  // parallel to Job::groups: children that must be satisfied
  Quota held{};
  std::optional<Quota> request;

  static JobView Whole(JobId job) {
    JobView view;
    view.job = job;
    return view;
  }
  // A part with `members`; minima are the job's, or, with `minima_from_members`, the members'
  // count (never above the job's where JobRules::member_trees is set).
  static JobView Part(const State& state, JobId job, const std::vector<TaskId>& members,
                      bool minima_from_members);

  int Active(const Job& job_object, std::size_t set) const {
    return part ? active[set] : job_object.pod_sets[set].active_allocated;
  }
  int Minimum(const Job& job_object, std::size_t set) const {
    return part ? minima[set] : job_object.pod_sets[set].min_available;
  }
  int Least(const Job& job_object, std::size_t group) const {
    return part ? least[group] : LeastChildren(job_object.groups[group]);
  }
  const std::vector<TaskId>& Tasks(const Job& job_object, std::size_t set) const {
    return part ? tasks[set] : job_object.pod_sets[set].tasks;
  }
};

// Pods that may be placed: pending ones and, in a simulation, those the statement evicted.
bool ShouldPlace(const Task& task, bool simulation);
// The next batch: what is missing to the minimum of each pod set, or one pod when nothing is
// missing.
std::vector<TaskId> Batch(const State& state, const JobView& view, bool simulation);
// What the next batch asks for, gpu-memory requests included at the smallest device's size.
Quota BatchRequest(const State& state, const JobView& view);
// The next pods to evict and whether the view has more: one pod above a minimum, else all that is
// left.
std::pair<std::vector<TaskId>, bool> EvictionUnit(const State& state, const JobView& view);

// Below min, exactly at min, above min.
enum class Fill : std::uint8_t { kBelow, kExact, kAbove };
Fill FillOf(const State& state, const JobView& view);
bool GangSatisfied(const Job& job);  // every pod set has its minimum of resource holders
bool ReadyForScheduling(const Job& job);
bool IsElastic(const Job& job);
bool IsStale(const Job& job);

// Job order: priority, fill, age, uid.
bool JobBefore(const State& state, const JobView& left, const JobView& right, bool elastic_order);
// Order of pod sets by what they have: below minimum first, then the lower ratio, then the name.
std::vector<std::size_t> PodSetOrder(const Job& job, const JobView& view,
                                     const std::vector<int>& among);
// A sub group or a pod set of a parent; both are ordered together where JobRules::member_trees is set.
struct Member {
  bool group = false;
  int index = 0;
};
// The members of `group`: below what they need first (they tie), then those that need nothing
// last, then by the ratio of what they have to what they need, then by name.
std::vector<Member> MemberOrder(const Job& job, const JobView& view, int group);

inline Amounts ToAmounts(const Quota& quota) {
  return {static_cast<double>(quota[0]), static_cast<double>(quota[1]),
          static_cast<double>(quota[2]) / static_cast<double>(kDevice)};
}

}  // namespace sublet::scheduler
