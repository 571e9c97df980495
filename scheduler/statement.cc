#include "scheduler/statement.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "scheduler/claims.h"

namespace sublet::scheduler {

Statement::Op Statement::Before(Kind kind, TaskId id) const {
  const Task& task = state_.task(id);
  Op op;
  op.kind = kind;
  op.task = id;
  op.status = task.status;
  op.node = task.node;
  op.groups = task.groups;
  op.accepted = task.accepted;
  op.dra = task.dra;
  op.dra_quota = task.dra_quota;
  op.tentative = task.tentative;
  return op;
}

void Statement::Restore(const Op& op) {
  Task& task = state_.task(op.task);
  state_.SetStatus(op.task, op.status);
  task.node = op.node;
  task.groups = op.groups;
  task.accepted = op.accepted;
  task.dra = op.dra;
  task.dra_quota = op.dra_quota;
  task.tentative = op.tentative;
}

void Statement::TakeClaims(TaskId id, NodeId node, Op* op) {
  // What it is charged where it is being taken from stays.
  if (state_.task(id).placements.empty()) {
    state_.SetDra(state_.task(id));
  }
  for (const std::string& name : state_.task(id).claims) {
    auto it = state_.claims.find(state_.task(id).ns + "/" + name);
    if (it != state_.claims.end()) {
      op->claims.push_back(it->second);
    }
  }
  if (!state_.task(id).claims.empty()) {
    AllocateClaims(state_, state_.task(id), node);
  }
}

void Statement::DropClaims(TaskId id, Op* op) {
  for (const std::string& name : state_.task(id).claims) {
    auto it = state_.claims.find(state_.task(id).ns + "/" + name);
    if (it != state_.claims.end()) {
      op->claims.push_back(it->second);
      ReleaseClaim(state_, it->second, state_.task(id).uid);
    }
  }
}

void Statement::DoEvict(Op& op) {
  Task& task = state_.task(op.task);
  state_.ChargeQueues(op.task, -1);
  for (std::size_t i = task.placements.size(); i-- > 0;) {
    if (task.placements[i].node == task.node) {
      op.placement = i;
      break;
    }
  }
  state_.SetStatus(op.task, Status::kReleasing);
  if (!task.placements.empty()) {
    // Differs: KAI counts a promise that is withdrawn as something that is being freed, though
    // nothing was held; here it is just gone.
    if (op.status == Status::kPipelined) {
      state_.Unplace(op.task, op.placement);
    } else {
      state_.Reaccount(op.task, op.placement, Status::kReleasing);
    }
  }
  op.claims.clear();
  DropClaims(op.task, &op);
  task.tentative = true;
}

void Statement::Evict(TaskId id, std::string action, std::string message, std::string preemptor,
                      int gang_size) {
  Op op = Before(Kind::kEvict, id);
  op.action = std::move(action);
  op.message = std::move(message);
  op.preemptor = std::move(preemptor);
  op.gang_size = gang_size;
  DoEvict(op);
  ops_.push_back(std::move(op));
}

void Statement::Allocate(TaskId id, NodeId node, const std::vector<int>& groups) {
  Op op = Before(Kind::kAllocate, id);
  Task& task = state_.task(id);
  TakeClaims(id, node, &op);
  state_.SetStatus(id, Status::kAllocated);
  task.node = node;
  task.groups = groups;
  state_.Place(id, node, Status::kAllocated, groups);
  state_.ChargeQueues(id, 1);
  task.tentative = true;
  ops_.push_back(std::move(op));
}

void Statement::Pipeline(TaskId id, NodeId node, const std::vector<int>& groups, bool may_unevict) {
  Task& task = state_.task(id);
  if (may_unevict) {
    // The last thing done to the task: undone in the middle only when nothing of it came after.
    for (std::size_t i = ops_.size(); i-- > 0;) {
      if (ops_[i].task != id || !ops_[i].valid || ops_[i].kind == Kind::kUndo) {
        continue;
      }
      const bool moved = !groups.empty() && groups != ops_[i].groups;
      if (ops_[i].kind != Kind::kEvict || ops_[i].node != node || moved) {
        break;
      }
      Undo(i);
      Op mark = Before(Kind::kUndo, id);
      mark.undone = i;
      ops_.push_back(std::move(mark));
      return;
    }
  }
  Op op = Before(Kind::kPipeline, id);
  TakeClaims(id, node, &op);
  state_.SetStatus(id, Status::kPipelined);
  task.node = node;
  task.groups = groups;
  state_.Place(id, node, Status::kPipelined, groups);
  state_.ChargeQueues(id, 1);
  task.tentative = true;
  ops_.push_back(std::move(op));
}

void Statement::Undo(std::size_t index) {
  Op& op = ops_[index];
  if (!op.valid) {
    return;
  }
  op.valid = false;
  for (const ClaimSpec& claim : op.claims) {
    state_.claims[claim.Key()] = claim;
    state_.TouchClaims();
  }
  switch (op.kind) {
    case Kind::kEvict: {
      Restore(op);
      if (op.status == Status::kPipelined && op.node != kNone) {
        state_.Place(op.task, op.node, Status::kPipelined, op.groups);
      } else if (!state_.task(op.task).placements.empty()) {
        state_.Reaccount(op.task, op.placement, op.status);
      }
      state_.ChargeQueues(op.task, 1);
      return;
    }
    case Kind::kAllocate:
    case Kind::kPipeline:
      state_.ChargeQueues(op.task, -1);
      state_.Unplace(op.task, state_.task(op.task).placements.size() - 1);
      Restore(op);
      return;
    case Kind::kUndo:
      ops_[op.undone].valid = true;
      DoEvict(ops_[op.undone]);
      return;
  }
}

void Statement::Rollback(Checkpoint to) {
  SUBLET_CHECK(to <= ops_.size());
  for (std::size_t i = ops_.size(); i-- > to;) {
    Undo(i);
  }
  ops_.resize(to);
}

void Statement::ConvertToPipelined(JobId job) {
  for (Op& op : ops_) {
    if (op.kind != Kind::kAllocate || !op.valid || state_.task(op.task).job != job) {
      continue;
    }
    Task& task = state_.task(op.task);
    state_.SetStatus(op.task, Status::kPipelined);
    state_.Reaccount(op.task, task.placements.size() - 1, Status::kPipelined);
    op.kind = Kind::kPipeline;
  }
}

void Statement::Commit(std::vector<Decision>* decisions) {
  for (Op& op : ops_) {
    if (!op.valid || op.kind == Kind::kUndo) {
      continue;
    }
    Task& task = state_.task(op.task);
    Decision decision;
    decision.task = op.task;
    decision.pod_uid = task.uid;
    decision.ns = task.ns;
    decision.name = task.name;
    if (op.kind == Kind::kEvict) {
      decision.kind = Decision::Kind::kEvict;
      decision.node =
          op.node == kNone ? "" : state_.nodes[static_cast<std::size_t>(op.node)].spec.name;
      decision.action = op.action;
      decision.message = op.message;
      decision.preemptor = op.preemptor;
      decision.gang_size = op.gang_size;
      task.tentative = task.status != Status::kReleasing && task.tentative;
      // A promise that is withdrawn is no pod that must be deleted.
      if (op.status == Status::kPipelined) {
        if (task.status == Status::kReleasing) {
          state_.withdrawn.insert(op.task);
        }
        continue;
      }
    } else {
      decision.kind =
          op.kind == Kind::kAllocate ? Decision::Kind::kBind : Decision::Kind::kPipeline;
      decision.node = state_.nodes[static_cast<std::size_t>(task.node)].spec.name;
      if (op.kind == Kind::kAllocate) {
        state_.SetStatus(op.task, Status::kBinding);
        state_.Reaccount(op.task, task.placements.size() - 1, Status::kBinding);
        state_.ChooseDevices(op.task);
        task.tentative = false;
        state_.job(task.job).moved_in_vain = 0;
        state_.job(task.job).moves_again_at = 0;
      }
      for (int group : task.groups) {
        decision.gpu_groups.push_back(state_.group_names.Name(group));
      }
      decision.gpu_devices = task.devices;
      for (const std::string& name : task.claims) {
        auto it = state_.claims.find(task.ns + "/" + name);
        if (it != state_.claims.end()) {
          decision.claims.push_back(it->second);
        }
      }
    }
    decisions->push_back(std::move(decision));
  }
  ops_.clear();
}

}  // namespace sublet::scheduler
