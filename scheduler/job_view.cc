#include "scheduler/job_view.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace sublet::scheduler {

JobView JobView::Part(const State& state, JobId id, const std::vector<TaskId>& members,
                      bool minima_from_members) {
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
      view.held[kGpu] += task.dra_quota;
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
  return task.status == Status::kPending ||
         (simulation && task.status == Status::kReleasing && task.tentative);
}

std::vector<std::size_t> PodSetOrder(const Job& job, const JobView& view,
                                     const std::vector<int>& among) {
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

bool Full(const Job& job, const JobView& view, int set) {
  return view.Active(job, static_cast<std::size_t>(set)) >=
         view.Minimum(job, static_cast<std::size_t>(set));
}

void SetsOf(const Job& job, int group, std::vector<int>* sets) {
  const SubGroup& at = job.groups[static_cast<std::size_t>(group)];
  sets->insert(sets->end(), at.pod_sets.begin(), at.pod_sets.end());
  for (int child : at.groups) {
    SetsOf(job, child, sets);
  }
}

// Pod sets that the sub group still needs: of its children that are not satisfied the first ones
// that have pods to place, in name order, as many as are missing. With `extra`, one more child.
void NeededSets(const State& state, const Job& job, const JobView& view, int group, bool simulation,
                bool extra, std::vector<int>* needed) {
  const SubGroup& at = job.groups[static_cast<std::size_t>(group)];
  struct Child {
    std::string name;
    bool group;
    int index;
  };
  std::vector<Child> open;
  const auto full = [&](int set) { return Full(job, view, set); };
  const auto placeable = [&](int set) {
    int pods = view.Active(job, static_cast<std::size_t>(set));
    for (TaskId id : view.Tasks(job, static_cast<std::size_t>(set))) {
      pods += ShouldPlace(state.task(id), simulation) ? 1 : 0;
    }
    return pods >= view.Minimum(job, static_cast<std::size_t>(set));
  };
  const int children = static_cast<int>(at.pod_sets.size() + at.groups.size());
  int missing = std::min(at.min_sub_group.value_or(children), children) + (extra ? 1 : 0);
  for (int set : at.pod_sets) {
    if (full(set)) {
      --missing;
    } else if (placeable(set)) {
      open.push_back({job.pod_sets[static_cast<std::size_t>(set)].name, false, set});
    }
  }
  for (int child : at.groups) {
    if (TreeSatisfied(job, child, full)) {
      --missing;
    } else if (TreeSatisfied(job, child, placeable)) {
      open.push_back({job.groups[static_cast<std::size_t>(child)].name, true, child});
    }
  }
  std::sort(open.begin(), open.end(),
            [](const Child& a, const Child& b) { return a.name < b.name; });
  for (const Child& child : open) {
    if (missing-- <= 0) {
      return;
    }
    if (child.group) {
      NeededSets(state, job, view, child.index, simulation, false, needed);
    } else {
      needed->push_back(child.index);
    }
  }
}

// The batch of a group that does not need all of its parts: what is missing, else one more part,
// else one more pod of a part that has its minimum.
std::vector<TaskId> OptionalBatch(const State& state, const JobView& view, bool simulation) {
  const Job& job = state.job(view.job);
  std::vector<int> sets;
  NeededSets(state, job, view, 0, simulation, false, &sets);
  if (sets.empty()) {
    NeededSets(state, job, view, 0, simulation, true, &sets);
  }
  const bool one = sets.empty();
  if (one) {
    for (std::size_t i = 0; i < job.pod_sets.size(); ++i) {
      if (Full(job, view, static_cast<int>(i))) {
        sets.push_back(static_cast<int>(i));
      }
    }
  }
  std::vector<TaskId> batch;
  for (std::size_t i : PodSetOrder(job, view, sets)) {
    int left = one ? 1 : view.Minimum(job, i) - view.Active(job, i);
    for (TaskId id : view.Tasks(job, i)) {
      if (left > 0 && ShouldPlace(state.task(id), simulation)) {
        batch.push_back(id);
        --left;
      }
    }
    if (one && !batch.empty()) {
      break;
    }
  }
  return batch;
}

std::vector<TaskId> ComputeBatch(const State& state, const JobView& view, bool simulation) {
  const Job& job = state.job(view.job);
  if (job.optional_groups && !view.part) {
    return OptionalBatch(state, view, simulation);
  }
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
  const std::vector<TaskId> batch = ComputeBatch(state, view, true);
  sum[kGpu] += state.count_dra ? state.ClaimGpus(batch) : 0;
  for (TaskId id : batch) {
    const Task& task = state.task(id);
    Add(sum, task.shape->quota, 1);
    if (task.shape->request.gpu == GpuKind::kMemory) {
      sum[kGpu] += task.shape->request.gpu_count * task.shape->request.gpu_memory_mib * kDevice /
                   state.MinGpuMemory();
    }
  }
  if (!view.part) {
    job.batch_version = job.version;
    job.batch_request = sum;
  }
  return sum;
}

namespace {

// The last child of the root that could go while the root keeps its minimum; empty when none can.
std::vector<int> SurplusSets(const Job& job, const JobView& view) {
  const SubGroup& root = job.groups[0];
  const auto full = [&](int set) { return Full(job, view, set); };
  std::vector<std::pair<std::string, std::vector<int>>> satisfied;
  for (int set : root.pod_sets) {
    if (full(set)) {
      satisfied.push_back({job.pod_sets[static_cast<std::size_t>(set)].name, {set}});
    }
  }
  for (int child : root.groups) {
    if (TreeSatisfied(job, child, full)) {
      std::vector<int> sets;
      SetsOf(job, child, &sets);
      satisfied.push_back({job.groups[static_cast<std::size_t>(child)].name, std::move(sets)});
    }
  }
  const int children = static_cast<int>(root.pod_sets.size() + root.groups.size());
  if (static_cast<int>(satisfied.size()) <= root.min_sub_group.value_or(children)) {
    return {};
  }
  return std::max_element(satisfied.begin(), satisfied.end())->second;
}

}  // namespace

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
  } else if (job.optional_groups) {
    const std::vector<int> surplus = SurplusSets(job, view);
    if (!surplus.empty()) {
      order.assign(surplus.begin(), surplus.end());
    }
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
  const auto full = [&](int set) { return Full(job, view, set); };
  if (!TreeSatisfied(job, 0, full)) {
    return Fill::kBelow;
  }
  for (std::size_t i = 0; i < job.pod_sets.size(); ++i) {
    if (view.Active(job, i) > view.Minimum(job, i)) {
      return Fill::kAbove;
    }
  }
  return job.optional_groups && !SurplusSets(job, view).empty() ? Fill::kAbove : Fill::kExact;
}

bool GangSatisfied(const Job& job) {
  return TreeSatisfied(job, 0, [&](int set) {
    const PodSet& pods = job.pod_sets[static_cast<std::size_t>(set)];
    return pods.active_used >= pods.min_available;
  });
}

bool ReadyForScheduling(const Job& job) {
  if (job.gave_up) {
    return false;
  }
  return TreeSatisfied(job, 0, [&](int set) {
    const PodSet& pods = job.pod_sets[static_cast<std::size_t>(set)];
    return pods.alive - pods.gated >= pods.min_available;
  });
}

bool IsElastic(const Job& job) {
  return job.optional_groups ||
         std::any_of(job.pod_sets.begin(), job.pod_sets.end(), [](const PodSet& set) {
           return set.min_available < static_cast<int>(set.tasks.size());
         });
}

bool IsStale(const Job& job) {
  return job.succeeded == 0 && job.active_used > 0 && !GangSatisfied(job);
}

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
