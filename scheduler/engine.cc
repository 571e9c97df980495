#include "scheduler/engine.h"

#include <algorithm>

#include "base/check.h"
#include "scheduler/actions.h"
#include "scheduler/filters.h"
#include "scheduler/kube_preempt.h"
#include "scheduler/messages.h"

namespace sublet::scheduler {

Engine::Engine(std::vector<Profile> profiles)
    : profiles_(std::move(profiles)), topologies_(std::make_unique<TopologyCache>()) {
  SUBLET_CHECK(!profiles_.empty());
  for (const Profile& profile : profiles_) {
    state_.rules.push_back({profile.min_sub_group, profile.smart_search});
  }
  // What all jobs' amounts are counted by is one for the whole cluster: the first profile's of KAI.
  const auto first = std::find_if(profiles_.begin(), profiles_.end(),
                                  [](const Profile& profile) { return !profile.kube; });
  if (first != profiles_.end()) {
    state_.pinned_min_memory = first->pinned_min_memory;
    state_.count_dra = first->count_dra;
  }
}
Engine::~Engine() = default;

int Engine::ProfileFor(const std::string& scheduler_name) const {
  for (std::size_t i = 0; i < profiles_.size(); ++i) {
    const auto& names = profiles_[i].scheduler_names;
    if (std::find(names.begin(), names.end(), scheduler_name) != names.end()) {
      return static_cast<int>(i);
    }
  }
  return kNone;
}

void Engine::Apply(const NodeSpec& node) {
  const auto fits = [this, &node](TaskId id) {
    const NodeId at = state_.FindNode(node.name);
    return at != kNone && state_.hot[static_cast<std::size_t>(at)].usable &&
           FitsNow(state_, state_.task(id), at);
  };
  // A pod that was refused for want of room waits no longer when room comes. One that fitted
  // before, as far as we knew, was refused for another reason: the node's news is no reason to ask
  // again.
  std::vector<TaskId> short_of_room;
  for (auto it = backing_off_.begin(); it != backing_off_.end();) {
    const TaskId id = state_.FindTask(*it);
    if (id == kNone || state_.task(id).retry_at == 0) {
      it = backing_off_.erase(it);
      continue;
    }
    if (state_.task(id).status == Status::kPending && !fits(id)) {
      short_of_room.push_back(id);
    }
    ++it;
  }
  state_.UpsertNode(node);
  for (TaskId id : short_of_room) {
    if (fits(id)) {
      state_.task(id).retry_at = 0;
    }
  }
}
void Engine::Apply(const QueueSpec& queue) { state_.UpsertQueue(queue); }

void Engine::Apply(const PodGroupSpec& group) {
  if (!group.scheduler_name.empty()) {
    open_groups_.erase(group.Key());
    ApplyGroup(group, ProfileFor(group.scheduler_name));
    return;
  }
  OpenGroup& open = open_groups_[group.Key()];
  open.spec = group;
  if (open.profile == kNone) {
    open.profile = ProfileFor("kai-scheduler");
    const JobId job = state_.FindJob(group.Key());
    if (job != kNone && state_.job(job).total > 0) {  // its pods came first
      open.profile = static_cast<int>(profiles_.size());
      for (const PodSet& set : state_.job(job).pod_sets) {
        for (TaskId id : set.tasks) {
          open.profile = std::min(open.profile, ProfileFor(state_.task(id).scheduler_name));
        }
      }
    }
  }
  ApplyGroup(group, open.profile);
}

// A pod of the group belongs to `profile`. Pods that disagree: the profile that is listed first.
void Engine::JoinOpenGroup(const std::string& key, int profile) {
  const auto open = open_groups_.find(key);
  if (open == open_groups_.end() || profile == kNone || profile == open->second.profile) {
    return;
  }
  const JobId job = state_.FindJob(key);
  if (job == kNone || state_.job(job).total == 0 || profile < open->second.profile) {
    open->second.profile = profile;
    ApplyGroup(open->second.spec, profile);
  }
}

void Engine::ApplyGroup(const PodGroupSpec& group, int profile) {
  if (profile == kNone) {
    state_.UpsertPodGroup(group, kNone);
    return;
  }
  PodGroupSpec adapted = group;
  const Profile& rules = profiles_[static_cast<std::size_t>(profile)];
  if (!rules.preemptibility_field) {
    adapted.preemptibility.clear();
  }
  if (!rules.preemption_delay) {
    adapted.staleness_grace.reset();  // KAI has both since 0.17
  }
  if (!rules.min_sub_group) {
    std::vector<SubGroupSpec*> all{&adapted.root};
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i]->min_sub_group.reset();
      for (SubGroupSpec& child : all[i]->groups) {
        all.push_back(&child);
      }
    }
  }
  if (!rules.sub_groups) {
    // One set for all pods; its minimum is the sum of the leaves'.
    int least = 0;
    std::vector<const SubGroupSpec*> open{&adapted.root};
    for (std::size_t i = 0; i < open.size(); ++i) {
      const SubGroupSpec* at = open[i];
      for (const PodSetSpec& set : at->pod_sets) {
        least += set.min_available;
      }
      for (const SubGroupSpec& child : at->groups) {
        open.push_back(&child);
      }
    }
    SubGroupSpec root;
    root.topology = adapted.root.topology;
    root.pod_sets.push_back({"default", std::max(least, 1), std::nullopt});
    adapted.root = std::move(root);
  }
  state_.UpsertPodGroup(adapted, profile);
}

