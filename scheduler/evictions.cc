// consolidation, reclaim and preempt: a pending job makes room by evictions (scheduler/actions.h).
#include <algorithm>
#include <set>
#include <tuple>

#include "scheduler/actions.h"
#include "scheduler/budgets.h"
#include "scheduler/min_runtime.h"
#include "scheduler/solver.h"

namespace sublet::scheduler {

namespace {

std::unique_ptr<JobOrder> VictimOrder(Session& session,
                                      const std::function<bool(const Job&, JobId)>& keep) {
  State& state = session.state;
  auto order = std::make_unique<JobOrder>(session, true, -1);
  for (JobId id : state.active_jobs) {
    const Job& job = state.job(id);
    if (session.Mine(job) && job.preemptible && keep(job, id)) {
      order->Push(std::make_shared<JobView>(JobView::Whole(id)));
    }
  }
  return order;
}

std::vector<RuntimeQueue> RuntimeQueues(const State& state) {
  std::vector<RuntimeQueue> queues;
  for (const Queue& queue : state.queues) {
    queues.push_back({queue.spec.name, queue.parent, queue.spec.preempt_min_runtime,
                      queue.spec.reclaim_min_runtime});
  }
  return queues;
}

// Until when the victim may not be touched (whole jobs) or only above its minimum (elastic ones).
Millis ProtectedUntil(const Session& session, const std::vector<RuntimeQueue>& queues,
                      const Job& job, const Job& victim, Action action) {
  if (victim.last_start == 0) {
    return 0;
  }
  bool error = false;
  const Millis least =
      action == Action::kPreempt
          ? PreemptMinRuntime(queues, victim.queue, session.profile.preempt_min_runtime, &error)
          : ReclaimMinRuntime(queues, job.queue, victim.queue, session.profile.min_runtime_by_lca,
                              session.profile.reclaim_min_runtime, &error);
  return victim.last_start + least;
}

bool KeepsMinimum(const State& state, const VictimJob& victim) {
  const Job& job = state.job(victim.job);
  std::vector<int> going(job.pod_sets.size(), 0);
  for (TaskId id : victim.tasks) {
    ++going[static_cast<std::size_t>(state.task(id).pod_set)];
  }
  for (std::size_t i = 0; i < going.size(); ++i) {
    if (going[i] > 0 && job.pod_sets[i].min_available > job.pod_sets[i].active_used - going[i]) {
      return false;
    }
  }
  return true;
}

// Elastic victims within their minimum runtime keep their minimum.
bool RespectsMinRuntime(Session& session, const std::vector<RuntimeQueue>& queues,
                        const Scenario& scenario, Action action) {
  const Job& job = session.state.job(scenario.preemptor->job);
  for (const VictimJob& victim : scenario.victims) {
    const Job& other = session.state.job(victim.job);
    const Millis until = IsElastic(other) ? ProtectedUntil(session, queues, job, other, action) : 0;
    if (until > session.now && !KeepsMinimum(session.state, victim)) {
      session.MayChangeAt(until);
      return false;
    }
  }
  return true;
}

// Victims in the units in which they leave: pods above a minimum one by one, the rest together.
VictimUnits UnitsOf(const Session& session, const VictimJob& victim) {
  const State& state = session.state;
  const Job& job = state.job(victim.job);
  std::vector<std::vector<TaskId>> by_set(job.pod_sets.size());
  for (TaskId id : victim.tasks) {
    by_set[static_cast<std::size_t>(state.task(id).pod_set)].push_back(id);
  }
  VictimUnits units;
  units.queue = job.queue;
  const auto add = [&](const std::vector<TaskId>& tasks) {
    Quota sum{};
    bool any = false;
    for (TaskId id : tasks) {
      const Task& task = state.task(id);
      // What the simulation re-placed is no loss.
      if (!session.profile.consolidating_reclaim || !ActiveAllocated(task.status)) {
        Add(sum, task.accepted, 1);
        any = true;
      }
    }
    if (any) {
      units.units.push_back(ToAmounts(sum));
    }
  };
  std::vector<TaskId> core;
  for (std::size_t i = 0; i < by_set.size(); ++i) {
    const auto least = static_cast<std::size_t>(std::max(job.pod_sets[i].min_available, 0));
    for (std::size_t at = 0; at < by_set[i].size(); ++at) {
      if (at < least) {
        core.push_back(by_set[i][at]);
      } else {
        add({by_set[i][at]});
      }
    }
  }
  add(core);
  return units;
}

// The amounts of the queues as they were when the search began.
class BaseShares {
 public:
  explicit BaseShares(State& state) : state_(state) { ++state_.solution_epoch; }
  std::vector<QueueShare> Copy() const {
    std::vector<QueueShare> shares;
    for (const Queue& queue : state_.queues) {
      shares.push_back(queue.share);
      if (queue.base_epoch == state_.solution_epoch) {
        const Amounts allocated = ToAmounts(queue.base_allocated);
        const Amounts fixed = ToAmounts(queue.base_allocated_np);
        for (int i = 0; i < kShareDims; ++i) {
          shares.back().r[i].allocated = allocated[i];
          shares.back().r[i].allocated_np = fixed[i];
        }
      }
    }
    return shares;
  }

