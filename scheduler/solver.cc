#include "scheduler/solver.h"

#include <algorithm>

#include "scheduler/messages.h"

namespace sublet::scheduler {

// Takes up a search that ran out of steps, if nothing changed since.
bool Solver::Resume(Job& job, std::size_t* part) {
  const std::shared_ptr<SearchMark> mark = std::move(job.search);
  job.search.reset();
  if (mark == nullptr || mark->action != static_cast<int>(action_) ||
      !(mark->at == session_.MarkOf(job))) {
    return false;
  }
  *part = mark->part;
  kept_units_ = mark->units;
  for (const Unit& unit : kept_units_) {
    kept_tasks_.insert(kept_tasks_.end(), unit.begin(), unit.end());
  }
  skip_ = mark->scenarios;
  opened_before_ = mark->opened;
  return true;
}

void Solver::CutOff(Job& job, const Search& search, std::size_t part) {
  session_.out_of_steps = true;
  job.search =
      std::make_shared<SearchMark>(SearchMark{static_cast<int>(action_), session_.MarkOf(job), part,
                                              search.recorded, search.scenarios, search.opened});
}

bool Solver::Solve(JobId id, Statement& statement) {
  State& state = session_.state;
  Job& job = state.job(id);
  const int active = job.active_used;
  kept_units_.clear();
  kept_tasks_.clear();
  std::size_t part = 0;
  const std::vector<TaskId> batch = Batch(state, JobView::Whole(id), true);
  if (!CouldEverFit(batch)) {
    return false;
  }
  if (session_.profile.smart_search) {
    if (!batch.empty() && SolveByHalving(id, batch, statement) && job.active_used > active &&
        GangSatisfied(job)) {
      return true;
    }
    statement.Discard();
    return false;
  }
  Resume(job, &part);
  std::vector<TaskId> pending(
      batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(std::min(part, batch.size())));
  for (std::size_t i = pending.size(); i < batch.size(); ++i) {
    pending.push_back(batch[i]);
    if (!SolvePart(id, pending, statement)) {
      statement.Discard();
      return false;
    }
    skip_ = 0;
    opened_before_.clear();
    if (pending.size() != batch.size()) {
      statement.Discard();
    }
  }
  if (batch.empty() || job.active_used <= active || !GangSatisfied(job)) {
    statement.Discard();
    return false;
  }
  return true;
}

void Solver::AddUnit(Search& search, const Unit& unit, bool potential) {
  const State& state = session_.state;
  const JobId job = state.task(unit.front()).job;
  auto [it, added] = search.units.try_emplace(job);
  if (added) {
    search.order.push_back(job);
  }
  it->second.push_back(unit);
  for (TaskId id : unit) {
    const Task& task = state.task(id);
    if (task.node == kNone) {
      continue;
    }
    FreeRoom(search, task);
    if (potential) {
      auto& jobs = search.on_node[task.node];
      if (std::find(jobs.begin(), jobs.end(), job) == jobs.end()) {
        jobs.push_back(job);
      }
    }
  }
  if (potential) {
    search.latest = job;
    search.potential.push_back(unit);
  }
}

// The search for the first pods of a batch, from the victims of the last one that succeeded.
void Solver::StartPart(JobId id, const std::vector<TaskId>& pending, Search& search) {
  State& state = session_.state;
  std::vector<TaskId> members = pending;
  if (session_.profile
          .smart_search) {  // from KAI 0.16 on the pods that hold something belong to it
    for (const PodSet& set : state.job(id).pod_sets) {
      std::copy_if(set.tasks.begin(), set.tasks.end(), std::back_inserter(members),
                   [&](TaskId task) { return ActiveAllocated(state.task(task).status); });
    }
  }
  search.preemptor = JobView::Part(state, id, members, true);
  search.preemptor.request = BatchRequest(state, search.preemptor);
  search.feasible = FeasibleNodes(state.job(id));
  for (TaskId task : pending) {
    search.wanted.push_back(Wanted(state.task(task)));
  }
  std::sort(search.wanted.begin(), search.wanted.end(), std::greater<>());
  CountRooms(search);
  search.recorded = kept_units_;
  search.recorded_tasks = kept_tasks_;
  for (const Unit& unit : search.recorded) {
    AddUnit(search, unit, false);
    for (TaskId task : unit) {
      if (state.task(task).node != kNone) {
        search.feasible.insert(state.task(task).node);
      }
    }
  }
}

bool Solver::SolvePart(JobId id, const std::vector<TaskId>& pending, Statement& statement) {
  State& state = session_.state;
  Search search;
  StartPart(id, pending, search);
  search.feasible.insert(opened_before_.begin(), opened_before_.end());
  search.opened = opened_before_;
  const std::unique_ptr<JobOrder> queue = victims_();
  for (bool first = true;; first = false) {
    if (!first) {
      if (queue->Empty()) {
        return false;
      }
      if (!AddVictims(search, *queue)) {
        continue;
      }
    }
    if (search.scenarios < skip_) {
      ++search.scenarios;
      continue;
    }
    if (session_.steps_left <= 0) {
      CutOff(state.job(id), search, pending.size() - 1);
      return false;
    }
    --session_.steps_left;
    ++search.scenarios;
    if (!EnoughGpus(search)) {
      ++session_.filtered;
      continue;
    }
    ++session_.simulated;
    if (TryScenario(search, statement)) {
      return true;
    }
  }
}

bool Solver::AddVictims(Search& search, JobOrder& queue) {
  State& state = session_.state;
  const std::shared_ptr<JobView> victim = queue.Pop();
  const auto [unit, more] = EvictionUnit(state, *victim);
  const Job& job = state.job(victim->job);
  const auto push_without = [&](const auto& skip) {
    std::vector<TaskId> rest;
    for (std::size_t set = 0; set < job.pod_sets.size(); ++set) {
      for (TaskId id : victim->Tasks(job, set)) {
        if (!skip(id)) {
          rest.push_back(id);
        }
      }
    }
    if (!rest.empty()) {
      queue.Push(std::make_shared<JobView>(JobView::Part(state, victim->job, rest, false)));
    }
  };
  const auto recorded = [&](TaskId id) {
    return std::find(search.recorded_tasks.begin(), search.recorded_tasks.end(), id) !=
           search.recorded_tasks.end();
  };
  if (std::any_of(unit.begin(), unit.end(), recorded)) {
    push_without(recorded);
    return false;
  }
  if (more) {
    push_without([&tasks = unit](TaskId id) {
      return std::find(tasks.begin(), tasks.end(), id) != tasks.end();
    });
  }
  if (unit.empty()) {
    return false;
  }
  AddUnit(search, unit, true);
  return true;
}

void Solver::EvictAll(Search& search, Statement& statement, const std::vector<TaskId>& tasks) {
  State& state = session_.state;
  const Job& winner = state.job(search.preemptor.job);
  for (TaskId id : tasks) {
    const Task& task = state.task(id);
    if (task.status == Status::kReleasing) {
      continue;
    }
    std::string message = action_ == Action::kPreempt         ? PreemptMessage(task, winner)
                          : action_ == Action::kConsolidation ? ConsolidateMessage(task)
                                                              : ReclaimMessage(state, task, winner);
    statement.Evict(id, ActionName(action_), std::move(message), winner.key,
                    static_cast<int>(tasks.size()));
  }
}

bool Solver::TryScenario(Search& search, Statement& statement) {
  State& state = session_.state;
  statement.Discard();
  EvictAll(search, statement, search.recorded_tasks);
  if (search.latest == kNone) {
    if (search.recorded_tasks.empty()) {
      return false;
    }
    const Outcome outcome = Simulate(search, statement, search.recorded_tasks);
    if (outcome.valid) {
      return true;
    }
    statement.Discard();
    return false;
  }
  // Nodes of the latest victim, by name; its pods that have none yet stand for "no further victim".
  std::vector<NodeId> nodes;
  for (const PodSet& set : state.job(search.latest).pod_sets) {
    for (TaskId id : set.tasks) {
      nodes.push_back(state.task(id).node);
    }
  }
  std::sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) {
    const auto rank = [&](NodeId id) {
      return id == kNone ? -1 : state.hot[static_cast<std::size_t>(id)].rank;
    };
    return rank(a) < rank(b);
  });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  for (NodeId node : nodes) {
    const auto mark = statement.Mark();
    std::vector<TaskId> victims = search.recorded_tasks;
    std::vector<TaskId> fresh;
    if (auto it = search.on_node.find(node); it != search.on_node.end()) {
      for (JobId job : it->second) {
        for (const Unit& unit : search.units[job]) {
          for (TaskId id : unit) {
            if (std::find(victims.begin(), victims.end(), id) == victims.end()) {
              victims.push_back(id);
              fresh.push_back(id);
            }
          }
        }
      }
    }
    std::vector<NodeId> opened;
    for (TaskId id : fresh) {
      if (state.task(id).node != kNone && search.feasible.insert(state.task(id).node).second) {
        opened.push_back(state.task(id).node);
      }
    }
    EvictAll(search, statement, fresh);
    const Outcome outcome = Simulate(search, statement, victims);
    if (outcome.valid) {
      return true;
    }
    if (outcome.simulated) {
      // Placed, but against the rules: other nodes of the same victim are not tried.
      search.opened.insert(opened.begin(), opened.end());
      statement.Discard();
      return false;
    }
    for (NodeId id : opened) {
      search.feasible.erase(id);
    }
    statement.Rollback(mark);
  }
  statement.Discard();
  return false;
}

