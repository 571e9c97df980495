// Which devices of a node's slices a pod's claims get: a depth-first search with backtracking over
// all claims of the pod together, in the order of their requests, as Kubernetes' structured
// allocator does it. It knows alternatives (firstAvailable), All and exact counts, constraints
// between devices, taints, administrators' access, shared devices (consumable capacity), shared
// counters (partitions) and devices with nodes of their own. Bounded in tried devices; a search
// that is cut off finds nothing and says so. Threads: one, the scheduler's.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheduler/state.h"

namespace sublet::scheduler {

constexpr int kDeviceTries = 10'000;     // of one search, on one node
constexpr std::size_t kDevicesMax = 32;  // of one claim: AllocationResultsMaxSize

struct DeviceRef {
  const DeviceSlice* slice;
  const SliceDevice* device;
  ClaimDevice id;
};

// What is derived from `slices` and `claims`, made again when they changed.
struct DeviceIndex {
  using Counter = std::pair<std::string, std::string>;  // set, name
  struct Pool {
    std::map<Counter, std::int64_t> total, used;  // thousandths
  };
  std::uint64_t slices_at = 0, nodes_at = 0, claims_at = 0;
  std::set<std::string> current;  // slices of complete pools' newest generation
  std::map<std::string, std::vector<DeviceRef>> nodes;  // by node name, filled when asked
  std::set<ClaimDevice> taken;                          // whole
  std::map<ClaimDevice, std::map<std::string, std::int64_t>> parts;  // held of shared devices
  std::map<std::pair<std::string, std::string>, Pool> pools;  // by driver and name; with counters
  std::map<ClaimDevice, const SliceDevice*> partitions;       // devices that use counters
};

// The devices that the node reaches, by slice name. Valid until slices or nodes change.
const std::vector<DeviceRef>& DevicesOn(const State& state, const NodeSpec& node);

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
