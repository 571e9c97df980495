// The steps of a pod worker: each starts a job and applies its result to the record.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "node/pod/worker.h"
#include "node/pod/worker_job.h"

namespace sublet::node {
namespace {

constexpr seconds kSetUpBackoffMost{60};
// Most often a claim that is bound within milliseconds of its pod: told as an Event from the second
// failure on.
constexpr std::chrono::milliseconds kVolumesBackoffFirst{50};
constexpr seconds kImageBackoffFirst{10};
constexpr seconds kImageBackoffMost{300};
// kubelet shows ErrImagePull until its next look at the pod, then ImagePullBackOff.
constexpr seconds kShowErrorFor{2};

template <typename Time>
Time Doubled(Time backoff, Time first, seconds most) {
  return backoff.count() == 0 ? first : std::min<Time>(most, 2 * backoff);
}

bool IsImageFailure(const std::string& reason) {
  return reason == "ErrImagePull" || reason == "ErrImageNeverPull" ||
         reason == "InvalidImageName" || reason == "ImageInspectError";
}

}  // namespace

void PodWorker::SetUpVolumes(bool is_refresh) {
  record_.is_volume_job = true;
  volumes_dirty_ = false;
  PodFacts facts;
  facts.host_ips = services_.config.host_ips;
  facts.allocatable = services_.config.allocatable;
  facts.pod_ip = record_.sandbox ? record_.sandbox->ip : "";
  Job& job = RunJob([this, plan = plan_, facts, is_refresh](Job&) {
    auto renew_at = services_.volumes.SetUp(*plan, facts);
    return std::function<void()>([this, renew_at = std::move(renew_at), is_refresh] {
      record_.is_volume_job = false;
      if (renew_at.ok()) {
        record_.volumes_ready = true;
        volumes_backoff_ = {};
        record_.volumes_retry_at = {};
        token_renew_at_ = *renew_at;
        return;
      }
      const bool is_first = volumes_backoff_.count() == 0;
      volumes_backoff_ = Doubled(volumes_backoff_, kVolumesBackoffFirst, kSetUpBackoffMost);
      record_.volumes_retry_at = services_.clock.Monotonic() + volumes_backoff_;
      volumes_dirty_ = volumes_dirty_ || is_refresh;
      if (!is_first) {
        Emit("", true, "FailedMount", renew_at.error().message());
      }
    });
  });
  job.ends_with_pod = true;
}

void PodWorker::StartSandbox() {
  record_.is_sandbox_job = true;
  const int attempt = record_.sandbox ? record_.sandbox->attempt + 1 : 0;
  RunJob([this, plan = plan_, attempt](Job&) {
    auto sandbox = CreateSandbox(services_, *plan, attempt);
    return std::function<void()>([this, sandbox = std::move(sandbox)] {
      record_.is_sandbox_job = false;
      if (!sandbox.ok()) {
        sandbox_backoff_ = Doubled(sandbox_backoff_, seconds(1), kSetUpBackoffMost);
        record_.sandbox_retry_at = services_.clock.Monotonic() + sandbox_backoff_;
        Emit("", true, "FailedCreatePodSandBox",
             "Failed to create pod sandbox: " + sandbox.error().message());
        return;
      }
      sandbox_backoff_ = seconds(0);
      record_.sandbox = *sandbox;
      WatchRun(sandbox->id, sandbox->pid);
      // Volumes that show the pod's address are written again with it.
      volumes_dirty_ = true;
    });
  });
}

void PodWorker::StopSandbox() {
  record_.is_sandbox_job = true;
  const bool remove = plan_->deleting || record_.removed_from_api;
  RunJob([this, id = record_.sandbox->id, remove](Job&) {
    Result<bool> stopped = false;
    if (remove) {
      stopped = services_.engine.RemoveSandbox(id);
    } else if (auto killed = services_.engine.Signal(id, "SIGKILL"); !killed.ok()) {
      stopped = std::move(killed).error();
    }
    return std::function<void()>([this, stopped = std::move(stopped), id, remove] {
      record_.is_sandbox_job = false;
      if (!stopped.ok()) {
        log::Warn("cannot stop a sandbox", {{"pod", plan_->Text()}, {"error", stopped.error()}});
      }
      if (record_.sandbox && record_.sandbox->id == id) {
        record_.sandbox->phase = ContainerPhase::kExited;
        record_.sandbox->pid = 0;
        record_.sandbox->is_removed = remove && stopped.ok();
        record_.sandbox->took_members = record_.sandbox->is_removed && *stopped;
      }
    });
  });
}

void PodWorker::StartOne(const ContainerPlan& container) {
  const std::string name = container.name;
  ContainerRecord& state = record_.containers[name];
  state.is_starting = true;
  int attempt = 0;
  std::string old_id;
  if (state.current) {
    attempt = state.current->attempt + 1;
    if (state.HasEnded() && state.current->sandbox_id == record_.sandbox->id) {
      state.crash_backoff = NextCrashBackoff(state, services_.clock.Now());
      state.crash_backoff_set = services_.clock.Now();
    }
    old_id = state.previous ? state.previous->id : "";
  } else if (const kube::Json* list = kube::Find(*status_, {"containerStatuses"})) {
    // The engine has forgotten an earlier run that the API server still shows.
    for (const kube::Json& status : *list) {
      if (kube::FindString(status, {"name"}) == name &&
          (kube::Find(status, {"containerID"}) ||
           kube::Find(status, {"lastState", "terminated"}))) {
        attempt = static_cast<int>(kube::FindInt(status, {"restartCount"})) + 1;
      }
    }
  }
  std::string target_id;
  if (const auto it = record_.containers.find(container.target_container);
      it != record_.containers.end() && it->second.current) {
    target_id = it->second.current->id;
  }
  Job& job = RunJob([this, plan = plan_, name, sandbox = *record_.sandbox, attempt, old_id,
                     target_id](Job& self) {
    const ContainerPlan& start = *plan->Find(name);
    const StartRequest request{*plan, start, sandbox, attempt, old_id, target_id};
    StartResult result = StartContainer(services_, request, &self.cancel);
    const bool has_hook = !result.failure && start.post_start.kind != HandlerPlan::Kind::kNone;
    if (!has_hook) {
      return std::function<void()>([this, name, result] { ApplyStart(name, result, true); });
    }
    // The container is shown as running while its hook works; no other one starts meanwhile.
    Post([this, name, result] { ApplyStart(name, result, false); });
    HandlerTarget target;
    target.container_id = result.run->id;
    target.pod_ip = sandbox.ip;
    const HandlerOutcome outcome = RunHandler(services_.engine, start.post_start, start, target,
                                              std::chrono::hours(24), &self.cancel);
    return std::function<void()>([this, name, result, outcome] {
      ContainerRecord& record = record_.containers[name];
      record.is_starting = false;
      if (!outcome.success && record.IsRunning() && record.current->id == result.run->id) {
        Emit(name, true, "FailedPostStartHook", "PostStartHook failed: " + outcome.output);
        record.kill_reason = "FailedPostStartHook";
      } else {
        NoteRunning(name);
      }
    });
  });
  job.ends_with_pod = true;
}

void PodWorker::ApplyStart(const std::string& name, const StartResult& result, bool is_final) {
  ContainerRecord& state = record_.containers[name];
  state.is_starting = !is_final;
  if (result.run) {
    if (state.current && state.HasEnded()) {
      state.previous = state.current;
    }
    // Only now, so that `kubectl logs --previous` always finds the run that is shown as the last.
    if (!result.old_container_id.empty() &&
        (!state.current || state.current->id != result.run->id)) {
      RunJob([this, plan = plan_, id = result.old_container_id](Job&) {
        if (auto removed = services_.engine.Remove(id); !removed.ok()) {
          log::Warn("cannot remove an old container",
                    {{"pod", plan->Text()}, {"error", removed.error()}});
        }
        return std::function<void()>([] {});
      });
    }
    state.current = result.run;
    state.waiting.reset();
    state.start_backoff = seconds(0);
    state.retry_at = {};
    state.startup_passed = false;
    state.ready = false;
    state.kill_reason.reset();
    image_backoff_notes_.erase(name);
    if (state.IsRunning()) {
      WatchRun(result.run->id, result.run->pid);
      if (is_final) {
        NoteRunning(name);
      }
    } else if (!result.failure) {
      // Ended before it could be looked at.
      state.current->phase = ContainerPhase::kRunning;
      NoteEnded(result.run->id, false);
    }
  }
  if (!result.failure) {
    return;
  }
  state.waiting = result.failure;
  const bool image = IsImageFailure(result.failure->reason);
  state.start_backoff = image ? Doubled(state.start_backoff, kImageBackoffFirst, kImageBackoffMost)
                              : Doubled(state.start_backoff, seconds(1), kSetUpBackoffMost);
  const MonotonicTime now = services_.clock.Monotonic();
  state.retry_at = now + state.start_backoff;
  if (result.failure->reason == "ErrImagePull") {
    image_backoff_notes_[name] = now + kShowErrorFor;
  }
}

void PodWorker::StopOne(const Action& action) {
  ContainerRecord& state = record_.containers[action.container];
  state.is_stopping = true;
  services_.prober.Remove(state.current->id);
  Emit(action.container, false, "Killing", action.message);
  auto control = std::make_shared<StopControl>(services_.clock.Monotonic() + action.grace);
  stops_[action.container] = control;
  const std::string ip = record_.sandbox ? record_.sandbox->ip : "";
  RunJob(
      [this, plan = plan_, name = action.container, run = *state.current, ip, control](Job& self) {
        StopContainer(services_, *plan, *plan->Find(name), run, ip, *control, self.cancel);
        return std::function<void()>([this, name, id = run.id] {
          ContainerRecord& record = record_.containers[name];
          record.is_stopping = false;
          stops_.erase(name);
          if (record.IsRunning() && record.current->id == id) {
            NoteEnded(id, false);
          }
        });
      });
}

void PodWorker::TearDown() {
  record_.is_volume_job = true;
  const bool remove = plan_->deleting || record_.removed_from_api;
  std::vector<std::string> containers;
  if (remove) {
    // What went with the sandbox is not asked for again: when many pods end, each question takes a
    // turn among the removals of others.
    const std::string gone_with =
        record_.sandbox && record_.sandbox->took_members ? record_.sandbox->id : "";
    for (const auto& [name, state] : record_.containers) {
      for (const auto& run : {state.current, state.previous}) {
        if (run && (gone_with.empty() || run->sandbox_id != gone_with)) {
          containers.push_back(run->id);
        }
      }
    }
    if (record_.sandbox && !record_.sandbox->is_removed) {
      containers.push_back(record_.sandbox->id);
    }
  }
  RunJob([this, plan = plan_, containers, remove](Job& self) {
    for (const std::string& id : containers) {
      // The engine may be restarting; what stays behind in spite of this is found at the next
      // start.
      auto removed = services_.engine.Remove(id);
      for (int retry = 0; retry < 5 && !removed.ok() && !self.cancel.cancelled(); ++retry) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200 << retry));
        removed = services_.engine.Remove(id);
      }
      if (!removed.ok()) {
        log::Warn("cannot remove a container", {{"pod", plan->Text()}, {"error", removed.error()}});
      }
    }
    if (!plan->host_network) {
      if (auto detached = services_.network.Detach(plan->uid); !detached.ok()) {
        log::Warn("cannot disconnect a pod", {{"pod", plan->Text()}, {"error", detached.error()}});
      }
      services_.network.Release(plan->uid);
    }
    auto down = services_.volumes.TearDown(plan->uid);
    if (down.ok() && remove) {
      down = RemoveTree(services_.volumes.PodFolder(plan->uid));
    }
    if (!down.ok()) {
      log::Warn("cannot remove a pod's volumes", {{"pod", plan->Text()}, {"error", down.error()}});
    }
    return std::function<void()>([this, remove] {
      record_.is_volume_job = false;
      record_.volumes_ready = false;
      // A pod that ended by itself and is deleted later still has containers to be removed.
      record_.torn_down = remove == (plan_->deleting || record_.removed_from_api);
    });
  });
}

}  // namespace sublet::node
