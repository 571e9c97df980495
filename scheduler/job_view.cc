#include "scheduler/job_view.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace sublet::scheduler {

namespace {

// Sub groups that say how many children they need ask a part for no more than it has. Returns
// whether the part has any task below `group`.
bool LeastOfMembers(const Job& job, int group, JobView* view) {
  const SubGroup& at = job.groups[static_cast<std::size_t>(group)];
  int have = 0;
  for (int set : at.pod_sets) {
    have += view->tasks[static_cast<std::size_t>(set)].empty() ? 0 : 1;
  }
  for (int child : at.groups) {
    have += LeastOfMembers(job, child, view) ? 1 : 0;
  }
  if (at.min_sub_group.has_value()) {
    int& least = view->least[static_cast<std::size_t>(group)];
    least = std::min(least, have);
  }
  return have > 0;
}

}  // namespace

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
  for (const SubGroup& group : job.groups) {
    view.least.push_back(LeastChildren(group));
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
      const int count = static_cast<int>(view.tasks[i].size());
      view.minima[i] =
          state.RulesOf(view.job).member_trees ? std::min(view.minima[i], count) : count;
    }
  }
  if (minima_from_members) {
    LeastOfMembers(job, 0, &view);
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

bool Full(const Job& job, const JobView& view, int set) {
  return view.Active(job, static_cast<std::size_t>(set)) >=
         view.Minimum(job, static_cast<std::size_t>(set));
}

// How many children of the sub group have what they need.
int FullMembers(const Job& job, const JobView& view, int group) {
  const SubGroup& at = job.groups[static_cast<std::size_t>(group)];
  int full = 0;
  for (int set : at.pod_sets) {
    full += Full(job, view, set) ? 1 : 0;
  }
  for (int child : at.groups) {
    full +=
        FullMembers(job, view, child) >= view.Least(job, static_cast<std::size_t>(child)) ? 1 : 0;
  }
  return full;
}

}  // namespace

std::vector<Member> MemberOrder(const Job& job, const JobView& view, int group) {
  const SubGroup& at = job.groups[static_cast<std::size_t>(group)];
  std::vector<Member> members;
  for (int child : at.groups) {
    members.push_back({true, child});
  }
  for (int set : at.pod_sets) {
    members.push_back({false, set});
  }
  struct Place {
    int rank = 0;  // below its need, at or above it, without a need
    std::int64_t have = 0, need = 0;
    const std::string* name = nullptr;
  };
  const auto place = [&](const Member& member) {
    const auto i = static_cast<std::size_t>(member.index);
    Place out;
    out.have = member.group ? FullMembers(job, view, member.index) : view.Active(job, i);
    out.need = member.group ? view.Least(job, i) : view.Minimum(job, i);
    out.rank = out.have < out.need ? 0 : out.need > 0 ? 1 : 2;
    out.name = member.group ? &job.groups[i].name : &job.pod_sets[i].name;
    return out;
  };
  std::stable_sort(members.begin(), members.end(), [&](const Member& a, const Member& b) {
    const Place l = place(a);
    const Place r = place(b);
    if (l.rank != r.rank) {
      return l.rank < r.rank;
    }
    // have / need, or, where nothing is needed, have.
    const std::int64_t left = l.rank == 0 ? 0 : l.have * std::max<std::int64_t>(r.need, 1);
    const std::int64_t right = l.rank == 0 ? 0 : r.have * std::max<std::int64_t>(l.need, 1);
    return left != right ? left < right : *l.name < *r.name;
  });
  return members;
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

bool FullMember(const Job& job, const JobView& view, const Member& member) {
  return member.group ? FullMembers(job, view, member.index) >=
                            view.Least(job, static_cast<std::size_t>(member.index))
                      : Full(job, view, member.index);
}

std::vector<TaskId> SetBatch(const State& state, const JobView& view, int set, bool simulation) {
  const Job& job = state.job(view.job);
  const auto i = static_cast<std::size_t>(set);
  const int missing = view.Minimum(job, i) - view.Active(job, i);
  int left = missing > 0 ? missing : 1;
  std::vector<TaskId> batch;
  for (TaskId id : view.Tasks(job, i)) {
    if (left > 0 && ShouldPlace(state.task(id), simulation)) {
      batch.push_back(id);
      --left;
    }
  }
  return batch;
}

// While the sub group lacks children: what is missing in the first ones, as many as it needs. Else
// the next step of the first child that has one.
std::vector<TaskId> TreeBatch(const State& state, const JobView& view, int group, bool simulation) {
  const Job& job = state.job(view.job);
  const int least = view.Least(job, static_cast<std::size_t>(group));
  const bool full = FullMembers(job, view, group) >= least;
  std::vector<TaskId> batch;
  int looked = 0;
  for (const Member& member : MemberOrder(job, view, group)) {
    if (full ? !batch.empty() : looked++ == least) {
      break;
    }
    if (!full && FullMember(job, view, member)) {
      continue;
    }
    const std::vector<TaskId> part = member.group ? TreeBatch(state, view, member.index, simulation)
                                                  : SetBatch(state, view, member.index, simulation);
    batch.insert(batch.end(), part.begin(), part.end());
  }
  return batch;
}

std::vector<TaskId> ComputeBatch(const State& state, const JobView& view, bool simulation) {
  const Job& job = state.job(view.job);
  if (state.RulesOf(view.job).member_trees) {
    return TreeBatch(state, view, 0, simulation);
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
      sum[kGpu] += State::MemoryAsDevices(task.shape->request, state.MinGpuMemory());
    }
  }
  if (!view.part) {
    job.batch_version = job.version;
    job.batch_request = sum;
  }
  return sum;
}

