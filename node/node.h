// The node agent as a whole: what `sublet node` runs. Joins this machine to a cluster and runs the
// pods bound to it on a Docker-compatible engine.
//
//   API server ──informers──> PodManager ──> PodWorker (one per pod) ──> ContainerEngine
//        ^                        │                  └──> volumes, network, probes, exits
//        └── statuses, events, node, lease
//   API server ──> KubeletServer (logs, exec, attach, port-forward, stats)
//   Services, policies ──> NetworkState ──> nft;  names ──> DNS server on the gateway address
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace sublet::node {

struct NodeOptions {
  std::string kubeconfig;  // "" = the usual places
  std::string context;
  std::string node_name;       // "" = the host name, lower-cased
  std::string root_directory;  // state: volumes, logs, certificates; absolute
  std::string engine_socket;   // "" = found (FindEngineSocket)
  std::string node_ip;         // "" = the pod network's gateway: reachable from this machine alone
  int kubelet_port = 10250;    // on node_ip; 0 = a free one
  // PEM; certificates it signed may use the kubelet API. "" = the authority in the kubeconfig,
  // which signs both the API server's and the clients' certificates in the usual clusters.
  std::string client_ca_file;
  // The kubeconfig's context for Services, slices, policies, namespaces and all pods, which a
  // node's own rights do not open; "" = `context` does.
  std::string network_context;
  std::string pod_cidr = "10.244.0.0/24";
  std::string service_cidr = "10.96.0.0/12";
  std::string bridge = "sublet0";
  std::string veth_prefix = "slt";
  std::string firewall_table = "sublet";
  std::string cluster_domain = "cluster.local";
  std::string cluster_dns;     // "" = the DNS server of this agent
  bool serve_dns = true;       // on the gateway, port 53
  bool serve_services = true;  // firewall for Services and NetworkPolicies
  int pods_max = 110;
  int parallel_pulls = 3;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> extra_resources;  // "example.com/x" -> "4"
  std::vector<std::string> cdi_folders = {"/etc/cdi", "/var/run/cdi"};
};

// Runs until SIGTERM or SIGINT; pods go on without the agent. Blocks both signals for all threads
// it starts. Exit codes: 0 stopped, 1 could not start (said on standard error).
int RunNode(const NodeOptions& options);

// Removes what an agent with these options left: containers, links, firewall rules, mounts, files.
// Exit codes: 0 nothing is left, 1 something stayed (said on standard error).
int CleanUpNode(const NodeOptions& options);

}  // namespace sublet::node
