// DRA claims as the engine counts them: which devices of a node's slices are free, what a claim
// gets, who shares it. Device classes select nothing here: every device of a slice matches.
// Threads: one, the scheduler's.
#pragma once

#include <string>

#include "scheduler/state.h"

namespace sublet::scheduler {

constexpr int kMaxConsumers = 256;  // resource.k8s.io ResourceClaimReservedForMaxSize

// Adds the pod to the claim and, if it has no devices yet, takes free ones of `node`. Too few free
// devices leave the claim without an allocation: the caller has asked ClaimsFit before.
void AllocateClaim(State& state, ClaimSpec& claim, const std::string& pod_uid, NodeId node);
// Takes the pod off; the last one frees the devices.
void ReleaseClaim(ClaimSpec& claim, const std::string& pod_uid);
// "" or why the pod cannot be placed anywhere (claim missing, full, other queue).
std::string CheckClaims(const State& state, const Task& task, const std::string& queue);
// "" or why `node` cannot serve the claims: allocated elsewhere, or too few devices.
std::string ClaimsFit(const State& state, const Task& task, NodeId node);

}  // namespace sublet::scheduler
