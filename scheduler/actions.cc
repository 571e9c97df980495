// allocate and stale gang eviction, and the list of actions (scheduler/actions.h).
#include "scheduler/actions.h"

#include <algorithm>

#include "scheduler/allocate.h"
#include "scheduler/job_order.h"
#include "scheduler/messages.h"

namespace sublet::scheduler {

namespace {

// A gang of which a part could only be promised is promised as a whole: nothing is bound until all
// of it is free.
bool MustWaitTogether(const State& state, const Job& job) {
  for (const PodSet& set : job.pod_sets) {
    int promised = 0;
    for (TaskId id : set.tasks) {
      promised += state.task(id).status == Status::kPipelined ? 1 : 0;
    }
    if (promised > 0 && set.active_allocated - promised < set.min_available) {
      return true;
    }
  }
  return false;
}

// Differs: KAI lets a large gang starve behind a stream of small jobs. With Profile::backfill the
// first gang, in the order of the queues, that has waited for `reserve_after` and that fits an
// empty cluster keeps the nodes with most room for itself; whoever comes after it is placed on the
// others only.
void Reserve(Session& session, const JobView& view) {
  State& state = session.state;
  const Job& job = state.job(view.job);
  const std::vector<TaskId> batch = Batch(state, view, false);
  const Millis ripe = job.created + session.profile.reserve_after;
  if (!session.profile.backfill || !session.reserved.empty() || batch.size() < 2) {
    return;
  }
  if (ripe > session.now) {
    session.MayChangeAt(ripe);
    return;
  }
  std::vector<NodeId> order = state.NodesByName();
  const auto room = [&](NodeId id) {
    const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
    return hot.idle[kGpu] + hot.releasing[kGpu];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](NodeId a, NodeId b) { return room(a) > room(b); });
  std::int64_t missing = 0;
  for (TaskId id : batch) {
    missing += state.task(id).shape->tracked[kGpu];
  }
  std::set<NodeId> chosen;
  for (NodeId id : order) {
    const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
    if (missing <= 0) {
      break;
    }
    if (hot.usable && hot.gpu > 0) {
      chosen.insert(id);
      missing -= hot.gpu;
    }
  }
  if (missing <= 0) {
    session.reserved = std::move(chosen);
  }
}

std::vector<NodeId> WithoutReserved(const Session& session, const std::vector<NodeId>& nodes) {
  std::vector<NodeId> open;
  if (!session.reserved.empty()) {
    std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(open),
                 [&](NodeId id) { return session.reserved.count(id) == 0; });
  }
  return open;
}

}  // namespace

void RunAllocate(Session& session, TopologyCache& topologies) {
  State& state = session.state;
  const std::vector<NodeId> nodes = state.NodesByName();
  Allocator allocator(session, topologies);
  const auto order = PendingOrder(session, Action::kAllocate, nullptr);
  while (!order->Empty()) {
    const std::shared_ptr<JobView> view = order->Pop();
    Job& job = state.job(view->job);
    job.failures.clear();
    job.task_failures.clear();
    const int held =
        std::count_if(job.pod_sets.begin(), job.pod_sets.end(), [&](const PodSet& set) {
          return std::any_of(set.tasks.begin(), set.tasks.end(),
                             [&](TaskId id) { return CountsForQuota(state.task(id).status); });
        });
    Statement statement(state);
    const std::size_t before = session.decisions.size();
    const std::vector<NodeId> open = WithoutReserved(session, nodes);
    const bool placed =
        allocator.Place(statement, session.reserved.empty() ? nodes : open, *view, false);
    if (!placed) {
      statement.Discard();
      session.Failed(view->job, Action::kAllocate);
      Reserve(session, *view);
      continue;
    }
    const bool wait = MustWaitTogether(state, job);
    if (wait) {
      statement.ConvertToPipelined(view->job);
    }
    statement.Commit(&session.decisions);
    if (!wait && held == 0 && session.decisions.size() > before) {
      job.last_start = session.now;
      session.started.push_back(view->job);
    }
    if (job.pending > 0 && session.decisions.size() > before) {
      order->Push(view);
    }
  }
}

void RunStaleGang(Session& session) {
  State& state = session.state;
  const std::set<JobId> marked = state.marked_stale;
  for (JobId id : marked) {
    if (state.stale_jobs.count(id) == 0) {
      state.job(id).stale_since = 0;
      state.marked_stale.erase(id);
    }
  }
  std::vector<JobId> stale;
  for (JobId id : state.stale_jobs) {
    if (session.Mine(state.job(id))) {
      stale.push_back(id);
    }
  }
  std::sort(stale.begin(), stale.end(),
            [&](JobId a, JobId b) { return state.job(a).key < state.job(b).key; });
  for (JobId id : stale) {
    Job& job = state.job(id);
    state.marked_stale.insert(id);
    if (job.stale_since == 0) {
      job.stale_since = session.now;
    }
    const Millis grace = job.staleness_grace.value_or(session.profile.stale_grace);
    if (grace < 0) {
      continue;
    }
    if (session.now - job.stale_since < grace) {
      session.MayChangeAt(job.stale_since + grace);
      continue;
    }
    std::vector<TaskId> members;
    for (const PodSet& set : job.pod_sets) {
      for (TaskId member : set.tasks) {
        if (ActiveAllocated(state.task(member).status)) {
          members.push_back(member);
        }
      }
    }
    Statement statement(state);
    for (TaskId member : members) {
      statement.Evict(member, ActionName(Action::kStaleGang), StaleMessage(job, state.task(member)),
                      "", static_cast<int>(members.size()));
    }
    statement.Commit(&session.decisions);
  }
}

void RunAction(Action action, Session& session, TopologyCache& topologies) {
  switch (action) {
    case Action::kAllocate: return RunAllocate(session, topologies);
    case Action::kConsolidation: return RunConsolidation(session, topologies);
    case Action::kReclaim: return RunReclaim(session, topologies);
    case Action::kPreempt: return RunPreempt(session, topologies);
    case Action::kStaleGang: return RunStaleGang(session);
  }
}

}  // namespace sublet::scheduler
