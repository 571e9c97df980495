// The victim search of KAI from 0.16 on (Profile::smart_search; Solver in scheduler/solver.h). First
// the victims that share a node with the one added last are tried, node by node; then, all over
// again, the victims of ever more nodes, those with little to free first. Within each of the two
// the largest number of pods that can be placed is found by doubling and halving, and then the
// whole batch is tried with the victims of that number. Threads: one, the scheduler's.
#include <algorithm>

#include "scheduler/solver.h"

namespace sublet::scheduler {

namespace {

constexpr int kByNode = 0;
constexpr int kGrowing = 1;
// Beside what is placed, a step stands for so many victims that are evicted and brought back, and
// for so many that are put into sets. Charged behind the work: every cycle comes at least one on.
constexpr std::size_t kEvictionsOfAStep = 16;
constexpr std::size_t kUnitsOfAStep = 32;

// A number's hash (the finishing steps of MurmurHash3 with `seed`).
std::uint64_t Mix(std::uint64_t value, std::uint64_t seed) {
  value += seed;
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdULL;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return value ^ (value >> 33);
}

// Two attempts with the same pods, the same recorded and the same further victims end alike. In
// whatever order they come the sums are the same.
SetPrint PrintOf(const std::vector<TaskId>& pending, const std::vector<TaskId>& recorded,
                 const std::vector<std::vector<TaskId>>& chosen) {
  SetPrint print{0, 0};
  const auto add = [&](TaskId id, std::uint64_t role) {
    const std::uint64_t value = (static_cast<std::uint64_t>(id) << 2) | role;
    print.first += Mix(value, 0x9e3779b97f4a7c15ULL);
    print.second += Mix(value, 0xd1b54a32d192ed03ULL);
  };
  for (TaskId id : pending) {
    add(id, 0);
  }
  for (TaskId id : recorded) {
    add(id, 1);
  }
  for (const std::vector<TaskId>& unit : chosen) {
    for (TaskId id : unit) {
      add(id, 2);
    }
  }
  return print;
}

}  // namespace

// Moves on to the next probe. Returns false when the grouping has no more.
bool Solver::Halving::Next(std::size_t all, bool solved) {
  if (last) {
    return false;
  }
  (solved ? low : high) = part;
  if (high == 0 && low < all) {
    part = std::min(2 * low, all);
  } else if (high != 0 && high - low > 1) {
    part = (low + high) / 2;
  } else if (low == 0) {
    return false;
  } else {
    last = true;
    part = all;
  }
  return true;
}

bool Solver::SolveByHalving(JobId id, const std::vector<TaskId>& batch, Statement& statement) {
  Job& job = session_.state.job(id);
  failed_.clear();
  Halving at;
  const std::shared_ptr<SearchMark> mark = job.search;
  std::size_t part = 0;
  if (Resume(job, &part)) {
    at = {mark->grouping, mark->low, mark->high, part, mark->last};
    skip_sets_ = mark->sets;
    failed_ = std::move(mark->failed);
  }
  for (; at.grouping <= kGrowing; at = {at.grouping + 1, 0, 0, 1, false}) {
    for (bool more = true; more;) {
      const std::vector<TaskId> pending(
          batch.begin(),
          batch.begin() + static_cast<std::ptrdiff_t>(std::min(at.part, batch.size())));
      const Probe probe = ProbePart(id, pending, at, statement);
      skip_ = 0;
      skip_sets_ = 0;
      if (probe == Probe::kCutOff) {
        return false;
      }
      if (probe == Probe::kSolved && at.last) {
        return true;
      }
      statement.Discard();
      more = at.Next(batch.size(), probe == Probe::kSolved);
    }
    kept_units_.clear();
    kept_tasks_.clear();
  }
  return false;
}

Solver::Probe Solver::ProbePart(JobId id, const std::vector<TaskId>& pending, Halving& at,
                                Statement& statement) {
  Search search;
  StartPart(id, pending, search);
  const std::unique_ptr<JobOrder> queue = victims_();
  for (bool first = true;; first = false) {
    if (!first) {
      if (queue->Empty()) {
        return Probe::kUnsolved;
      }
      if (!AddVictims(search, *queue)) {
        continue;
      }
      ++search.scenarios;
    }
    if (search.scenarios < skip_) {
      continue;
    }
    if (!EnoughGpus(search)) {
      ++session_.filtered;
      continue;
    }
    std::size_t next = search.scenarios == skip_ ? skip_sets_ : 0;
    if (session_.steps_left <= 0) {
      CutOffAt(id, search, at, next);
      return Probe::kCutOff;
    }
    const std::vector<std::vector<Unit>> sets = VictimSets(search, at.grouping);
    for (; next < sets.size(); ++next) {
      const SetPrint print = PrintOf(pending, search.recorded_tasks, sets[next]);
      if (failed_.count(print) != 0) {
        continue;
      }
      if (session_.steps_left <= 0) {
        CutOffAt(id, search, at, next);
        return Probe::kCutOff;
      }
      --session_.steps_left;
      ++session_.simulated;
      if (TrySet(search, sets[next], statement)) {
        return Probe::kSolved;
      }
      failed_.insert(print);
    }
    session_.steps_left -=
        static_cast<std::int64_t>(search.potential.size() * sets.size() / kUnitsOfAStep);
  }
}

void Solver::CutOffAt(JobId id, const Search& search, const Halving& at, std::size_t set) {
  Job& job = session_.state.job(id);
  CutOff(job, search, at.part);
  SearchMark& mark = *job.search;
  mark.grouping = at.grouping;
  mark.low = at.low;
  mark.high = at.high;
  mark.last = at.last;
  mark.sets = set;
  mark.failed = std::move(failed_);
}

// The sets of further victims to try, beside the recorded ones, after the latest was added.
std::vector<std::vector<Solver::Unit>> Solver::VictimSets(const Search& search,
                                                          int grouping) const {
  if (search.latest == kNone) {
    return search.recorded_tasks.empty() ? std::vector<std::vector<Unit>>{}
                                         : std::vector<std::vector<Unit>>{{}};
  }
  return grouping == kByNode ? NodeSetsOfLatest(search) : GrowingSets(search);
}

// For each node of the latest victim job: all pods, wherever they are, of the victim jobs there.
std::vector<std::vector<Solver::Unit>> Solver::NodeSetsOfLatest(const Search& search) const {
  const State& state = session_.state;
  std::set<int> ranks;
  std::vector<NodeId> nodes;
  for (const PodSet& set : state.job(search.latest).pod_sets) {
    for (TaskId id : set.tasks) {
      const NodeId node = state.task(id).node;
      if (node != kNone && ranks.insert(state.hot[static_cast<std::size_t>(node)].rank).second) {
        nodes.push_back(node);
      }
    }
  }
  std::sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) {
    return state.hot[static_cast<std::size_t>(a)].rank <
           state.hot[static_cast<std::size_t>(b)].rank;
  });
  std::vector<std::vector<Unit>> sets;
  for (NodeId node : nodes) {
    const auto here = search.on_node.find(node);
    if (here == search.on_node.end()) {
      continue;
    }
    std::vector<Unit> chosen;
    for (JobId job : here->second) {
      Unit whole;
      for (const Unit& unit : search.units.at(job)) {
        for (TaskId id : unit) {
          if (std::find(search.recorded_tasks.begin(), search.recorded_tasks.end(), id) ==
              search.recorded_tasks.end()) {
            whole.push_back(id);
          }
        }
      }
      chosen.push_back(std::move(whole));
    }
    sets.push_back(std::move(chosen));
  }
  return sets;
}

