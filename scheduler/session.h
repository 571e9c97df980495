// Session: one cycle's view of the state under one profile: what was decided so far, what is known
// about failures, the counted steps of the search, and the earliest time at which the answer may
// change. Threads: one, the scheduler's.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheduler/job_view.h"
#include "scheduler/profile.h"
#include "scheduler/statement.h"

namespace sublet::scheduler {

// What one reclaim, preempt or consolidation attempt did, for explain.
struct AttemptNote {
  JobId job = kNone;
  std::string action;
  std::string outcome;  // "no victims", "victim search ran out of steps", a refused rule
  ReclaimRefusal refusal;
};

class Session {
 public:
  Session(State& s, const Profile& p, int index, Millis at)
      : state(s), profile(p), profile_index(index), now(at), total(ToAmounts(s.total)) {}

  // True when the job belongs to this session's profile and its queue can take it.
  bool Mine(const Job& job) const {
    return job.profile == profile_index &&
           (profile.kube ? job.single || job.from_spec : job.from_spec && job.queue != kNone);
  }
  TriedMark MarkOf(const Job& job) const {
    return {true,
            job.membership,
            state.capacity_generation,
            state.usage_generation,
            state.share_generation,
            job.pending,
            job.active_allocated};
  }
  // True when `action` failed for the job and nothing that matters to it has changed since.
  // Placement depends on what is free only; evictions also on who holds what and on the shares.
  bool Unchanged(const Job& job, Action action) const {
    if (job.tried == nullptr) {
      return false;
    }
    TriedMark now_mark = MarkOf(job);
    const TriedMark& then = (*job.tried)[static_cast<std::size_t>(action)];
    if (action == Action::kAllocate) {
      now_mark.usage = then.usage;
      now_mark.shares = then.shares;
    }
    return then == now_mark;
  }
  void Failed(JobId job, Action action) { failed.emplace_back(job, action); }
  void MayChangeAt(Millis at) { earliest = std::min(earliest, at); }

  State& state;
  const Profile& profile;
  int profile_index;
  Millis now;
  Amounts total;
  std::vector<Decision> decisions;
  std::vector<AttemptNote> notes;
  Millis earliest = kNever;
  std::int64_t steps_left = 0;  // of the victim search
  bool out_of_steps = false;
  std::int64_t simulated = 0, filtered = 0;  // scenarios, for metrics
  std::size_t budget_mark = 0;               // decisions already taken off disruption budgets
  std::vector<std::pair<JobId, Action>>
      failed;                  // attempts of this cycle that ended without success
  std::vector<JobId> started;  // jobs whose first pods were placed in this cycle
  // Pods of a shape that found no node: the text, while nothing was freed since.
  std::map<int, std::string> hopeless;
  std::set<NodeId> reserved;  // kept free for a gang that has waited long (Profile::backfill)
  // Scores of nodes by preferred topology level, per sub group of the job being placed: rank /
  // count.
  std::map<std::string, std::map<NodeId, double>> topology_scores;
};

}  // namespace sublet::scheduler