 private:
  State& state_;
};

bool ReclaimAllowed(Session& session, const BaseShares& base, const Scenario& scenario,
                    ReclaimRefusal* why) {
  State& state = session.state;
  const Job& job = state.job(scenario.preemptor->job);
  std::vector<QueueShare> shares = base.Copy();
  std::vector<QueueShare*> queues;
  for (QueueShare& share : shares) {
    queues.push_back(&share);
  }
  std::vector<VictimUnits> victims;
  for (const VictimJob& victim : scenario.victims) {
    VictimUnits units = UnitsOf(session, victim);
    if (units.units.empty()) {
      continue;
    }
    auto same = std::find_if(victims.begin(), victims.end(),
                             [&](const VictimUnits& v) { return v.queue == units.queue; });
    if (same == victims.end()) {
      victims.push_back(std::move(units));
    } else {
      same->units.insert(same->units.end(), units.units.begin(), units.units.end());
    }
  }
  const Reclaimer reclaimer{job.queue, job.preemptible, ToAmounts(*scenario.preemptor->request)};
  return Reclaimable(queues, reclaimer, victims, session.profile.saturation,
                     session.profile.strict_fair_share, why);
}

// The smallest failed batch per kind of job: a job that is not easier is not tried.
class FailedSignatures {
 public:
  bool Hopeless(const Session& session, const JobView& view, QueueId queue) const {
    if (!session.profile.signatures) {
      return false;
    }
    auto it = smallest_.find(Key(session.state, view, queue));
    return it != smallest_.end() && !Easier(session.state.job(view.job).pending,
                                            BatchRequest(session.state, view), it->second);
  }
  void Remember(const Session& session, const JobView& view, QueueId queue) {
    const Failed failed{session.state.job(view.job).pending, BatchRequest(session.state, view)};
    auto [it, added] = smallest_.try_emplace(Key(session.state, view, queue), failed);
    if (!added && Easier(failed.pending, failed.request, it->second)) {
      it->second = failed;
    }
  }

