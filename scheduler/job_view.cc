#include "scheduler/job_view.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace sublet::scheduler {

JobView JobView::Part(const State& state, JobId id, const std::vector<TaskId>& members, bool minima_from_members) {
  const Job& job = state.job(id);
  JobView view;
  view.job = id;
  view.part = true;
  view.tasks.resize(job.pod_sets.size());
  view.active.resize(job.pod_sets.size(), 0);
  for (const PodSet& set : job.pod_sets) {
    view.minima.push_back(set.min_available);
  }
  for (TaskId member : members) {
    const Task& task = state.task(member);
    const auto set = static_cast<std::size_t>(task.pod_set);
    view.tasks[set].push_back(member);
    view.active[set] += ActiveAllocated(task.status) ? 1 : 0;
    if (CountsForQuota(task.status)) {
      Add(view.held, task.shape->quota, 1);
      view.held[kGpu] += task.dra;
    }
  }
  for (std::size_t i = 0; i < view.tasks.size(); ++i) {
    std::sort(view.tasks[i].begin(), view.tasks[i].end(),
              [&](TaskId a, TaskId b) { return TaskBefore(state.task(a), state.task(b)); });
    if (minima_from_members && !view.tasks[i].empty()) {
      view.minima[i] = static_cast<int>(view.tasks[i].size());
    }
  }
  return view;
}

bool ShouldPlace(const Task& task, bool simulation) {
  return task.status == Status::kPending || (simulation && task.status == Status::kReleasing && task.tentative);
}

std::vector<std::size_t> PodSetOrder(const Job& job, const JobView& view, const std::vector<int>& among) {
  std::vector<std::size_t> order;
  for (int index : among) {
    order.push_back(static_cast<std::size_t>(index));
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int a_active = view.Active(job, a);
    const int b_active = view.Active(job, b);
    const int a_min = view.Minimum(job, a);
    const int b_min = view.Minimum(job, b);
    const bool a_full = a_active >= a_min;
    const bool b_full = b_active >= b_min;
    if (a_full != b_full) {
      return !a_full;
    }
    if (a_full) {
      // a_active / a_min < b_active / b_min, without dividing by a minimum of 0.
      const std::int64_t left = static_cast<std::int64_t>(a_active) * b_min;
      const std::int64_t right = static_cast<std::int64_t>(b_active) * a_min;
      if (left != right) {
        return left < right;
      }
    }
    return job.pod_sets[a].name < job.pod_sets[b].name;
  });
  return order;
}

namespace {

std::vector<std::size_t> AllInOrder(const Job& job, const JobView& view) {
  if (job.pod_sets.size() == 1) {
    return {0};
  }
  std::vector<int> all(job.pod_sets.size());
  std::iota(all.begin(), all.end(), 0);
  return PodSetOrder(job, view, all);
}

std::vector<TaskId> ComputeBatch(const State& state, const JobView& view, bool simulation) {
  const Job& job = state.job(view.job);
  int below = 0;
  for (std::size_t i = 0; i < job.pod_sets.size(); ++i) {
    below += view.Active(job, i) < view.Minimum(job, i) ? 1 : 0;
  }
  const int most_sets = std::max(below, 1);
  std::vector<TaskId> batch;
  int sets = 0;
  for (std::size_t i : AllInOrder(job, view)) {
    if (sets == most_sets) {
      break;
    }
    const int missing = view.Minimum(job, i) - view.Active(job, i);
    int left = missing > 0 ? missing : 1;
    bool any = false;
    for (TaskId id : view.Tasks(job, i)) {
      if (left == 0) {
        break;
      }
      if (ShouldPlace(state.task(id), simulation)) {
        batch.push_back(id);
        any = true;
        --left;
      }
    }
    sets += any ? 1 : 0;
  }
  return batch;
}

}  // namespace

std::vector<TaskId> Batch(const State& state, const JobView& view, bool simulation) {
  return ComputeBatch(state, view, simulation);
}

Quota BatchRequest(const State& state, const JobView& view) {
  const Job& job = state.job(view.job);
  if (view.request.has_value()) {
    return *view.request;
  }
  if (!view.part && job.batch_version == job.version) {
    return job.batch_request;
  }
  Quota sum{};
  for (TaskId id : ComputeBatch(state, view, true)) {
    const Task& task = state.task(id);
    Add(sum, task.shape->quota, 1);
    sum[kGpu] += task.dra;
    if (task.shape->request.gpu == GpuKind::kMemory) {
      sum[kGpu] += task.shape->request.gpu_count * task.shape->request.gpu_memory_mib * kDevice / state.MinGpuMemory();
    }
  }
  if (!view.part) {
    job.batch_version = job.version;
    job.batch_request = sum;
  }
  return sum;
}

std::pair<std::vector<TaskId>, bool> EvictionUnit(const State& state, const JobView& view) {
  const Job& job = state.job(view.job);
  bool above = false;
  int total = 0;
  for (std::size_t i = 0; i < job.pod_sets.size(); ++i) {
    above = above || view.Active(job, i) > view.Minimum(job, i);
    total += view.Active(job, i);
  }
  std::vector<std::size_t> order = AllInOrder(job, view);
  std::reverse(order.begin(), order.end());
  if (above) {
    order.resize(1);
  }
  std::vector<TaskId> unit;
  for (std::size_t i : order) {
    const int active = view.Active(job, i);
    int left = active > view.Minimum(job, i) ? 1 : active;
    const auto& tasks = view.Tasks(job, i);
    for (auto it = tasks.rbegin(); it != tasks.rend() && left > 0; ++it) {
      if (ActiveAllocated(state.task(*it).status)) {
        unit.push_back(*it);
        --left;
      }
    }
  }
  const bool more = static_cast<int>(unit.size()) < total;
  return {std::move(unit), more};
}

Fill FillOf(const State& state, const JobView& view) {
  const Job& job = state.job(view.job);
  bool exact = true;
  for (std::size_t i = 0; i < job.pod_sets.size(); ++i) {
    const int active = view.Active(job, i);
    const int minimum = view.Minimum(job, i);
    if (active < minimum) {
      return Fill::kBelow;
    }
    exact = exact && active == minimum;
  }
  return exact ? Fill::kExact : Fill::kAbove;
}

bool GangSatisfied(const Job& job) {
  return std::all_of(job.pod_sets.begin(), job.pod_sets.end(),
                     [](const PodSet& set) { return set.active_used >= set.min_available; });
}

bool ReadyForScheduling(const Job& job) {
  return std::all_of(job.pod_sets.begin(), job.pod_sets.end(),
                     [](const PodSet& set) { return set.alive - set.gated >= set.min_available; });
}

bool IsElastic(const Job& job) {
  return std::any_of(job.pod_sets.begin(), job.pod_sets.end(),
                     [](const PodSet& set) { return set.min_available < static_cast<int>(set.tasks.size()); });
}

bool IsStale(const Job& job) { return job.succeeded == 0 && job.active_used > 0 && !GangSatisfied(job); }

bool JobBefore(const State& state, const JobView& left, const JobView& right, bool elastic_order) {
  const Job& l = state.job(left.job);
  const Job& r = state.job(right.job);
  if (l.priority != r.priority) {
    return l.priority > r.priority;
  }
  if (elastic_order) {
    const Fill l_fill = FillOf(state, left);
    const Fill r_fill = FillOf(state, right);
    if (l_fill != r_fill) {
      return l_fill < r_fill;
    }
  }
  return std::tie(l.created, l.uid) < std::tie(r.created, r.uid);
}

}  // namespace sublet::scheduler
