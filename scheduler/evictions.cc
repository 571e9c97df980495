// consolidation, reclaim and preempt: a pending job makes room by evictions (scheduler/actions.h).
#include <algorithm>

#include "scheduler/actions.h"
#include "scheduler/budgets.h"
#include "scheduler/eviction_rules.h"
#include "scheduler/failed_signatures.h"
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

// From KAI 0.17 on a job within its preemption delay takes no part in what evicts others.
bool WithinDelay(Session& session, const Job& job) {
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

// Jobs that may not evict yet: a bind of theirs was just rejected.
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
  return false;
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

// True while the victim's minimum runtime keeps it where it is; the answer may change when that ends.
bool IsProtected(Session& session, const std::vector<RuntimeQueue>& runtimes, const Job& job,
                 const Job& victim, Action action) {
  const Millis until =
      IsElastic(victim) ? 0 : ProtectedUntil(session, runtimes, job, victim, action);
  if (until <= session.now) {
    return false;
  }
  session.MayChangeAt(until);
  return true;
}

}  // namespace

void RunConsolidation(Session& session, TopologyCache& topologies) {
  State& state = session.state;
  const int most = session.profile.max_consolidation_victims;
  if (most == 0) {
    return;
  }
  const auto order = PendingOrder(session, Action::kConsolidation, [&](const Job& job) {
    return job.preemptible && !WithinDelay(session, job);
  });
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
  const auto order = PendingOrder(session, Action::kReclaim,
                                  [&](const Job& job) { return !WithinDelay(session, job); });
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
        if (victim.queue == job.queue ||
            (session.profile.smart_search && !MayBeVictim(state.shares, reclaimer, victim.queue))) {
          return false;
        }
        if (IsProtected(session, runtimes, job, victim, Action::kReclaim)) {
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
  const auto order = PendingOrder(session, Action::kPreempt,
                                  [&](const Job& job) { return !WithinDelay(session, job); });
  Allocator allocator(session, topologies);
  FailedSignatures failed;
  while (!order->Empty() && !session.out_of_steps) {
    const std::shared_ptr<JobView> view = order->Pop();
    const Job& job = state.job(view->job);
    const Quota asked = Allocator::LeastAsked(state, Batch(state, *view, true));
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
        if (IsProtected(session, runtimes, job, victim, Action::kPreempt)) {
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