void Engine::Apply(const PodSpec& pod) {
  const int profile = ProfileFor(pod.scheduler_name);
  if (profile != kNone && profiles_[static_cast<std::size_t>(profile)].kube && !pod.group.empty()) {
    // kube-scheduler knows no groups: every pod stands for itself.
    PodSpec alone = pod;
    alone.group.clear();
    alone.sub_group.clear();
    state_.UpsertPod(alone, profile);
  } else {
    // KAI places only pods of a group; one without is waited for, not placed.
    if (!open_groups_.empty() && !pod.group.empty()) {
      JoinOpenGroup(pod.group, profile);
    }
    state_.UpsertPod(pod, profile);
  }
  if (pod.refusals > 1) {
    backing_off_.insert(pod.uid);
  }
}
void Engine::Apply(const TopologySpec& topology) { state_.UpsertTopology(topology); }
void Engine::Apply(const ClaimSpec& claim) { state_.UpsertClaim(claim); }
void Engine::Apply(const DeviceSlice& slice) { state_.UpsertSlice(slice); }
void Engine::Apply(const DisruptionBudget& budget) { state_.UpsertBudget(budget); }
void Engine::Apply(const NamespaceSpec& space) { state_.UpsertNamespace(space); }
void Engine::Apply(const Snapshot& snapshot) {
  const auto each = [this](const auto& list) {
    for (const auto& item : list) {
      Apply(item);
    }
  };
  each(snapshot.queues);
  each(snapshot.topologies);
  each(snapshot.nodes);
  each(snapshot.slices);
  each(snapshot.claims);
  each(snapshot.budgets);
  each(snapshot.namespaces);
  each(snapshot.groups);
  each(snapshot.pods);
}
void Engine::DeleteNode(const std::string& name) { state_.DeleteNode(name); }
void Engine::DeleteQueue(const std::string& name) { state_.DeleteQueue(name); }
void Engine::DeletePodGroup(const std::string& key) {
  open_groups_.erase(key);
  state_.DeletePodGroup(key);
}
void Engine::DeletePod(const std::string& uid) { state_.DeletePod(uid); }
void Engine::DeleteTopology(const std::string& name) { state_.DeleteTopology(name); }
void Engine::DeleteClaim(const std::string& key) { state_.DeleteClaim(key); }
void Engine::DeleteSlice(const std::string& name) { state_.DeleteSlice(name); }
void Engine::DeleteBudget(const std::string& key) { state_.DeleteBudget(key); }
void Engine::DeleteNamespace(const std::string& name) { state_.DeleteNamespace(name); }

