// PodNetwork: gives every pod an address and a way in and out. Pods hang on the machine by a veth
// each and are routed, not bridged: the pod's end has a /32 and sends everything to the gateway,
// the machine has a /32 route per pod. So Services, hairpin traffic and NetworkPolicies pass the
// machine's IP firewall without depending on bridge netfilter, and the engines' own networks,
// masquerading and DNS are not involved. The gateway address stands on a bridge without ports,
// which is there from `Ensure` on: the API server and the DNS server listen on it.
//
//   pod eth0 10.244.0.7/32 ──veth── slt<hash> ── routes ── sublet0 10.244.0.1/32
//
// Differs: kubelets leave this to CNI plugins; here it is part of the agent, because the embedded
// host is one machine and nothing may be installed beside it.
// Threads: any (one mutex); Attach runs a short-lived thread inside the pod's namespace.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "node/net/netlink.h"

namespace sublet::node {

struct PodNetworkConfig {
  std::string bridge = "sublet0";
  std::string veth_prefix = "slt";  // at most 5 characters
  Ipv4Net pod_net;                  // the gateway is its first address
  Ipv4Net service_net;              // routed to the bridge, so that DNAT sees it; prefix 0 = none
};

class PodNetwork {
 public:
  explicit PodNetwork(PodNetworkConfig config) : config_(std::move(config)) {}

  Ipv4 gateway() const { return config_.pod_net.address + 1; }
  const PodNetworkConfig& config() const { return config_; }

  // Makes the bridge, its address, the route for Services and switches forwarding on.
  Result<void> Ensure();
  // Removes the bridge and every veth of ours.
  Result<void> Remove();

  // The address of the pod: the one it has, or a free one. Errors: TooManyRequests (all taken).
  Result<Ipv4> Allocate(const std::string& pod_uid) SUBLET_EXCLUDES(mutex_);
  // Takes note of an address a running pod was found with.
  void Reserve(const std::string& pod_uid, Ipv4 address) SUBLET_EXCLUDES(mutex_);
  void Release(const std::string& pod_uid) SUBLET_EXCLUDES(mutex_);

  // Connects the network namespace of process `pid` under the pod's address; connecting twice
  // renews the link. Errors: NotFound (the process is gone), InternalError.
  Result<void> Attach(const std::string& pod_uid, int pid, Ipv4 address);
  // Whether the machine's end of the pod's link is there.
  bool IsAttached(const std::string& pod_uid) const;
  Result<void> Detach(const std::string& pod_uid);

  std::string VethName(const std::string& pod_uid) const;

 private:
  const PodNetworkConfig config_;
  mutable Mutex mutex_;
  std::map<std::string, Ipv4> addresses_ SUBLET_GUARDED_BY(mutex_);
  std::map<Ipv4, std::string> owners_ SUBLET_GUARDED_BY(mutex_);
  Ipv4 last_ SUBLET_GUARDED_BY(mutex_) = 0;
};

// Writes one value below /proc/sys. Errors: InternalError.
Result<void> WriteSysctl(const std::string& path, std::string_view value);

}  // namespace sublet::node
