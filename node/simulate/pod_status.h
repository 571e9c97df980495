// What a simulated pod's status should be now: the pure part of the simulator, spelt as a kubelet
// spells it (phase, conditions, container states).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/clock.h"
#include "kube/json.h"
#include "node/simulate/pod_facts.h"

namespace sublet::node {

// What the node decided about the pod before its life.
struct PodPlace {
  std::string host_ip;
  std::string pod_ip;
  std::optional<Rejection> rejection;
  bool image_missing = false;
};

struct PodStep {
  // A strategic merge patch for pods/status; absent when the status is as it should be.
  std::optional<kube::Json> patch;
  // When the status changes next by itself.
  std::optional<WallTime> next;
};

// The step for a bound pod that is neither finished nor being deleted.
PodStep NextStep(const SimulatedPod& pod, const PodPlace& place, WallTime now);

// The status of a pod whose containers were stopped because it is being deleted.
kube::Json StoppedStatus(const SimulatedPod& pod, WallTime now);

}  // namespace sublet::node
