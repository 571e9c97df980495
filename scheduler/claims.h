// DRA claims as the engine counts them: which devices of a node's slices are free and chosen by a
// claim's requests (device_search.h), what a claim gets, who shares it. Threads: one, the
// scheduler's.
#pragma once

#include <string>

#include "scheduler/state.h"

namespace sublet::scheduler {

constexpr int kMaxConsumers = 256;  // resource.k8s.io ResourceClaimReservedForMaxSize

// GPUs that the claim counts as, in thousandths: the devices of its requests whose class says so.
std::int64_t GpusOf(const ClaimSpec& claim);

// Adds the pod to its claims and gives those that have no devices yet free ones of `node`. Too few
// free devices leave them without an allocation: the caller has asked ClaimsFit before.
void AllocateClaims(State& state, const Task& task, NodeId node);
// Takes the pod off, if it is on it; the last one frees the devices.
void ReleaseClaim(State& state, ClaimSpec& claim, const std::string& pod_uid);
// "" or why the pod cannot be placed anywhere (claim missing, going, full, not understood; under
// KAI's profiles also: of another queue).
std::string CheckClaims(const State& state, const Task& task, const std::string& queue, bool kube);
// "" or why `node` cannot serve the claims: allocated elsewhere, too few devices, or a choice among
// them that was not found within the bound of the search.
std::string ClaimsFit(const State& state, const Task& task, NodeId node);

}  // namespace sublet::scheduler
