// PodRecord: what the node agent knows about the containers of one pod: what the engine showed,
// what is under way, and why the last try failed. The worker writes it; decide.cc and status.cc
// read it. Threads: confined to the pod's worker.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "node/engine/engine.h"
#include "node/pod/plan.h"

namespace sublet::node {

using ContainerPhase = ContainerState::Phase;

// One container of the engine: one run of a container of the pod.
struct Incarnation {
  std::string id;
  std::string sandbox_id;
  ContainerPhase phase = ContainerPhase::kCreated;
  int attempt = 0;  // restartCount of this run
  int pid = 0;
  int exit_code = 0;
  std::string reason;   // of the end: Completed, Error, OOMKilled, ContainerCannotRun, ...
  std::string message;  // the termination message
  WallTime started_at{};
  WallTime finished_at{};
  std::string image;
  std::string image_id;
  std::string image_hash;
  std::string log_path;
  std::string termination_file;
  std::string stop_signal;
  bool tty = false;
};

// Why a container or pod does not get on; shown as the waiting state.
struct Failure {
  std::string reason;  // ErrImagePull, CreateContainerConfigError, ...
  std::string message;
};

struct ContainerRecord {
  std::optional<Incarnation> current;   // the newest run
  std::optional<Incarnation> previous;  // the one before, ended
  std::optional<Failure> waiting;       // the last try to start it failed
  MonotonicTime retry_at{};             // not tried again before
  seconds start_backoff{0};             // grows with failed tries
  // Waits between restarts after an end: the wait that the next end will bring, and when it was
  // set.
  seconds crash_backoff{0};
  WallTime crash_backoff_set{};
  bool is_starting = false;                // a start job is under way
  bool is_stopping = false;                // a stop job is under way
  std::optional<std::string> kill_reason;  // a probe or hook asks for its end; the Event's text
  std::optional<seconds> kill_grace;
  bool startup_passed = false;  // of the current run; true at once without a startup probe
  bool ready = false;           // of the current run, by its readiness probe

  bool IsRunning() const { return current && current->phase == ContainerPhase::kRunning; }
  bool HasEnded() const { return current && current->phase == ContainerPhase::kExited; }
};

struct SandboxRecord {
  std::string id;
  ContainerPhase phase = ContainerPhase::kCreated;
  int pid = 0;
  std::string ip;  // "" for pods on the machine's network
  int attempt = 0;
  bool is_removed = false;    // the engine has it no more
  bool took_members = false;  // nor the containers that ran in it
};

struct PodRecord {
  std::optional<SandboxRecord> sandbox;
  bool is_sandbox_job = false;
  std::optional<Failure> sandbox_failure;
  MonotonicTime sandbox_retry_at{};
  bool volumes_ready = false;
  bool is_volume_job = false;
  MonotonicTime volumes_retry_at{};
  std::map<std::string, ContainerRecord> containers;
  std::optional<WallTime> start_time;  // status.startTime
  // Set once: the pod ends by the agent's decision (DeadlineExceeded, Evicted, ...).
  std::optional<Failure> verdict;
  bool is_rejected = false;  // by the verdict of admission: no container has a status
  bool removed_from_api = false;
  std::optional<MonotonicTime> termination_started;
  bool torn_down = false;
  // The API server already shows the pod as Succeeded or Failed: nothing starts any more, even when
  // the engine has forgotten its containers.
  bool finished_before = false;

  const ContainerRecord* Find(const std::string& name) const {
    const auto it = containers.find(name);
    return it == containers.end() ? nullptr : &it->second;
  }
};

}  // namespace sublet::node
