#include "node/pod/decide.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindString;
using kube::Json;

const ContainerRecord kNoRecord;

const ContainerRecord& RecordOf(const PodRecord& record, const ContainerPlan& container) {
  const ContainerRecord* found = record.Find(container.name);
  return found != nullptr ? *found : kNoRecord;
}

// Runs of an earlier sandbox do not count for the init sequence.
bool BelongsToSandbox(const PodRecord& record, const ContainerRecord& container) {
  return container.current && record.sandbox && container.current->sandbox_id == record.sandbox->id;
}

void Sooner(std::optional<MonotonicTime>* at, MonotonicTime candidate) {
  if (!*at || candidate < **at) {
    *at = candidate;
  }
}

// One pass of the decision.
class Decider {
 public:
  Decider(const PodPlan& plan, const PodRecord& record, const Now& now)
      : plan_(plan), record_(record), now_(now) {}

  Decision Run() {
    if (IsTerminating(plan_, record_)) {
      Terminate();
    } else if (HasFinished(plan_, record_)) {
      Finish();
    } else if (!CheckDeadline() && SetUp()) {
      if (RunInitContainers()) {
        for (const ContainerPlan& container : plan_.containers) {
          KeepRunning(container);
        }
      }
      StartEphemeral();
      PickStart();
    }
    return std::move(decision_);
  }

 private:
  Action& Add(Action::Kind kind, std::string container = {}) {
    Action action;
    action.kind = kind;
    action.container = std::move(container);
    decision_.actions.push_back(std::move(action));
    return decision_.actions.back();
  }

  void Stop(const ContainerPlan& container, seconds grace, std::string message) {
    const ContainerRecord& record = RecordOf(record_, container);
    if (record.IsRunning() && !record.is_stopping) {
      Action& action = Add(Action::Kind::kStopContainer, container.name);
      action.grace = grace;
      action.message = std::move(message);
    }
  }

  MonotonicTime ToMonotonic(WallTime at) const {
    return now_.monotonic + std::chrono::duration_cast<MonotonicTime::duration>(at - now_.wall);
  }

  bool CheckDeadline() {
    if (!plan_.active_deadline || !record_.start_time) {
      return false;
    }
    const WallTime end = *record_.start_time + *plan_.active_deadline;
    if (now_.wall < end) {
      Sooner(&decision_.again_at, ToMonotonic(end));
      return false;
    }
    Action& action = Add(Action::Kind::kGiveVerdict);
    action.reason = "DeadlineExceeded";
    action.message = "Pod was active on the node longer than the specified deadline";
    return true;
  }

  // Volumes and sandbox. True when containers may run.
  bool SetUp() {
    if (!record_.volumes_ready) {
      if (!record_.is_volume_job) {
        When(record_.volumes_retry_at, Action::Kind::kSetUpVolumes);
      }
      return false;
    }
    if (record_.is_sandbox_job) {
      return false;
    }
    if (record_.sandbox && record_.sandbox->phase == ContainerPhase::kRunning) {
      return true;
    }
    if (record_.sandbox) {
      // The sandbox died: its members have lost their network and go with it.
      bool any = false;
      for (const ContainerPlan* container : plan_.All()) {
        const ContainerRecord& state = RecordOf(record_, *container);
        any = any || state.IsRunning() || state.is_starting || state.is_stopping;
        Stop(*container, plan_.grace, "Pod sandbox changed, it will be killed and re-created.");
      }
      if (any) {
        return false;
      }
    }
    When(record_.sandbox_retry_at, Action::Kind::kCreateSandbox);
    return false;
  }

  void When(MonotonicTime at, Action::Kind kind) {
    if (now_.monotonic >= at) {
      Add(kind);
    } else {
      Sooner(&decision_.again_at, at);
    }
  }

  // True when the main containers may run.
  bool RunInitContainers() {
    const bool initialized = IsInitialized(plan_, record_);
    for (const ContainerPlan& container : plan_.init_containers) {
      const ContainerRecord& state = RecordOf(record_, container);
      if (container.role == ContainerRole::kSidecar) {
        KeepRunning(container);
        if (!initialized && !(state.IsRunning() && BelongsToSandbox(record_, state) &&
                              state.startup_passed && !state.is_starting)) {
          return false;
        }
        continue;
      }
      if (initialized) {
        continue;
      }
      if (BelongsToSandbox(record_, state) && state.HasEnded() && state.current->exit_code == 0) {
        continue;
      }
      KeepRunning(container);
      return false;
    }
    return true;
  }

