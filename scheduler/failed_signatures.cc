#include "scheduler/failed_signatures.h"

#include <set>

namespace sublet::scheduler {

bool FailedSignatures::Hopeless(const Session& session, const JobView& view, QueueId queue) const {
  if (!session.profile.signatures) {
    return false;
  }
  auto it = smallest_.find(Key(session.state, view, queue));
  return it != smallest_.end() && !Easier(session.state.job(view.job).pending,
                                          BatchRequest(session.state, view), it->second);
}

void FailedSignatures::Remember(const Session& session, const JobView& view, QueueId queue) {
  const Failed failed{session.state.job(view.job).pending, BatchRequest(session.state, view)};
  auto [it, added] = smallest_.try_emplace(Key(session.state, view, queue), failed);
  if (!added && Easier(failed.pending, failed.request, it->second)) {
    it->second = failed;
  }
}

FailedSignatures::Signature FailedSignatures::Key(const State& state, const JobView& view,
                                                  QueueId queue) {
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

bool FailedSignatures::Easier(int pending, const Quota& request, const Failed& failed) {
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

}  // namespace sublet::scheduler
