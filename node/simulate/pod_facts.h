// SimulatedPod: what the simulator needs to know of a pod, read once per event.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "node/pod_admission.h"

namespace sublet::node {

// Annotations a pod may carry to act out a life of its own.
inline constexpr std::string_view kRunSecondsAnnotation = "sublet.dev/simulate-run-seconds";
inline constexpr std::string_view kExitCodeAnnotation = "sublet.dev/simulate-exit-code";
inline constexpr std::string_view kReadyAnnotation = "sublet.dev/simulate-ready";  // "false"
// Written onto pods and nodes by the simulator.
inline constexpr std::string_view kSimulatedAnnotation = "sublet.dev/simulated";

struct SimulatedContainer {
  std::string name;
  std::string image;
  std::string resources;         // JSON of spec.containers[].resources, "" when absent
  bool restarts_always = false;  // a sidecar among the init containers
};

struct SimulatedPod {
  std::string node;
  std::string phase;
  std::string pod_ip;
  std::string restart_policy;
  bool host_network = false;
  PodDemand demand;
  std::int64_t generation = 0;
  std::int64_t observed_generation = 0;
  std::optional<std::int64_t> active_deadline_seconds;
  // Being deleted with time to end: since when (deletionTimestamp lies at the end of the grace
  // period).
  std::optional<WallTime> stopping_since;
  std::optional<WallTime> start_time;
  std::optional<WallTime> started_at;  // of the first container's present run
  std::int64_t restarts = 0;
  bool ready = false;
  bool reported = false;     // containerStatuses are there
  bool pull_failed = false;  // the first container waits for its image
  bool has_finalizers = false;
  std::vector<SimulatedContainer> init_containers;
  std::vector<SimulatedContainer> containers;
  std::vector<std::string> readiness_gates;
  std::vector<std::string> true_conditions;  // types whose status is True
  std::optional<std::int64_t> run_seconds;
  std::int64_t exit_code = 0;
  bool never_ready = false;

  bool Finished() const { return phase == "Succeeded" || phase == "Failed"; }
};

SimulatedPod ReadSimulatedPod(const kube::Json& pod);

}  // namespace sublet::node
