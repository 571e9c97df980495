#include "scheduler/budgets.h"

namespace sublet::scheduler {

bool BudgetGuard::Allows(const Scenario& scenario) const {
  State& state = session_.state;
  if (!session_.profile.budgets || state.budgets.empty()) {
    return true;
  }
  std::map<std::string, int> taken;
  for (const VictimJob& victim : scenario.victims) {
    for (TaskId id : victim.tasks) {
      const Task& task = state.task(id);
      if (task.status != Status::kReleasing && task.status != Status::kPipelined) {
        continue;
      }
      for (const auto& [key, budget] : state.budgets) {
        if (budget.ns == task.ns && Matches(budget.selector, *task.labels) &&
            ++taken[key] > budget.disruptions_allowed) {
          return false;
        }
      }
    }
  }
  return true;
}

void BudgetGuard::Spend(const std::vector<Decision>& decisions) {
  State& state = session_.state;
  if (!session_.profile.budgets) {
    return;
  }
  // Only what this attempt added: the statement's evictions stand at the end of the list.
  for (std::size_t i = session_.budget_mark; i < decisions.size(); ++i) {
    if (decisions[i].kind != Decision::Kind::kEvict) {
      continue;
    }
    const Task& task = state.task(decisions[i].task);
    for (auto& [key, budget] : state.budgets) {
      if (budget.ns == task.ns && Matches(budget.selector, *task.labels)) {
        --budget.disruptions_allowed;
      }
    }
  }
  session_.budget_mark = decisions.size();
}

}  // namespace sublet::scheduler
