// What the kubelet API says about usage: /stats/summary and the Prometheus texts. Read from the
// containers' cgroups (v1 and v2) and the pods' links when asked. Threads: any.
// Source: kubelet stats API v1alpha1; kubelet /metrics/resource and /metrics/cadvisor names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kube/json.h"
#include "node/net/pod_network.h"
#include "node/pod/worker.h"

namespace sublet::node {

struct ContainerUsage {
  std::uint64_t cpu_nanoseconds = 0;
  std::uint64_t memory_bytes = 0;       // usage
  std::uint64_t working_set_bytes = 0;  // usage without inactive file pages
  std::uint64_t rss_bytes = 0;
};
// Zeros for a process that is gone.
ContainerUsage ReadUsage(int pid);

using Snapshots = std::vector<std::shared_ptr<const PodSnapshot>>;

kube::Json MakeSummary(const std::string& node_name, const Snapshots& pods,
                       const PodNetwork& network, const std::string& root, WallTime now);
std::string MakeResourceMetrics(const Snapshots& pods, WallTime now);
std::string MakeCadvisorMetrics(const Snapshots& pods);
// The agent's own: pods and containers by state.
std::string MakeAgentMetrics(const Snapshots& pods, const std::string& node_name);

}  // namespace sublet::node
