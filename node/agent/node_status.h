// The Node object of this machine: labels, capacity, addresses, conditions. Pure but for what it
// reads from /proc, /sys and /etc. Used by node_registration.cc. Threads: any.
// Source: kubelet nodestatus/setters.go.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kube/json.h"
#include "node/engine/engine.h"

namespace sublet::node {

struct MachineFacts {
  int cpus = 1;
  std::int64_t memory_bytes = 0;
  std::int64_t disk_bytes = 0;  // of the file system that holds the agent's root
  std::int64_t disk_free_bytes = 0;
  std::int64_t memory_free_bytes = 0;  // MemAvailable
  std::string hostname;
  std::string machine_id;
  std::string system_uuid;
  std::string boot_id;
  std::string os_image;
  std::string kernel_version;
};
MachineFacts ReadMachineFacts(const std::string& root);

struct NodeFacts {
  std::string name;
  std::vector<std::string> addresses;  // InternalIP
  int kubelet_port = 10250;
  int pods_max = 110;
  std::map<std::string, std::string> labels;  // besides the well-known ones
  std::map<std::string, std::string> extra_resources;
  std::string pod_net;
  MachineFacts machine;
  EngineInfo engine;
  bool engine_ready = true;
  std::string engine_error;
};

// The object to create; its status is written separately with MakeNodeStatus.
kube::Json MakeNode(const NodeFacts& facts);
// `old_status` gives the transition times and resources that others (device plugins) added.
kube::Json MakeNodeStatus(const NodeFacts& facts, const kube::Json& old_status, WallTime now);

// The machine's address: of the interface with the default route, else 127.0.0.1's sibling that is
// up.
std::string FindHostAddress();

}  // namespace sublet::node