void Engine::BeginCycle(Millis now) {
  // Promises are made again every cycle, on what is free by then.
  std::set<TaskId> promised = state_.pipelined;
  promised.insert(state_.withdrawn.begin(), state_.withdrawn.end());
  state_.withdrawn.clear();
  for (TaskId id : promised) {
    state_.DropPromise(id);
  }
  if (now >= earliest_) {
    ++state_.capacity_generation;
    ++state_.usage_generation;
  }
  earliest_ = kNever;
  notes_.clear();
}

CycleResult Engine::Run(Millis now) {
  CycleResult result;
  BeginCycle(now);
  for (std::size_t i = 0; i < profiles_.size(); ++i) {
    RunProfile(static_cast<int>(i), profiles_[i].actions, now, &result);
  }
  std::map<std::string, std::string> promises;
  for (const Decision& decision : result.decisions) {
    if (decision.kind == Decision::Kind::kPipeline) {
      promises[decision.pod_uid] = decision.node;
    }
  }
  if (promises != promises_) {
    ++state_.usage_generation;
    ++state_.capacity_generation;
    promises_ = std::move(promises);
  }
  earliest_ = result.earliest;
  return result;
}

CycleResult Engine::RunOnly(Millis now, const std::vector<Action>& actions) {
  CycleResult result;
  // A case may start with a promise that an earlier session made; it stands during this one.
  RunProfile(0, actions, now, &result);
  earliest_ = result.earliest;
  return result;
}

void Engine::RunMeasured(Action action, Session& session, ActionStats* stats) {
  const std::int64_t begun = Stopwatch();
  const std::size_t decided = session.decisions.size();
  const std::size_t failed = session.failed.size();
  const std::int64_t simulated = session.simulated;
  const std::int64_t filtered = session.filtered;
  const bool was_out = session.out_of_steps;
  if (session.profile.kube && action == Action::kPreempt) {
    RunKubePreempt(session);
  } else {
    RunAction(action, session, *topologies_);
  }
  std::set<JobId> placed;
  for (std::size_t i = decided; i < session.decisions.size(); ++i) {
    if (session.decisions[i].kind != Decision::Kind::kEvict || action == Action::kStaleGang) {
      placed.insert(state_.task(session.decisions[i].task).job);
    }
  }
  stats->scheduled += static_cast<std::int64_t>(placed.size());
  stats->considered += static_cast<std::int64_t>(placed.size() + session.failed.size() - failed);
  stats->simulated += session.simulated - simulated;
  stats->filtered += session.filtered - filtered;
  stats->exhausted += session.out_of_steps && !was_out ? 1 : 0;
  stats->micros += Stopwatch() - begun;
}