 private:
  struct Failed {
    int pending = 0;
    Quota request{};
  };
  // The kinds of the pending pods' shapes and the topology asked for; equal keys mean equal
  // constraints.
  using Signature = std::tuple<QueueId, int, bool, std::vector<int>, std::vector<std::string>>;
  static Signature Key(const State& state, const JobView& view, QueueId queue) {
    const Job& job = state.job(view.job);
    std::set<int> shapes;
    std::vector<std::string> topology;
    const auto note = [&](const std::optional<TopologyConstraint>& c) {
      topology.push_back(c.has_value() ? c->topology + "|" + c->required + "|" + c->preferred : "");
    };
    for (const SubGroup& group : job.groups) {
      note(group.topology);
    }
    for (const PodSet& set : job.pod_sets) {
      note(set.topology);
      for (TaskId id : set.tasks) {
        if (state.task(id).status == Status::kPending) {
          shapes.insert(state.task(id).shape->id);
        }
      }
    }
    return {
        queue, job.priority, job.preemptible, {shapes.begin(), shapes.end()}, std::move(topology)};
  }
  static bool Easier(int pending, const Quota& request, const Failed& failed) {
    if (pending < failed.pending) {
      return true;
    }
    for (int i = 0; i < kShareDims; ++i) {
      if (request[i] < failed.request[i]) {
        return true;
      }
    }
    return false;
  }
  std::map<Signature, Failed> smallest_;
};

// Jobs that may not evict yet: their preemption delay runs, or a bind of theirs was just rejected.
bool Delayed(Session& session, const Job& job) {
  for (const PodSet& set : job.pod_sets) {
    for (TaskId id : set.tasks) {
      const Task& task = session.state.task(id);
      if (task.status == Status::kPending && task.retry_at > session.now) {
        session.MayChangeAt(task.retry_at);
        return true;
      }
    }
  }
  if (!session.profile.preemption_delay || !job.preemption_delay.has_value()) {
    return false;
  }
  const Millis until = std::max(job.created, job.last_eviction) + *job.preemption_delay;
  if (until <= session.now) {
    return false;
  }
  session.MayChangeAt(until);
  return true;
}

void Note(Session& session, JobId job, Action action, std::string outcome,
          const ReclaimRefusal& refusal) {
  if (session.notes.size() < 4096) {
    session.notes.push_back({job, ActionName(action), std::move(outcome), refusal});
  }
}

constexpr int kMovesInVain = 3;
constexpr Millis kMovesDelay = 60'000;
constexpr int kMovesDoublings = 6;

// Differs: KAI moves or evicts others for a job in every cycle, though nothing keeps them from
// taking their old places again before the job does; some never come to rest. Here a job for which
// others left three times in vain waits a minute before the next time, then two, up to an hour.
bool MovesInVain(Session& session, const Job& job) {
  if (job.moved_at_used != job.active_used || job.moves_again_at <= session.now) {
    return false;
  }
  session.MayChangeAt(job.moves_again_at);
  return true;
}

// `used`: of the job's pods before others left for it; with the promised ones it is more. A pod of
// it that is bound ends the count (Statement::Commit).
void NoteMove(const Session& session, int used, Job& job) {
  if (job.moved_at_used != used) {
    job.moved_in_vain = 0;
    job.moved_at_used = used;
  }
  const int over = ++job.moved_in_vain - kMovesInVain;
  job.moves_again_at =
      over < 0 ? 0 : session.now + (kMovesDelay << std::min(over, kMovesDoublings));
}

// Tries `view`; commits on success.
bool Attempt(Session& session, TopologyCache& topologies, Action action, const JobView& view,
             Solver::Victims victims, Solver::Validator validator) {
  Statement statement(session.state);
  BudgetGuard budgets(session);
  const int used = session.state.job(view.job).active_used;
  const auto guarded = [&](const Scenario& scenario) {
    return budgets.Allows(scenario) && validator(scenario);
  };
  Solver solver(session, topologies, action, std::move(victims), guarded);
  if (!solver.Solve(view.job, statement)) {
    if (!session.out_of_steps) {
      session.Failed(view.job, action);
    }
    return false;
  }
  const std::size_t before = session.decisions.size();
  statement.Commit(&session.decisions);
  budgets.Spend(session.decisions);
  if (std::any_of(
          session.decisions.begin() + static_cast<std::ptrdiff_t>(before), session.decisions.end(),
          [](const Decision& decision) { return decision.kind == Decision::Kind::kEvict; })) {
    NoteMove(session, used, session.state.job(view.job));
  }
  return true;
}

bool EnoughInCluster(const State& state, const JobView& view) {
  std::int64_t gpus = 0;
  std::int64_t memory = 0;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const NodeHot& hot = state.hot[i];
    const Node& node = state.nodes[i];
    if (!hot.present || !hot.usable) {
      continue;
    }
    std::int64_t mig = 0;
    for (const NodeScalar& scalar : node.scalars) {
      std::int64_t slices = 0;
      std::int64_t size = 0;
      if (ParseMigProfile(state.names.Name(scalar.name), &slices, &size)) {
        mig += slices * (scalar.idle + scalar.releasing);
      }
    }
    const std::int64_t whole = hot.idle[kGpu] + hot.releasing[kGpu] + mig * kDevice;
    gpus += whole;
    memory += whole / kDevice * node.gpu_memory;
    for (const GpuGroup& group : node.groups) {
      if (group.Allocated() > 0) {
        gpus += kDevice - MemoryShare(group.Allocated(), node.gpu_memory);
        memory += node.gpu_memory - group.Allocated();
      }
      const std::int64_t leaving = group.releasing - group.pipelined;
      if (leaving > 0 && leaving != group.Used()) {
        gpus += MemoryShare(leaving, node.gpu_memory);
        memory += leaving;
      }
    }
  }
  for (TaskId id : Batch(state, view, true)) {
    const Shape& shape = *state.task(id).shape;
    gpus -= shape.gpus + state.Dra(state.task(id)) + shape.mig_slices * kDevice;
    memory -= shape.request.gpu_memory_mib + shape.mig_memory;
  }
  return gpus >= 0 && memory >= 0;
}

}  // namespace

void RunConsolidation(Session& session, TopologyCache& topologies) {
  State& state = session.state;
  const int most = session.profile.max_consolidation_victims;
  if (most == 0) {
    return;
  }
  const auto order =
      PendingOrder(session, Action::kConsolidation, [](const Job& job) { return job.preemptible; });
  FailedSignatures failed;
  while (!order->Empty() && !session.out_of_steps) {
    const std::shared_ptr<JobView> view = order->Pop();
    const Job& job = state.job(view->job);
    if (Delayed(session, job) || MovesInVain(session, job) ||
        failed.Hopeless(session, *view, kNone) || !EnoughInCluster(state, *view)) {
      continue;
    }
    const auto victims = [&] {
      // KAI takes the first 17 it meets in a map; here the order of names decides.
      std::set<std::string> chosen;
      if (most > 0) {
        for (JobId id : state.active_jobs) {
          if (state.job(id).preemptible && id != view->job) {
            chosen.insert(state.job(id).key);
          }
        }
        while (static_cast<int>(chosen.size()) > most + 1) {
          chosen.erase(std::prev(chosen.end()));
        }
      }
      return VictimOrder(session, [&](const Job& victim, JobId id) {
        return id != view->job && (most < 0 || chosen.count(victim.key) != 0);
      });
    };
    const auto all_placed = [&](const Scenario& scenario) {
      for (const VictimJob& victim : scenario.victims) {
        for (TaskId id : victim.tasks) {
          if (state.task(id).status == Status::kReleasing) {
            return false;
          }
        }
      }
      return true;
    };
    if (!Attempt(session, topologies, Action::kConsolidation, *view, victims, all_placed)) {
      failed.Remember(session, *view, kNone);
    }
  }
}

