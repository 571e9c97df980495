// PodDisruptionBudgets in evictions: a scenario that would take more pods of a budget than it
// allows is refused, and what one decision spends the next one of the same cycle does not have.
// Differs: KAI never reads budgets. On in profiles with `budgets`. Threads: one.
#pragma once

#include <map>
#include <string>

#include "scheduler/solver.h"

namespace sublet::scheduler {

class BudgetGuard {
 public:
  explicit BudgetGuard(Session& session) : session_(session) {}
  // True when every budget covers the pods that leave or move in the scenario.
  bool Allows(const Scenario& scenario) const;
  // Takes the evictions decided in this cycle off the budgets' allowance.
  void Spend(const std::vector<Decision>& decisions);

 private:
  Session& session_;
};

}  // namespace sublet::scheduler
