#include "scheduler/kube_preempt.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "scheduler/filters.h"
#include "scheduler/messages.h"
#include "scheduler/statement.h"

namespace sublet::scheduler {

namespace {

struct Plan {
  NodeId node = kNone;
  std::vector<TaskId> victims;
  int violations = 0;
  // Smaller is better, in kube-scheduler's order.
  auto Key(const State& state) const {
    std::int64_t highest = victims.empty() ? INT64_MIN : state.task(victims.front()).priority;
    std::int64_t sum = 0;
    Millis youngest = kNever;
    for (TaskId id : victims) {
      // Shifted so that a sum of negative priorities is not better than fewer victims.
      sum += static_cast<std::int64_t>(state.task(id).priority) + (INT64_C(1) << 31) + 1;
      if (state.task(id).priority == highest) {
        youngest = std::min(youngest, state.task(id).created);
      }
    }
    return std::tuple(violations, highest, sum, victims.size(), -youngest,
                      state.hot[static_cast<std::size_t>(node)].rank);
  }
};

bool FitsHere(Session& session, const Task& task, NodeId node) {
  return FitsLater(session.state, task, node) && Filter(session, task, node).empty();
}

// Which of the victims (most important first) would break a disruption budget.
std::vector<bool> Violations(const State& state, const std::vector<TaskId>& victims) {
  std::map<std::string, int> taken;
  std::vector<bool> breaks;
  for (TaskId id : victims) {
    const Task& task = state.task(id);
    bool over = false;
    for (const auto& [key, budget] : state.budgets) {
      if (budget.ns == task.ns && Matches(budget.selector, *task.labels)) {
        over = ++taken[key] > budget.disruptions_allowed || over;
      }
    }
    breaks.push_back(over);
  }
  return breaks;
}

bool MoreImportant(const Task& l, const Task& r) {
  return l.priority != r.priority ? l.priority > r.priority
                                  : std::tie(l.created, l.uid) < std::tie(r.created, r.uid);
}

// All lower pods of the node go; then as many as possible come back, most important first.
std::optional<Plan> PlanFor(Session& session, TaskId id, NodeId node) {
  State& state = session.state;
  const Task& task = state.task(id);
  std::vector<TaskId> lower;
  for (TaskId other : state.nodes[static_cast<std::size_t>(node)].tasks) {
    const Task& pod = state.task(other);
    if (pod.job != kNone && state.job(pod.job).profile == session.profile_index &&
        pod.priority < task.priority && CountsForQuota(pod.status) && pod.node == node) {
      lower.push_back(other);
    }
  }
  if (lower.empty()) {
    return std::nullopt;
  }
  std::sort(lower.begin(), lower.end(), [&](TaskId a, TaskId b) {
    const Task& l = state.task(a);
    const Task& r = state.task(b);
    return MoreImportant(l, r);
  });
  const std::vector<bool> breaks = Violations(state, lower);
  std::vector<std::size_t> order;
  for (bool first : {true, false}) {
    for (std::size_t i = 0; i < lower.size(); ++i) {
      if (breaks[i] == first) {
        order.push_back(i);
      }
    }
  }
  // Gone pods are taken off the node altogether, so that their ports and terms do not count either.
  const auto remove = [&](TaskId victim) { state.SetPresence(victim, false); };
  const auto restore = [&](TaskId victim) { state.SetPresence(victim, true); };
  for (TaskId victim : lower) {
    remove(victim);
  }
  std::optional<Plan> plan;
  if (FitsHere(session, task, node)) {
    plan.emplace();
    plan->node = node;
    for (std::size_t i : order) {
      restore(lower[i]);
      if (!FitsHere(session, task, node)) {
        remove(lower[i]);
        plan->victims.push_back(lower[i]);
        plan->violations += breaks[i] ? 1 : 0;
      }
    }
    std::sort(plan->victims.begin(), plan->victims.end(),
              [&](TaskId a, TaskId b) { return state.task(a).priority > state.task(b).priority; });
    for (TaskId victim : plan->victims) {
      restore(victim);
    }
  } else {
    for (TaskId victim : lower) {
      restore(victim);
    }
  }
  return plan;
}

}  // namespace

void RunKubePreempt(Session& session) {
  State& state = session.state;
  std::vector<TaskId> pending;
  for (JobId job : state.pending_jobs) {
    if (!session.Mine(state.job(job))) {
      continue;
    }
    for (const PodSet& set : state.job(job).pod_sets) {
      for (TaskId id : set.tasks) {
        if (state.task(id).status == Status::kPending && state.task(id).retry_at <= session.now) {
          pending.push_back(id);
        }
      }
    }
  }
  std::sort(pending.begin(), pending.end(), [&](TaskId a, TaskId b) {
    const Task& l = state.task(a);
    const Task& r = state.task(b);
    return MoreImportant(l, r);
  });
  for (TaskId id : pending) {
    if (session.steps_left <= 0) {
      session.out_of_steps = true;
      return;
    }
    const Task& task = state.task(id);
    Job& job = state.job(task.job);
    if (!PreFilter(session, task).empty()) {
      continue;
    }
    std::optional<Plan> best;
    std::map<std::string, int> reasons;
    for (NodeId node : state.NodesByName()) {
      --session.steps_left;
      ++session.simulated;
      std::optional<Plan> plan = task.never_preempts ? std::nullopt : PlanFor(session, id, node);
      if (plan.has_value() && (!best.has_value() || plan->Key(state) < best->Key(state))) {
        best = std::move(plan);
      } else if (!plan.has_value()) {
        ++reasons[task.never_preempts ? "Preemption is not helpful for scheduling"
                                      : "No preemption victims found for incoming pod"];
      }
    }
    if (!best.has_value()) {
      const std::string text =
          " preemption: " + KubeHistogram(static_cast<int>(state.NodesByName().size()), reasons);
      if (!job.failures.empty() &&
          job.failures.back().message.find(" preemption: ") == std::string::npos) {
        job.failures.back().message += text;
        job.task_failures[id] += text;
      }
      continue;
    }
    Statement statement(state);
    for (TaskId victim : best->victims) {
      statement.Evict(victim, ActionName(Action::kPreempt),
                      "Preempted by pod " + task.uid + " on node " +
                          state.nodes[static_cast<std::size_t>(best->node)].spec.name,
                      task.ns + "/" + task.name, static_cast<int>(best->victims.size()));
    }
    std::vector<int> groups;
    if (task.shape->shared) {
      groups = ChooseGroups(session, task, best->node, true).groups;
    }
    statement.Pipeline(id, best->node, groups, false);
    statement.Commit(&session.decisions);
  }
}

}  // namespace sublet::scheduler
