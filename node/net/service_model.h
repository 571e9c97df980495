// Services, EndpointSlices, pods, namespaces and NetworkPolicies as the node's firewall needs them:
// small typed records made from the API's JSON. Pure. Threads: values.
// Source: k8s.io/api core/v1 Service, discovery/v1 EndpointSlice, networking/v1 NetworkPolicy.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kube/json.h"
#include "kube/label_selector.h"
#include "node/net/netlink.h"

namespace sublet::node {

using Labels = std::vector<std::pair<std::string, std::string>>;  // sorted by key

struct ServicePort {
  std::string name;
  std::string protocol;  // "tcp", "udp", "sctp"
  int port = 0;
  int node_port = 0;
};

struct ServiceView {
  std::string namespace_name;
  std::string name;
  std::vector<Ipv4> addresses;  // cluster, external and load balancer addresses
  bool is_headless = false;     // or of type ExternalName
  bool affinity = false;        // sessionAffinity ClientIP
  bool internal_local = false;  // internalTrafficPolicy Local
  bool external_local = false;  // externalTrafficPolicy Local
  std::vector<ServicePort> ports;
};
ServiceView ParseService(const kube::Json& service);

struct EndpointView {
  Ipv4 address = 0;
  std::string node_name;
  bool ready = true;
  bool serving = true;
};
struct SliceView {
  std::string namespace_name;
  std::string service;
  std::vector<ServicePort> ports;  // port = the endpoint's
  std::vector<EndpointView> endpoints;
};
// Slices of other families than IPv4 have no endpoints.
SliceView ParseSlice(const kube::Json& slice);

struct PodView {
  std::string namespace_name;
  std::string name;
  std::string node_name;
  Ipv4 ip = 0;  // 0 = none, or of no interest: host network, ended
  Labels labels;
  struct Port {
    std::string name;
    std::string protocol;
    int port = 0;
    int host_port = 0;
    Ipv4 host_ip = 0;
  };
  std::vector<Port> ports;
};
PodView ParsePodView(const kube::Json& pod);

struct PolicyPort {
  std::string protocol = "tcp";
  std::string name;  // a port of the destination pod by name; else first..last
  int first = 0;     // 0 = every port of the protocol
  int last = 0;
};
struct PolicyPeer {
  std::optional<kube::LabelSelector> pods;  // in the policy's namespace or those selected
  std::optional<kube::LabelSelector> namespaces;
  std::optional<Ipv4Net> block;
  std::vector<Ipv4Net> except;
};
struct PolicyRule {
  std::vector<PolicyPeer> peers;  // empty = everybody
  std::vector<PolicyPort> ports;  // empty = every port
};
struct PolicyView {
  std::string namespace_name;
  std::string name;
  kube::LabelSelector pods;
  bool isolates_ingress = false;
  bool isolates_egress = false;
  std::vector<PolicyRule> ingress;
  std::vector<PolicyRule> egress;
};
PolicyView ParsePolicy(const kube::Json& policy);

Labels ParseLabels(const kube::Json& object);

}  // namespace sublet::node