  // Starts what should run and does not, stops what should be replaced.
  void KeepRunning(const ContainerPlan& container) {
    const ContainerRecord& state = RecordOf(record_, container);
    if (state.is_starting || state.is_stopping) {
      return;
    }
    if (state.IsRunning()) {
      if (state.current->image_hash != container.image_hash) {
        Stop(container, plan_.grace,
             "Container " + container.name + " definition changed, will be restarted");
      } else if (state.kill_reason) {
        Stop(container, state.kill_grace.value_or(plan_.grace), *state.kill_reason);
      }
      return;
    }
    const bool fresh = !BelongsToSandbox(record_, state);
    if (state.HasEnded() && !ShouldRestart(container, *state.current) &&
        !(fresh && container.role == ContainerRole::kInit)) {
      return;
    }
    if (state.HasEnded() && !fresh) {
      const WallTime at = RestartAt(state);
      if (now_.wall < at) {
        Sooner(&decision_.again_at, ToMonotonic(at));
        return;
      }
    }
    if (now_.monotonic < state.retry_at) {
      Sooner(&decision_.again_at, state.retry_at);
      return;
    }
    startable_.push_back(&container);
  }

  void StartEphemeral() {
    for (const ContainerPlan& container : plan_.ephemeral_containers) {
      const ContainerRecord& state = RecordOf(record_, container);
      if (!state.current && !state.is_starting) {
        if (now_.monotonic < state.retry_at) {
          Sooner(&decision_.again_at, state.retry_at);
        } else {
          startable_.push_back(&container);
        }
      }
    }
  }

  // Containers of a pod start one after the other, in the order of the specification.
  void PickStart() {
    for (const ContainerPlan* container : plan_.All()) {
      if (RecordOf(record_, *container).is_starting) {
        return;
      }
    }
    if (!startable_.empty()) {
      Add(Action::Kind::kStartContainer, startable_.front()->name);
    }
  }

  // Every container has come to its end; sidecars are told to go, then the sandbox.
  void Finish() {
    for (const ContainerPlan& container : plan_.containers) {
      Stop(container, plan_.grace, "Stopping container " + container.name);
    }
    StopSidecars(plan_.grace);
    if (IsQuiet(plan_, record_)) {
      CloseDown();
    }
  }

  void Terminate() {
    const seconds grace = RemainingGrace();
    for (const ContainerPlan* container : plan_.All()) {
      if (container->role != ContainerRole::kSidecar) {
        Stop(*container, grace, "Stopping container " + container->name);
      }
    }
    StopSidecars(grace);
    if (IsQuiet(plan_, record_)) {
      CloseDown();
    }
  }

  // What is left of the pod's time; the last ones to be told get two seconds in any case.
  seconds RemainingGrace() const {
    const seconds whole = plan_.deleting ? plan_.deletion_grace : plan_.grace;
    if (!record_.termination_started || whole == seconds(0)) {
      return whole;
    }
    const auto spent =
        std::chrono::duration_cast<seconds>(now_.monotonic - *record_.termination_started);
    return std::max(seconds(2), whole - spent);
  }

  // Sidecars end after the containers they serve, the last started first, one by one.
  void StopSidecars(seconds grace) {
    for (const ContainerPlan* container : plan_.All()) {
      const ContainerRecord& state = RecordOf(record_, *container);
      if (container->role != ContainerRole::kSidecar && (state.IsRunning() || state.is_starting)) {
        return;
      }
    }
    for (auto it = plan_.init_containers.rbegin(); it != plan_.init_containers.rend(); ++it) {
      const ContainerRecord& state = RecordOf(record_, *it);
      if (it->role == ContainerRole::kSidecar && (state.IsRunning() || state.is_starting)) {
        Stop(*it, grace, "Stopping container " + it->name);
        return;
      }
    }
  }

  void CloseDown() {
    if (record_.is_sandbox_job || record_.is_volume_job) {
      return;
    }
    if (record_.sandbox && record_.sandbox->phase != ContainerPhase::kExited) {
      Add(Action::Kind::kStopSandbox);
    } else if (!record_.torn_down) {
      Add(Action::Kind::kTearDown);
    }
  }