// The victims of the first k nodes, for growing k. Nodes that can take none of the pods are left
// out; those with the least to free come first; the first k is what the demand needs at least.
std::vector<std::vector<Solver::Unit>> Solver::GrowingSets(const Search& search) const {
  const State& state = session_.state;
  std::map<NodeId, double> capacity;
  std::map<NodeId, double> recorded;
  std::vector<NodeId> nodes;  // by first appearance
  for (TaskId id : search.recorded_tasks) {
    const Task& task = state.task(id);
    if (task.node != kNone) {
      recorded[task.node] += Freed(task);
    }
  }
  for (const Unit& unit : search.potential) {
    for (TaskId id : unit) {
      const Task& task = state.task(id);
      if (task.node == kNone) {
        continue;
      }
      auto [it, added] = capacity.try_emplace(task.node, 0);
      if (added) {
        nodes.push_back(task.node);
        it->second = recorded[task.node] + RoomOf(task.node);
      }
      it->second += Freed(task);
    }
  }
  double demand = 0;
  for (double wanted : search.wanted) {
    demand += wanted;
  }
  const double least = search.wanted.empty() ? 0 : search.wanted.back();
  for (NodeId node : search.feasible) {
    demand -= capacity.count(node) == 0 ? RoomOf(node) + recorded[node] : 0;
  }
  std::erase_if(nodes, [&](NodeId node) { return least > 0 && capacity[node] < least; });
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](NodeId a, NodeId b) { return capacity[a] < capacity[b]; });
  std::size_t k = 0;
  for (double covered = 0; covered < demand; ++k) {
    if (k == nodes.size()) {
      return {};
    }
    covered += capacity[nodes[k]];
  }
  std::map<NodeId, std::size_t> place;
  for (NodeId node : nodes) {
    place.emplace(node, place.size());
  }
  std::vector<std::size_t> first;  // of each unit: the first of the nodes that it is on
  for (const Unit& unit : search.potential) {
    std::size_t nearest = nodes.size();
    for (TaskId id : unit) {
      const auto at = place.find(state.task(id).node);
      nearest = at == place.end() ? nearest : std::min(nearest, at->second);
    }
    first.push_back(nearest);
  }
  std::vector<std::vector<Unit>> sets;
  for (std::size_t step = 1;; step *= 2) {
    std::vector<Unit> chosen;
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (first[i] < k) {
        chosen.push_back(search.potential[i]);
      }
    }
    sets.push_back(std::move(chosen));
    if (k == nodes.size()) {
      return sets;
    }
    k = std::min(k + step, nodes.size());
  }
}

