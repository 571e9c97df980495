// Solver: which running pods must leave so that a pending job fits. Pods of the job are added one
// by one; for each, victims are taken in the given order until a simulation places the job (and as
// many of the victims as still fit elsewhere) and the action's rules accept the result. Every
// placement attempt is a counted step; when the cycle's steps are used up the search stops with
// Session::out_of_steps and the job is tried again, later in the order, next time: from where it
// stopped, if nothing changed. Three rooms: solver.cc has what all versions of KAI share and the
// search up to 0.15, victim_search.cc the one since (Profile::smart_search), victim_rooms.cc what
// is ruled out by counting. Source: reference facts on KAI 3.4. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "scheduler/allocate.h"
#include "scheduler/job_order.h"

namespace sublet::scheduler {

struct VictimJob {
  JobId job = kNone;
  std::vector<TaskId> tasks;
};

// A set of victims for the first k pods of a job.
struct Scenario {
  const JobView* preemptor = nullptr;
  std::vector<VictimJob> victims;  // recorded and potential, in the order in which they were added
};

class Solver {
 public:
  using Victims = std::function<std::unique_ptr<JobOrder>()>;
  using Validator = std::function<bool(const Scenario&)>;

  Solver(Session& session, TopologyCache& topologies, Action action, Victims victims,
         Validator validator)
      : session_(session),
        allocator_(session, topologies),
        action_(action),
        victims_(std::move(victims)),
        validator_(std::move(validator)) {}

  // True when the whole batch of `job` is placed (as promises) in `statement`.
  bool Solve(JobId job, Statement& statement);

 private:
  using Unit = std::vector<TaskId>;
  struct Search {
    JobView preemptor;
    std::vector<Unit> recorded;  // victims of the solution for k - 1 pods
    std::vector<TaskId> recorded_tasks;
    std::map<JobId, std::vector<Unit>> units;  // recorded and potential, by job
    std::vector<JobId> order;                  // jobs of `units`, as added
    std::map<NodeId, std::vector<JobId>> on_node;
    JobId latest = kNone;
    std::set<NodeId> feasible;
    std::set<NodeId> opened;  // nodes of rejected scenarios, feasible from then on
    std::int64_t scenarios = 0;
    // Devices per node that are free or would be without the victims; -1 = not counted. Doubles,
    // summed as KAI sums them: what its rounding keeps out is kept out here.
    std::vector<double> room;
    std::vector<NodeId> roomiest;  // as many nodes as pods are pending, most room first
    std::vector<double> wanted;    // what the pending pods ask for, most first
    std::vector<Unit> potential;   // the units that are not recorded, as added
  };
  struct Outcome {
    bool simulated = false;  // the preemptor was placed
    bool valid = false;      // and the rules accept it
  };
  // Of Profile::smart_search.
  enum class Probe : std::uint8_t { kSolved, kUnsolved, kCutOff };
  struct Halving {
    int grouping = 0;               // 0: the victims of one node at a time, 1: of ever more nodes
    std::size_t low = 0, high = 0;  // parts known to be solvable and not (0 = none is known)
    std::size_t part = 1;
    bool last = false;  // the whole batch is tried
    bool Next(std::size_t all, bool solved);
  };

  bool Resume(Job& job, std::size_t* part);
  void CutOff(Job& job, const Search& search, std::size_t part);
  void StartPart(JobId job, const std::vector<TaskId>& pending, Search& search);
  void Keep(const std::map<JobId, std::vector<Unit>>& units, const std::vector<TaskId>& victims);
  bool SolvePart(JobId job, const std::vector<TaskId>& pending, Statement& statement);
  bool TryScenario(Search& search, Statement& statement);
  bool AddVictims(Search& search, JobOrder& queue);
  Outcome Simulate(Search& search, Statement& statement, const std::vector<TaskId>& victims);
  bool PlaceAll(Search& search, Statement& statement, const std::vector<TaskId>& victims);
  void EvictAll(Search& search, Statement& statement, const std::vector<TaskId>& tasks);
  void AddUnit(Search& search, const Unit& unit, bool potential);
  // scheduler/victim_rooms.cc
  std::set<NodeId> FeasibleNodes(const Job& job);
  bool EnoughGpus(const Search& search) const;
  void CountRooms(Search& search);
  void FreeRoom(Search& search, const Task& victim);
  double RoomOf(NodeId id) const;
  double Wanted(const Task& task) const;
  double Freed(const Task& victim) const;
  bool CouldEverFit(const std::vector<TaskId>& tasks);
  // Profile::smart_search, scheduler/victim_search.cc.
  bool SolveByHalving(JobId job, const std::vector<TaskId>& batch, Statement& statement);
  Probe ProbePart(JobId job, const std::vector<TaskId>& pending, Halving& at, Statement& statement);
  std::vector<std::vector<Unit>> VictimSets(const Search& search, int grouping) const;
  std::vector<std::vector<Unit>> NodeSetsOfLatest(const Search& search) const;
  std::vector<std::vector<Unit>> GrowingSets(const Search& search) const;
  bool TrySet(Search& search, const std::vector<Unit>& chosen, Statement& statement);
  void CutOffAt(JobId job, const Search& search, const Halving& at, std::size_t set);

  Session& session_;
  Allocator allocator_;
  Action action_;
  Victims victims_;
  Validator validator_;
  std::vector<Unit> kept_units_;  // what the next, larger part starts from
  std::vector<TaskId> kept_tasks_;
  std::int64_t skip_ = 0;           // scenarios that an earlier, cut-off search has tried
  std::set<NodeId> opened_before_;  // and the nodes they opened
  std::size_t skip_sets_ = 0;       // of the last of these: the sets of victims that were tried
  std::set<SetPrint> failed_;       // sets of victims that did not help, over all parts
};

}  // namespace sublet::scheduler
