// The devices of the slices by the node that reaches them, and what the claims hold of them.
// Threads: one, the scheduler's.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheduler/state.h"

namespace sublet::scheduler {

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

// The index of the state, up to date.
DeviceIndex& IndexOf(const State& state);
// The devices that the node reaches, by slice name. Valid until slices or nodes change.
const std::vector<DeviceRef>& DevicesOn(const State& state, const NodeSpec& node);

}  // namespace sublet::scheduler
