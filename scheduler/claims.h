// DRA claims as the engine counts them: which devices of a node's slices are free and chosen by a
// claim's requests, what a claim gets, who shares it. Devices are taken greedily, the request with
// the fewest candidates first; a choice is not tried again with another order. Threads: one, the
// scheduler's.
#pragma once

#include <string>

#include "scheduler/state.h"

namespace sublet::scheduler {

constexpr int kMaxConsumers = 256;  // resource.k8s.io ResourceClaimReservedForMaxSize

// GPUs that the claim counts as, in thousandths: the devices of its requests whose class says so.
std::int64_t GpusOf(const ClaimSpec& claim);

// Adds the pod to the claim and, if it has no devices yet, takes free ones of `node`. Too few free
// devices leave the claim without an allocation: the caller has asked ClaimsFit before.
void AllocateClaim(State& state, ClaimSpec& claim, const std::string& pod_uid, NodeId node);
// Takes the pod off, if it is on it; the last one frees the devices.
void ReleaseClaim(State& state, ClaimSpec& claim, const std::string& pod_uid);
// "" or why the pod cannot be placed anywhere (claim missing, going, full, not understood; under
// KAI's profiles also: of another queue).
std::string CheckClaims(const State& state, const Task& task, const std::string& queue, bool kube);
// "" or why `node` cannot serve the claims: allocated elsewhere, or too few devices.
std::string ClaimsFit(const State& state, const Task& task, NodeId node);

}  // namespace sublet::scheduler
