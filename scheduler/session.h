// Session: one cycle's view of the state under one profile: what was decided so far, what is known about
// failures, the counted steps of the search, and the earliest time at which the answer may change.
// Threads: one, the scheduler's.
#pragma once

#include <map>
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
    return job.profile == profile_index && (profile.kube ? job.single || job.from_spec : job.from_spec && job.queue != kNone);
  }
  void MayChangeAt(Millis at) { earliest = std::min(earliest, at); }

  State& state;
  const Profile& profile;
  int profile_index;
  Millis now;
  Amounts total;
  std::vector<Decision> decisions;
  std::vector<AttemptNote> notes;
  Millis earliest = kNever;
  std::int64_t steps_left = 0;    // of the victim search
  bool out_of_steps = false;
  std::size_t budget_mark = 0;  // decisions already taken off disruption budgets
  std::vector<JobId> started;     // jobs whose first pods were placed in this cycle
  // Pods of a shape that found no node: the text, while nothing was freed since.
  std::map<int, std::string> hopeless;
  std::map<int, int> hopeless_nodes;
  // Scores of nodes by preferred topology level, per sub group of the job being placed: rank / count.
  std::map<std::string, std::map<NodeId, double>> topology_scores;
};

}  // namespace sublet::scheduler
