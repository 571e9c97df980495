// Whom the actions that evict (scheduler/evictions.cc) may take: minimum run times, and what a
// reclaim may take from other queues. Source: reference facts on KAI 3.4 and 3.5. Threads: one.
#pragma once

#include <vector>

#include "scheduler/min_runtime.h"
#include "scheduler/shares.h"
#include "scheduler/solver.h"

namespace sublet::scheduler {

// The queues by id, as min_runtime.h takes them.
std::vector<RuntimeQueue> RuntimeQueues(const State& state);
// Until when the victim may not be touched (whole jobs) or only above its minimum (elastic ones).
Millis ProtectedUntil(const Session& session, const std::vector<RuntimeQueue>& queues,
                      const Job& job, const Job& victim, Action action);
// Elastic victims within their minimum runtime keep their minimum; when one does not, the session
// is told when that may change.
bool RespectsMinRuntime(Session& session, const std::vector<RuntimeQueue>& queues,
                        const Scenario& scenario, Action action);

// The amounts of the queues as they were when the search began.
class BaseShares {
 public:
  explicit BaseShares(State& state) : state_(state) { ++state_.solution_epoch; }
  std::vector<QueueShare> Copy() const;

 private:
  State& state_;
};

// False, and why, when the preemptor may not take the victims of the scenario.
bool ReclaimAllowed(Session& session, const BaseShares& base, const Scenario& scenario,
                    ReclaimRefusal* why);

}  // namespace sublet::scheduler
