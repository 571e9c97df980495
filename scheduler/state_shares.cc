// What queues hold, ask for and may have (scheduler/state.h).
#include <algorithm>

#include "scheduler/state.h"

namespace sublet::scheduler {

void State::ChargeQueues(TaskId id, int sign) {
  const Task& t = task(id);
  if (t.job == kNone) {
    return;
  }
  const Job& j = job(t.job);
  const std::string* model = nullptr;
  if (model_limits && t.node != kNone && t.accepted[kGpu] > 0) {
    model =
        FindLabel(nodes[static_cast<std::size_t>(t.node)].spec.labels, "nvidia.com/gpu.product");
  }
  EachQueueUp(j.queue, [&](QueueId, Queue& q) {
    if (q.base_epoch != solution_epoch) {
      q.base_epoch = solution_epoch;
      q.base_allocated = q.allocated;
      q.base_allocated_np = q.allocated_np;
    }
    Add(q.allocated, t.accepted, sign);
    if (!j.preemptible) {
      Add(q.allocated_np, t.accepted, sign);
    }
    for (int i = 0; i < kShareDims; ++i) {
      const double unit = i == kGpu ? static_cast<double>(kDevice) : 1.0;
      q.share.r[i].allocated = static_cast<double>(q.allocated[i]) / unit;
      q.share.r[i].allocated_np = static_cast<double>(q.allocated_np[i]) / unit;
    }
    if (model != nullptr) {
      q.by_model[*model] += sign * t.accepted[kGpu];
    }
  });
}

void State::MarkDirty(TaskId id) {
  Task& t = task(id);
  if (!t.dirty) {
    t.dirty = true;
    dirty_tasks_.push_back(id);
  }
}

void State::CountRequest(Task& t, int sign) {
  if (t.job == kNone) {
    return;
  }
  EachQueueUp(job(t.job).queue, [&](QueueId, Queue& q) { Add(q.request, t.counted, sign); });
}

void State::RefreshRequest(TaskId id) {
  Task& t = task(id);
  Quota now{};
  if (CountsForQuota(t.status)) {
    now = t.accepted;
  } else if (t.status == Status::kPending && t.shape != nullptr) {
    now = t.shape->quota;
    now[kGpu] += RequestedDra(t);
    if (t.shape->request.gpu == GpuKind::kMemory) {
      now[kGpu] += MemoryAsDevices(t.shape->request, MinGpuMemory());
    }
  }
  if (now != t.counted) {
    CountRequest(t, -1);
    t.counted = now;
    CountRequest(t, 1);
    shares_dirty_ = true;
  }
}

void State::RefreshShares(double k) {
  if (queues_dirty_) {
    RelinkQueues();
  }
  for (TaskId id : dirty_tasks_) {
    if (tasks[static_cast<std::size_t>(id)] != nullptr) {
      task(id).dirty = false;
      RefreshRequest(id);
    }
  }
  dirty_tasks_.clear();
  if (!shares_dirty_ && k == last_k_) {
    return;
  }
  shares_dirty_ = false;
  last_k_ = k;
  shares.clear();
  std::vector<std::vector<int>> children(queues.size());
  std::vector<int> roots;
  std::vector<Amounts> before;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    Queue& q = queues[i];
    shares.push_back(&q.share);
    before.push_back(q.share.FairShare());
    children[i] = q.children;
    if (q.present && q.spec.parent.empty()) {
      roots.push_back(static_cast<int>(i));
    }
    for (int r = 0; r < kShareDims; ++r) {
      q.share.r[r].fair_share = 0;
      q.share.r[r].request =
          static_cast<double>(q.request[r]) / (r == kGpu ? static_cast<double>(kDevice) : 1.0);
      q.share.r[r].usage = q.spec.usage[r];
    }
  }
  const Amounts amount{static_cast<double>(total[0]), static_cast<double>(total[1]),
                       static_cast<double>(total[2]) / static_cast<double>(kDevice)};
  DivideTree(amount, k, shares, children, roots);
  for (std::size_t i = 0; i < queues.size(); ++i) {
    if (queues[i].share.FairShare() != before[i]) {
      ++share_generation;
      break;
    }
  }
}

}  // namespace sublet::scheduler