void Engine::RunProfile(int index, const std::vector<Action>& actions, Millis now,
                        CycleResult* result) {
  const Profile& profile = profiles_[static_cast<std::size_t>(index)];
  const std::int64_t begun = Stopwatch();
  state_.RefreshShares(profile.k);
  const std::int64_t shared = Stopwatch();
  Session session(state_, profile, index, now);
  session.steps_left = profile.search_steps;
  const std::set<JobId> was_stale = state_.marked_stale;
  result->shares_micros += shared - begun;
  result->open_micros += Stopwatch() - begun;
  for (Action action : actions) {
    RunMeasured(action, session, &result->actions[static_cast<std::size_t>(action)]);
  }
  const std::int64_t ended = Stopwatch();
  for (const auto& [id, action] : session.failed) {
    Job& job = state_.job(id);
    if (job.tried == nullptr) {
      job.tried = std::make_unique<std::array<TriedMark, 5>>();
    }
    (*job.tried)[static_cast<std::size_t>(action)] = session.MarkOf(job);
  }
  for (const Decision& decision : session.decisions) {
    // A promise made again is no news; Run compares them as a whole.
    state_.usage_generation += decision.kind != Decision::Kind::kPipeline ? 1 : 0;
    state_.capacity_generation += decision.kind == Decision::Kind::kEvict ? 1 : 0;
  }
  CollectVerdicts(session, result);
  for (JobId id : session.started) {
    result->started.push_back(state_.job(id).key);
  }
  for (JobId id : state_.marked_stale) {
    if (was_stale.count(id) == 0) {
      result->stale.push_back(state_.job(id).key);
    }
  }
  for (JobId id : was_stale) {
    if (state_.marked_stale.count(id) == 0 &&
        state_.jobs[static_cast<std::size_t>(id)] != nullptr) {
      result->fresh.push_back(state_.job(id).key);
    }
  }
  result->earliest = std::min(result->earliest, session.earliest);
  result->close_micros += Stopwatch() - ended;
  result->more = result->more || session.out_of_steps;
  result->steps += profile.search_steps - session.steps_left;
  std::move(session.decisions.begin(), session.decisions.end(),
            std::back_inserter(result->decisions));
  std::move(session.notes.begin(), session.notes.end(), std::back_inserter(notes_));
}

void Engine::CollectVerdicts(Session& session, CycleResult* result) {
  for (JobId id : state_.pending_jobs) {
    Job& job = state_.job(id);
    if (job.profile != session.profile_index || job.failures.empty()) {
      continue;
    }
    std::string text = DetailedMessage(job.failures);
    job.gave_up = job.scheduling_backoff == 1;
    if (text == job.reported) {
      continue;
    }
    job.reported = text;
    GroupVerdict verdict;
    verdict.group = job.key;
    verdict.ns = job.ns;
    verdict.name = job.name;
    verdict.failures = job.failures;
    verdict.message = std::move(text);
    for (const auto& [task, message] : job.task_failures) {
      const Task& t = state_.task(task);
      verdict.pods.push_back({t.uid, t.ns, t.name, message});
    }
    // What the group as a whole is refused for is told to each of its waiting pods.
    for (const PodSet& set : job.pod_sets) {
      for (TaskId member : set.tasks) {
        const Task& t = state_.task(member);
        if (t.status == Status::kPending && !job.task_failures.contains(member)) {
          verdict.pods.push_back({t.uid, t.ns, t.name, ""});
        }
      }
    }
    result->verdicts.push_back(std::move(verdict));
  }
  std::sort(result->verdicts.begin(), result->verdicts.end(),
            [](const GroupVerdict& a, const GroupVerdict& b) { return a.group < b.group; });
}

void Engine::BindFailed(const std::string& uid, Millis now) {
  const TaskId id = state_.FindTask(uid);
  if (id == kNone || state_.task(id).real || !CountsForQuota(state_.task(id).status)) {
    return;
  }
  state_.DropPromise(id);
  Task& task = state_.task(id);
  constexpr Millis kFirst = 1000;
  constexpr Millis kLongest = 300'000;
  task.retry_at = now + std::min(kLongest, kFirst << std::min(task.rejected, 20));
  ++task.rejected;
  backing_off_.insert(uid);
  ++state_.capacity_generation;
  earliest_ = std::min(earliest_, task.retry_at);
}

void Engine::EvictFailed(const std::string& uid) {
  const TaskId id = state_.FindTask(uid);
  if (id == kNone || !state_.task(id).real || state_.task(id).status != Status::kReleasing ||
      state_.task(id).deleted != 0) {
    return;
  }
  state_.SetStatus(id, Status::kRunning);
  if (!state_.task(id).placements.empty()) {
    state_.Reaccount(id, 0, Status::kRunning);
  }
  state_.ChargeQueues(id, 1);
  ++state_.usage_generation;
}

std::unique_ptr<Engine> Engine::Clone() const {
  auto copy = std::make_unique<Engine>(profiles_);
  copy->Apply(Export());
  return copy;
}

}  // namespace sublet::scheduler