bool Solver::PlaceAll(Search& search, Statement& statement, const std::vector<TaskId>& victims) {
  State& state = session_.state;
  std::set<JobId> wanted{search.preemptor.job};
  for (TaskId id : victims) {
    wanted.insert(state.task(id).job);
  }
  std::vector<NodeId> nodes;
  for (NodeId id : state.NodesByName()) {
    if (search.feasible.count(id) != 0) {
      nodes.push_back(id);
    }
  }
  // Other pending jobs take part in the order, but not in the placement.
  JobOrder order(session_, false, -1);
  for (JobId id : state.pending_jobs) {
    if (wanted.count(id) == 0 && session_.Mine(state.job(id)) &&
        ReadyForScheduling(state.job(id))) {
      order.Push(std::make_shared<JobView>(JobView::Whole(id)));
    }
  }
  for (JobId id : wanted) {
    order.Push(std::make_shared<JobView>(id == search.preemptor.job ? search.preemptor
                                                                    : JobView::Whole(id)));
  }
  std::size_t left = wanted.size();
  bool placed = false;
  while (left > 0 && !order.Empty()) {
    const std::shared_ptr<JobView> view = order.Pop();
    if (wanted.count(view->job) == 0) {
      continue;
    }
    --left;
    const bool ok = allocator_.Place(statement, nodes, *view, true);
    if (view->job == search.preemptor.job) {
      if (!ok) {
        return false;
      }
      placed = true;
    }
  }
  return placed;
}