// Evicts the recorded victims and `chosen`, places the pods and what of the victims still fits, and
// asks the action's rules.
bool Solver::TrySet(Search& search, const std::vector<Unit>& chosen, Statement& statement) {
  State& state = session_.state;
  statement.Discard();
  std::map<JobId, std::vector<Unit>> units;
  std::vector<JobId> order;
  std::vector<TaskId> victims = search.recorded_tasks;
  const auto add = [&](const Unit& unit) {
    if (unit.empty()) {
      return;
    }
    const JobId job = state.task(unit.front()).job;
    if (units.find(job) == units.end()) {
      order.push_back(job);
    }
    units[job].push_back(unit);
  };
  for (const Unit& unit : search.recorded) {
    add(unit);
  }
  for (const Unit& unit : chosen) {
    add(unit);
    victims.insert(victims.end(), unit.begin(), unit.end());
  }
  if (victims.empty()) {
    return false;
  }
  std::vector<NodeId> opened;
  for (TaskId id : victims) {
    if (state.task(id).node != kNone && search.feasible.insert(state.task(id).node).second) {
      opened.push_back(state.task(id).node);
    }
  }
  session_.steps_left -= static_cast<std::int64_t>(victims.size() / kEvictionsOfAStep);
  EvictAll(search, statement, victims);
  bool solved = PlaceAll(search, statement, victims);
  if (solved) {
    Scenario scenario;
    scenario.preemptor = &search.preemptor;
    for (JobId job : order) {
      scenario.victims.push_back({job, {}});
      for (const Unit& unit : units[job]) {
        scenario.victims.back().tasks.insert(scenario.victims.back().tasks.end(), unit.begin(),
                                             unit.end());
      }
    }
    solved = validator_(scenario);
  }
  if (solved) {
    Keep(units, victims);
    return true;
  }
  for (NodeId id : opened) {
    search.feasible.erase(id);
  }
  statement.Discard();
  return false;
}

}  // namespace sublet::scheduler
