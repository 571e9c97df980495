// The node's firewall as one nft script: Services, node ports, host ports, the pods' way out and
// NetworkPolicies. Pure: equal input gives equal text, so the caller loads it only when it changed.
// The script replaces the whole table in one transaction.
//
//   prerouting/output (nat)   ClusterIP, nodePort, hostPort -> an endpoint
//   forward/output/input      ClusterIPs without endpoints are refused, policies are enforced
//   postrouting (nat)         pods leave the machine under its address; hairpin is made to return
//
// Differs: kube-proxy remembers a client's endpoint for sessionAffinity ClientIP in timed sets;
// here the client's address is hashed to one of 64 buckets and buckets are given to endpoints by
// rendezvous hashing: the same client keeps its endpoint as long as that is there, whatever the
// timeout says, and a reload forgets nothing. Source: kube-proxy nftables backend; networking/v1
// NetworkPolicy.
#pragma once

#include <string>
#include <vector>

#include "node/net/service_model.h"

namespace sublet::node {

struct RulesInput {
  std::string table = "sublet";
  std::string veth_prefix = "slt";
  std::string node_name;
  Ipv4Net pod_net;
  Ipv4Net service_net;
  Ipv4 gateway = 0;
  std::vector<ServiceView> services;
  std::vector<SliceView> slices;
  std::vector<PodView> pods;  // of all nodes
  struct NamespaceView {
    std::string name;
    Labels labels;
  };
  std::vector<NamespaceView> namespaces;
  std::vector<PolicyView> policies;
};

std::string MakeRules(const RulesInput& input);

// The part for NetworkPolicies (policy_rules.cc): its maps, per-pod chains and base chains.
std::string MakePolicyRules(const RulesInput& input);

// A short stable name for a chain.
std::string ChainName(char kind, std::string_view text);

}  // namespace sublet::node