Solver::Outcome Solver::Simulate(Search& search, Statement& statement,
                                 const std::vector<TaskId>& victims) {
  Outcome outcome;
  outcome.simulated = PlaceAll(search, statement, victims);
  if (!outcome.simulated) {
    return outcome;
  }
  Scenario scenario;
  scenario.preemptor = &search.preemptor;
  for (JobId job : search.order) {
    scenario.victims.push_back({job, {}});
    for (const Unit& unit : search.units[job]) {
      scenario.victims.back().tasks.insert(scenario.victims.back().tasks.end(), unit.begin(),
                                           unit.end());
    }
  }
  outcome.valid = validator_(scenario);
  if (!outcome.valid) {
    return outcome;
  }
  Keep(search.units, victims);
  return outcome;
}

// What the next part of the gang starts from: units with a pod that left or moved.
void Solver::Keep(const std::map<JobId, std::vector<Unit>>& units,
                  const std::vector<TaskId>& victims) {
  const State& state = session_.state;
  std::vector<Unit> kept;
  std::vector<TaskId> tasks;
  for (Status status : {Status::kReleasing, Status::kPipelined}) {
    for (TaskId id : victims) {
      if (state.task(id).status == status &&
          std::find(tasks.begin(), tasks.end(), id) == tasks.end()) {
        tasks.push_back(id);
      }
    }
  }
  for (TaskId id : tasks) {
    const auto inside = [id](const Unit& unit) {
      return std::find(unit.begin(), unit.end(), id) != unit.end();
    };
    if (std::any_of(kept.begin(), kept.end(), inside)) {
      continue;
    }
    for (const Unit& unit : units.at(state.task(id).job)) {
      if (inside(unit)) {
        kept.push_back(unit);
        break;
      }
    }
  }
  kept_units_ = std::move(kept);
  // KAI's next scenario evicts the pods of the recorded jobs, whole.
  kept_tasks_.clear();
  for (const Unit& unit : kept_units_) {
    kept_tasks_.insert(kept_tasks_.end(), unit.begin(), unit.end());
  }
}

}  // namespace sublet::scheduler
