// The steps a pod worker takes against the engine: sandbox up, container up, container down. Each
// is one blocking call that runs on a job thread of the worker. Threads: any. Source: kubelet
// kuberuntime (startContainer, killContainer), the order of its Events.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "node/pod/services.h"
#include "node/pod/state.h"

namespace sublet::node {

// Attempt number and address of the sandbox to make; writes the pod's /etc files.
// Errors: NotFound (runtime class), whatever the engine says.
Result<SandboxRecord> CreateSandbox(PodServices& services, const PodPlan& plan, int attempt);

struct StartRequest {
  const PodPlan& plan;
  const ContainerPlan& container;
  const SandboxRecord& sandbox;
  int attempt = 0;
  std::string old_container_id;     // an earlier ended run that may go; "" = none
  std::string target_container_id;  // of an ephemeral container
};
struct StartResult {
  // The run, running or, when it could not be started, ended with code 128 (StartError).
  std::optional<Incarnation> run;
  std::optional<Failure> failure;
  std::string old_container_id;  // with `run`: the run before the previous one, to be removed now
};
// Image, configuration, create, start. `cancel` ends a pull.
StartResult StartContainer(PodServices& services, const StartRequest& request, Canceller* cancel);

// Shared between the thread that stops a container and the worker that may shorten its time.
class StopControl {
 public:
  explicit StopControl(Deadline deadline) : deadline_(deadline) {}
  Deadline deadline() const {
    MutexLock lock(mutex_);
    return deadline_;
  }
  // Only earlier deadlines count, and graces are whole seconds: the same grace counted from a
  // moment before must not wake, for waking cuts a preStop hook short.
  void Shorten(Deadline deadline) {
    {
      MutexLock lock(mutex_);
      if (deadline + std::chrono::seconds(1) > deadline_) {
        return;
      }
      deadline_ = deadline;
    }
    wake_.Cancel();
  }
  Canceller& wake() { return wake_; }

 private:
  mutable Mutex mutex_;
  Deadline deadline_ SUBLET_GUARDED_BY(mutex_);
  Canceller wake_;
};

// preStop hook, stop signal, and SIGKILL at the control's deadline; returns when the process is
// gone or `abandon` was cancelled.
void StopContainer(PodServices& services, const PodPlan& plan, const ContainerPlan& container,
                   const Incarnation& run, const std::string& pod_ip, StopControl& control,
                   Canceller& abandon);

// What is known of a run whose process has ended: exit code, reason, message, times. A container
// that the engine no longer has ended with 137 (ContainerStatusUnknown). Errors: the engine is
// away.
Result<Incarnation> InspectEnded(PodServices& services, const ContainerPlan* container,
                                 const Incarnation& run, bool out_of_memory);

// A run as the engine's inspect shows it (after a restart of the agent).
Incarnation RecoverIncarnation(const ContainerState& state);

// The pod's folder for logs of one container, and the log file of one run.
std::string LogPath(const PodServicesConfig& config, const PodPlan& plan,
                    const std::string& container, int attempt);

}  // namespace sublet::node
