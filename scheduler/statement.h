// Statement: what a trial does to the state, as a log that can be taken back exactly: to a
// checkpoint, as a whole, or one eviction in the middle (a victim that turns out to fit where it
// was). Commit turns what is left into decisions. Simulations and real placements use the same
// calls. Threads: one, the scheduler's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "scheduler/state.h"

namespace sublet::scheduler {

struct Decision {
  enum class Kind : std::uint8_t { kBind, kEvict, kPipeline };
  Kind kind = Kind::kBind;
  TaskId task = kNone;
  std::string pod_uid, ns, name;
  std::string node;
  std::vector<std::string> gpu_groups;   // shared devices: their ids on the node
  std::vector<std::string> gpu_devices;  // whole devices: UUIDs, when the node has them
  std::vector<ClaimSpec> claims;         // as the pod needs them: allocated and reserved
  // Evictions: who asked, why (KAI's text), and how many go with it.
  std::string action, message, preemptor;
  int gang_size = 0;
};

class Statement {
 public:
  explicit Statement(State& state) : state_(state) {}
  ~Statement() { Discard(); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  using Checkpoint = std::size_t;
  Checkpoint Mark() const { return ops_.size(); }
  void Rollback(Checkpoint to);
  void Discard() { Rollback(0); }
  bool Empty() const { return ops_.empty(); }

  // Frees what the task holds once it is gone.
  void Evict(TaskId task, std::string action, std::string message, std::string preemptor,
             int gang_size);
  void Allocate(TaskId task, NodeId node, const std::vector<int>& groups);
  // Promises a place. A task that this statement evicted from the same node, and from the same
  // devices, is put back instead.
  void Pipeline(TaskId task, NodeId node, const std::vector<int>& groups, bool may_unevict);
  // Nothing of `job` is bound until all of it can be: its allocations become promises.
  void ConvertToPipelined(JobId job);
  // Appends the decisions; the state keeps the result.
  void Commit(std::vector<Decision>* decisions);

 private:
  enum class Kind : std::uint8_t { kEvict, kAllocate, kPipeline, kUndo };
  struct Op {
    Kind kind = Kind::kEvict;
    TaskId task = kNone;
    bool valid = true;
    std::size_t undone = 0;     // kUndo: which operation it took back
    std::size_t placement = 0;  // index in Task::placements
    Status status = Status::kPending;
    NodeId node = kNone;
    std::vector<int> groups;
    Quota accepted{};
    std::int64_t dra = 0, dra_quota = 0;
    bool tentative = false;
    std::vector<ClaimSpec> claims;  // as they were
    std::string action, message, preemptor;
    int gang_size = 0;
  };

  Op Before(Kind kind, TaskId task) const;
  void Restore(const Op& op);
  void DoEvict(Op& op);
  void Undo(std::size_t index);
  void TakeClaims(TaskId task, NodeId node, Op* op);
  void DropClaims(TaskId task, Op* op);

  State& state_;
  std::vector<Op> ops_;
};

}  // namespace sublet::scheduler