  const PodPlan& plan_;
  const PodRecord& record_;
  const Now now_;
  Decision decision_;
  std::vector<const ContainerPlan*> startable_;
};

// restartPolicyRules: the first rule whose exit codes match decides.
bool MatchesRestartRule(const ContainerPlan& container, int exit_code) {
  const Json* rules =
      container.spec == nullptr ? nullptr : Find(*container.spec, {"restartPolicyRules"});
  if (rules == nullptr || !rules->is_array()) {
    return false;
  }
  for (const Json& rule : *rules) {
    const Json* values = Find(rule, {"exitCodes", "values"});
    if (values == nullptr || !values->is_array() || FindString(rule, {"action"}) != "Restart") {
      continue;
    }
    const bool listed = std::any_of(values->begin(), values->end(), [&](const Json& value) {
      return value.is_number_integer() && value.get<int>() == exit_code;
    });
    if (listed == (FindString(rule, {"exitCodes", "operator"}) == "In")) {
      return true;
    }
  }
  return false;
}

}  // namespace

Decision Decide(const PodPlan& plan, const PodRecord& record, const Now& now) {
  return Decider(plan, record, now).Run();
}

bool ShouldRestart(const ContainerPlan& container, const Incarnation& ended) {
  if (MatchesRestartRule(container, ended.exit_code)) {
    return true;
  }
  switch (container.restart_policy) {
    case RestartPolicy::kAlways: return true;
    case RestartPolicy::kOnFailure: return ended.exit_code != 0;
    case RestartPolicy::kNever: return false;
  }
  return false;
}

WallTime RestartAt(const ContainerRecord& record) {
  if (!record.current || record.crash_backoff == seconds(0)) {
    return WallTime::min();
  }
  // A run that lasted made the past forgotten.
  const WallTime ended = record.current->finished_at;
  if (ended - record.crash_backoff_set > 2 * kCrashBackoffMost) {
    return WallTime::min();
  }
  return ended + record.crash_backoff;
}

seconds NextCrashBackoff(const ContainerRecord& record, WallTime now) {
  if (record.crash_backoff == seconds(0) ||
      now - record.crash_backoff_set > 2 * kCrashBackoffMost) {
    return kCrashBackoffFirst;
  }
  return std::min(kCrashBackoffMost, 2 * record.crash_backoff);
}

bool IsTerminating(const PodPlan& plan, const PodRecord& record) {
  return plan.deleting || record.removed_from_api || record.verdict.has_value();
}

bool IsQuiet(const PodPlan& plan, const PodRecord& record) {
  for (const ContainerPlan* container : plan.All()) {
    const ContainerRecord& state = RecordOf(record, *container);
    if (state.IsRunning() || state.is_starting || state.is_stopping) {
      return false;
    }
  }
  return true;
}

bool IsInitialized(const PodPlan& plan, const PodRecord& record) {
  // A main container that ran in this sandbox proves that the sequence was completed once.
  for (const ContainerPlan& container : plan.containers) {
    if (BelongsToSandbox(record, RecordOf(record, container))) {
      return true;
    }
  }
  for (const ContainerPlan& container : plan.init_containers) {
    const ContainerRecord& state = RecordOf(record, container);
    const bool done = container.role == ContainerRole::kSidecar
                          ? state.IsRunning() && state.startup_passed && !state.is_starting
                          : state.HasEnded() && state.current->exit_code == 0;
    if (!done || !BelongsToSandbox(record, state)) {
      return false;
    }
  }
  return true;
}

bool HasFinished(const PodPlan& plan, const PodRecord& record) {
  if (record.finished_before) {
    return true;
  }
  for (const ContainerPlan& container : plan.init_containers) {
    const ContainerRecord& state = RecordOf(record, container);
    if (container.role == ContainerRole::kInit && state.HasEnded() &&
        state.current->exit_code != 0 && !ShouldRestart(container, *state.current)) {
      return true;
    }
  }
  return std::all_of(plan.containers.begin(), plan.containers.end(),
                     [&](const ContainerPlan& container) {
                       const ContainerRecord& state = RecordOf(record, container);
                       return state.HasEnded() && !ShouldRestart(container, *state.current);
                     });
}

}  // namespace sublet::node
