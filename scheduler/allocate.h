// Placing the next batch of a job: sub group by sub group, pod by pod, on the best node that fits,
// for real or as promises only. Everything happens in a Statement; a batch is placed whole or not
// at all. Threads: one.
#pragma once

#include <vector>

#include "scheduler/session.h"
#include "scheduler/statement.h"
#include "scheduler/topology.h"

namespace sublet::scheduler {

class Allocator {
 public:
  Allocator(Session& session, TopologyCache& topologies)
      : session_(session), topologies_(topologies) {}

  // Places the next batch of `view` on `nodes` (by name). `simulate`: promises only, pods that the
  // statement evicted may be placed again, and no failure texts are kept. Returns false, with
  // nothing changed, when some pod of the batch finds no place.
  bool Place(Statement& statement, const std::vector<NodeId>& nodes, const JobView& view,
             bool simulate);

  // "" or the reason why the batch exceeds a limit or the quota of non-preemptible pods.
  // Fills *failure.
  bool OverCapacity(const Job& job, const Quota& asked, bool limits, JobFailure* failure);
  // What the pods ask for as limits and quotas count it: gpu-memory requests not at all before KAI
  // 0.16.2 and since then at the size of the largest device, the least they can cost.
  static Quota LeastAsked(const State& state, const std::vector<TaskId>& tasks);

 private:
  bool PlaceGroup(int group, const std::vector<NodeId>& nodes, const std::vector<TaskId>& tasks);
  bool PlacePodSet(int set, const std::vector<NodeId>& nodes, const std::vector<TaskId>& tasks);
  bool PlaceTask(TaskId task, const std::vector<NodeId>& nodes);
  bool PlaceOn(TaskId task, NodeId node);
  void ReportFailure(TaskId task, const std::vector<NodeId>& nodes, int placed);
  bool Memoizable(const Task& task, const std::vector<NodeId>& nodes) const;
  std::string FailureText(const Task& task, const std::vector<NodeId>& nodes);
  std::vector<int> SetsBelow(const Job& job, int group) const;
  std::vector<int> SetsOf(const Job& job, int group, const std::vector<TaskId>& tasks) const;
  std::vector<Member> PlacingOrder(int group) const;

  struct Candidate {
    double score = 0;
    int rank = 0;
    NodeId node = kNone;
    // Best first in a heap whose top is its largest element.
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : rank > other.rank;
    }
  };
  void ScoreNodes(const Task& task, const std::vector<NodeId>& nodes);
  void AddSpecialScores(const Task& task, const std::vector<NodeId>& nodes);
  const std::map<NodeId, double>* TopologyScores(const Task& task) const;

  Session& session_;
  TopologyCache& topologies_;
  Statement* statement_ = nullptr;
  const JobView* view_ = nullptr;
  bool simulate_ = false;
  std::vector<Candidate> candidates_;  // kept between calls for its memory
};

}  // namespace sublet::scheduler
