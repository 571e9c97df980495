// PodServices: what the pod workers share, and AgentPort: what they tell and ask the agent. Wired
// once in node.cc; everything here outlives the workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "node/engine/engine.h"
#include "node/net/pod_network.h"
#include "node/pod/container_config.h"
#include "node/pod/exit_watcher.h"
#include "node/pod/images.h"
#include "node/pod/plan.h"
#include "node/pod/prober.h"
#include "node/pod/volumes.h"

namespace sublet::node {

// Threads: any; must not block for long.
class AgentPort {
 public:
  virtual ~AgentPort() = default;
  // An Event about the pod, or about one of its containers (`container` may be "").
  virtual void Emit(const PodPlan& plan, const std::string& container, bool warning,
                    const std::string& reason, const std::string& message) = 0;
  // The pod's status has changed; the newest one of a pod replaces what still waits to be sent.
  virtual void PublishStatus(std::shared_ptr<const PodPlan> plan, kube::Json status) = 0;
  // The pod has ended and nothing of it is left: its object may go. Comes after the last status.
  virtual void Finalize(std::shared_ptr<const PodPlan> plan) = 0;
  // The variables of Services for pods of a namespace; all of them or only the API server's.
  virtual Environment ServiceVariables(const std::string& namespace_name, bool all) = 0;
  // The engine's runtime for a RuntimeClass ("" = default). Errors: NotFound (no such class, or the
  // engine has no such runtime).
  virtual Result<std::string> FindRuntime(const std::string& runtime_class) = 0;
  // The worker has done its last step and may be joined.
  virtual void WorkerDone(const std::string& pod_uid) = 0;
};

struct PodServicesConfig {
  std::string instance;      // label value that marks our containers
  std::string root;          // absolute state folder
  std::string runtime_name;  // "podman", "docker": the scheme of container IDs
  std::vector<std::string> host_ips;
  std::int64_t memory_bytes = 0;
  int oom_score_floor = -1000;  // LowestOomScore()
  std::shared_ptr<const kube::Json> allocatable;
  DnsConfig dns;
  std::vector<std::string> cdi_folders = {"/etc/cdi", "/var/run/cdi"};
};

struct PodServices {
  PodServicesConfig config;
  ContainerEngine& engine;
  PodNetwork& network;
  Volumes& volumes;
  Images& images;
  Prober& prober;
  ExitWatcher& exits;
  AgentPort& agent;
  const Clock& clock;
};

}  // namespace sublet::node
