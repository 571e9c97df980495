// Which devices of a node's slices a pod's claims get: a depth-first search with backtracking over
// all claims of the pod together, in the order of their requests, as Kubernetes' structured
// allocator does it. It knows alternatives (firstAvailable), All and exact counts, constraints
// between devices, taints, administrators' access, shared devices (consumable capacity), shared
// counters (partitions) and devices with nodes of their own. Bounded in tried devices; a search
// that is cut off finds nothing and says so. Threads: one, the scheduler's.
#pragma once

#include <vector>

#include "scheduler/device_index.h"

namespace sublet::scheduler {

constexpr int kDeviceTries = 10'000;     // of one search, on one node
constexpr std::size_t kDevicesMax = 32;  // of one claim: AllocationResultsMaxSize

struct ClaimPick {
  std::vector<ClaimDevice> devices;
  std::vector<std::string> requests;  // parallel
  std::vector<DeviceHold> holds;      // parallel
  std::vector<NodeTerm> reach;        // ClaimSpec::allocated_on
};
enum class SearchEnd : std::uint8_t { kFound, kNothing, kCutOff };
// Chooses for all of `claims`, none of which has devices yet; `picks` is parallel to them.
SearchEnd FindDevices(const State& state, const std::vector<const ClaimSpec*>& claims,
                      const NodeSpec& node, std::vector<ClaimPick>* picks);

}  // namespace sublet::scheduler
