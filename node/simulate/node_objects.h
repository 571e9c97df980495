// The Node and Lease objects of simulated nodes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"

namespace sublet::node {

struct SimulateOptions {
  int nodes = 1;
  int first = 0;  // number of the first one
  std::string name_prefix = "sim-";
  std::string cpu = "32";
  std::string memory = "128Gi";
  std::string pods = "110";
  std::string ephemeral_storage = "100Gi";
  int gpus = 0;
  std::string gpu_resource = "nvidia.com/gpu";
  std::vector<std::pair<std::string, std::string>> labels;
  std::vector<std::pair<std::string, std::string>> extra_resources;  // "example.com/x" -> "4"
  // An image that contains one of these cannot be pulled.
  std::vector<std::string> missing_images = {":404", "non-existent", "nonexistent", "invalid-image",
                                             "does-not-exist"};
  std::string pod_network = "10.128.0.0";  // /9; every node has a /24 of it
  std::int64_t stop_milliseconds = 0;      // how long a pod with a grace period takes to end
  int writers = 8;                         // status writes under way at once
  bool delete_nodes_at_stop = false;
};

// How often a node's lease is written, and for how long it is good.
inline constexpr std::chrono::seconds kLeaseInterval{25};
inline constexpr std::chrono::seconds kLeaseDuration{40};

std::string NodeName(const SimulateOptions& options, int index);
std::string NodeIp(int index);
inline constexpr int kSlotsPerNode = 254;
// The pod address `slot` (0-253) of a node, and back (-1: not an address of this node's).
std::string PodIp(const SimulateOptions& options, int index, int slot);
int SlotOf(const SimulateOptions& options, int index, const std::string& ip);

kube::Json NodeObject(const SimulateOptions& options, int index, WallTime now);
// The node's lease; `owner_uid` is the Node's.
kube::Json LeaseObject(const std::string& node, const std::string& owner_uid, WallTime now);
// A status patch that makes allocatable follow capacity, or null when it does already (somebody
// patched an extended resource into the capacity, as a device plugin would).
kube::Json AllocatablePatch(const kube::Json& node);

}  // namespace sublet::node