void RunReclaim(Session& session, TopologyCache& topologies) {
  State& state = session.state;
  const std::vector<RuntimeQueue> runtimes = RuntimeQueues(state);
  const auto order = PendingOrder(session, Action::kReclaim, nullptr);
  FailedSignatures failed;
  while (!order->Empty() && !session.out_of_steps) {
    const std::shared_ptr<JobView> view = order->Pop();
    const Job& job = state.job(view->job);
    if (job.queue == kNone) {
      continue;  // a profile without queues: nobody holds what is theirs
    }
    ReclaimRefusal refusal;
    const Reclaimer reclaimer{job.queue, job.preemptible, ToAmounts(BatchRequest(state, *view))};
    if (!CanReclaim(state.queue(job.queue).share, reclaimer, &refusal)) {
      Note(session, view->job, Action::kReclaim, refusal.rule, refusal);
      continue;
    }
    if (Delayed(session, job) || MovesInVain(session, job) ||
        failed.Hopeless(session, *view, job.queue)) {
      continue;
    }
    const BaseShares base(state);
    int candidates = 0;
    const auto victims = [&] {
      return VictimOrder(session, [&](const Job& victim, JobId) {
        if (victim.queue == job.queue) {
          return false;
        }
        const Millis until = IsElastic(victim)
                                 ? 0
                                 : ProtectedUntil(session, runtimes, job, victim, Action::kReclaim);
        if (until > session.now) {
          session.MayChangeAt(until);
          return false;
        }
        ++candidates;
        return true;
      });
    };
    const auto valid = [&](const Scenario& scenario) {
      return RespectsMinRuntime(session, runtimes, scenario, Action::kReclaim) &&
             ReclaimAllowed(session, base, scenario, &refusal);
    };
    if (!Attempt(session, topologies, Action::kReclaim, *view, victims, valid)) {
      failed.Remember(session, *view, job.queue);
      Note(session, view->job, Action::kReclaim, candidates == 0 ? "no victims" : refusal.rule,
           refusal);
    }
  }
}

void RunPreempt(Session& session, TopologyCache& topologies) {
  State& state = session.state;
  const std::vector<RuntimeQueue> runtimes = RuntimeQueues(state);
  const auto order = PendingOrder(session, Action::kPreempt, nullptr);
  Allocator allocator(session, topologies);
  FailedSignatures failed;
  while (!order->Empty() && !session.out_of_steps) {
    const std::shared_ptr<JobView> view = order->Pop();
    const Job& job = state.job(view->job);
    Quota asked{};
    const std::vector<TaskId> batch = Batch(state, *view, true);
    for (TaskId id : batch) {
      Add(asked, state.task(id).shape->quota, 1);
    }
    asked[kGpu] += state.count_dra ? state.ClaimGpus(batch) : 0;
    JobFailure failure;
    if (allocator.OverCapacity(job, asked, false, &failure)) {
      Note(session, view->job, Action::kPreempt, failure.message, {});
      continue;
    }
    if (Delayed(session, job) || MovesInVain(session, job) ||
        failed.Hopeless(session, *view, job.queue)) {
      continue;
    }
    int candidates = 0;
    const auto victims = [&] {
      return VictimOrder(session, [&](const Job& victim, JobId id) {
        if (victim.queue != job.queue || victim.priority >= job.priority || id == view->job) {
          return false;
        }
        const Millis until = IsElastic(victim)
                                 ? 0
                                 : ProtectedUntil(session, runtimes, job, victim, Action::kPreempt);
        if (until > session.now) {
          session.MayChangeAt(until);
          return false;
        }
        ++candidates;
        return true;
      });
    };
    const auto valid = [&](const Scenario& scenario) {
      return RespectsMinRuntime(session, runtimes, scenario, Action::kPreempt);
    };
    if (!Attempt(session, topologies, Action::kPreempt, *view, victims, valid)) {
      failed.Remember(session, *view, job.queue);
      Note(session, view->job, Action::kPreempt,
           candidates == 0 ? "no victims of lower priority" : "", {});
    }
  }
}

}  // namespace sublet::scheduler
