// PodAdmission: a kubelet's last word on a pod that was bound to its node. What the scheduler
// believed may be wrong by now, as when two tenants bind to the same devices at once, or nobody
// asked it (spec.nodeName). Used by the node agent and by the simulated nodes. Source: kubelet
// lifecycle/predicate.go (reasons and messages). Differs: an extended resource that the node lacks
// is "OutOf" it; a kubelet lets such a pod pass, for resources of a whole cluster, which there are
// none of here. Threads: confined to the caller (or under its lock).
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kube/node_fit.h"
#include "kube/pod_resources.h"

namespace sublet::node {

struct HostPort {
  std::string port;  // "TCP/8080"
  std::string ip;    // "0.0.0.0" = every address
};

// What a pod asks of its node.
struct PodDemand {
  kube::ResourceAmounts requests;
  std::vector<HostPort> host_ports;
  std::string placement;  // JSON of a spec with nodeSelector and affinity; "" when the pod has none
  std::string tolerations;  // JSON
};
PodDemand ReadPodDemand(const kube::Json& pod);

struct NodeOffer {
  std::string name;
  kube::Labels labels;  // sorted by key
  std::vector<kube::Taint>
      evicting;  // of effect NoExecute; the others are the scheduler's business
  kube::ResourceAmounts allocatable;
};
NodeOffer ReadNodeOffer(const kube::Json& node);

struct Rejection {
  std::string reason;   // status.reason: OutOfcpu, NodeAffinity, NodePorts, TaintToleration ...
  std::string message;  // without kubelet's "Pod was rejected: "
};

class PodAdmission {
 public:
  // Counts the pod until Release, or says why it may not run. A pod that is counted already stays
  // so. `runs_already`: it was admitted before this process started, and is counted in any case.
  std::optional<Rejection> Admit(const std::string& uid, const PodDemand& pod,
                                 const NodeOffer& node, bool runs_already);
  void Release(const std::string& uid);

 private:
  std::optional<Rejection> Judge(const PodDemand& pod, const NodeOffer& node) const;
  bool PortsFree(const PodDemand& pod) const;

  struct Held {
    kube::ResourceAmounts requests;
    std::vector<HostPort> host_ports;
  };
  std::unordered_map<std::string, Held> held_;
  kube::ResourceAmounts used_;  // by those in held_
};

}  // namespace sublet::node