namespace {

void TakeActive(const State& state, const JobView& view, int set, int most,
                std::vector<TaskId>* unit) {
  const auto& tasks = view.Tasks(state.job(view.job), static_cast<std::size_t>(set));
  for (auto it = tasks.rbegin(); it != tasks.rend() && most > 0; ++it) {
    if (ActiveAllocated(state.task(*it).status)) {
      unit->push_back(*it);
      --most;
    }
  }
}

constexpr int kEvery = std::numeric_limits<int>::max();

void TakeTree(const State& state, const JobView& view, int group, std::vector<TaskId>* unit) {
  const Job& job = state.job(view.job);
  const SubGroup& at = job.groups[static_cast<std::size_t>(group)];
  for (int set : at.pod_sets) {
    TakeActive(state, view, set, kEvery, unit);
  }
  for (int child : at.groups) {
    TakeTree(state, view, child, unit);
  }
}

// The next pods that can go while every sub group keeps what it needs: one pod above the minimum of
// its set, looked for from the last member on, else one whole child that is more than needed.
void TakeSurplus(const State& state, const JobView& view, int group, std::vector<TaskId>* unit) {
  const Job& job = state.job(view.job);
  const int full = FullMembers(job, view, group);
  if (full == 0) {
    return;
  }
  std::vector<Member> members = MemberOrder(job, view, group);
  std::reverse(members.begin(), members.end());
  for (const Member& member : members) {
    const auto i = static_cast<std::size_t>(member.index);
    if (member.group) {
      TakeSurplus(state, view, member.index, unit);
    } else if (view.Active(job, i) > view.Minimum(job, i)) {
      TakeActive(state, view, member.index, 1, unit);
    }
    if (!unit->empty()) {
      return;
    }
  }
  if (full <= view.Least(job, static_cast<std::size_t>(group))) {
    return;
  }
  for (const Member& member : members) {
    if (member.group) {
      TakeTree(state, view, member.index, unit);
    } else {
      TakeActive(state, view, member.index, kEvery, unit);
    }
    if (!unit->empty()) {
      return;
    }
  }
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
  std::vector<TaskId> unit;
  if (state.RulesOf(view.job).member_trees) {
    TakeSurplus(state, view, 0, &unit);
    if (unit.empty()) {
      TakeTree(state, view, 0, &unit);
    }
    const bool left = static_cast<int>(unit.size()) < total;
    return {std::move(unit), left};
  }
  std::vector<std::size_t> order = AllInOrder(job, view);
  std::reverse(order.begin(), order.end());
  if (above) {
    order.resize(1);
  }
  for (std::size_t i : order) {
    const int active = view.Active(job, i);
    TakeActive(state, view, static_cast<int>(i), active > view.Minimum(job, i) ? 1 : active, &unit);
  }
  const bool more = static_cast<int>(unit.size()) < total;
  return {std::move(unit), more};
}

Fill FillOf(const State& state, const JobView& view) {
  const Job& job = state.job(view.job);
  bool above = false;
  for (std::size_t i = 0; i < job.pod_sets.size(); ++i) {
    if (!Full(job, view, static_cast<int>(i))) {
      return Fill::kBelow;
    }
    above = above || view.Active(job, i) > view.Minimum(job, i);
  }
  return above ? Fill::kAbove : Fill::kExact;
}

// Differs: KAI 0.17 asks for the minimum of every pod set here and where it looks for stale gangs,
// also of jobs that need only some of their sub groups: those can never make room for themselves,
// and are evicted as stale while they have all they need.
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
