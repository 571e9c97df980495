// From a container of a pod to what the engine is asked to create. Pure: everything it needs is in
// the arguments. Source: kubelet kuberuntime_container.go, kuberuntime_container_linux.go,
// security_context.go, cm/helpers_linux.go (shares, quota).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "node/engine/engine.h"
#include "node/pod/env.h"
#include "node/pod/plan.h"

namespace sublet::node {

// Labels by which containers are found again after a restart of the agent.
inline constexpr const char* kLabelNode = "sublet.dev/node";  // the agent's instance
inline constexpr const char* kLabelKind = "sublet.dev/kind";  // sandbox, container
inline constexpr const char* kLabelPodUid = "io.kubernetes.pod.uid";
inline constexpr const char* kLabelPodName = "io.kubernetes.pod.name";
inline constexpr const char* kLabelPodNamespace = "io.kubernetes.pod.namespace";
inline constexpr const char* kLabelContainer = "io.kubernetes.container.name";
inline constexpr const char* kLabelAttempt = "sublet.dev/attempt";
inline constexpr const char* kLabelSandbox = "sublet.dev/sandbox";
inline constexpr const char* kLabelPodIp = "sublet.dev/pod-ip";
inline constexpr const char* kLabelImage = "sublet.dev/image";
inline constexpr const char* kLabelImageHash = "sublet.dev/image-hash";
inline constexpr const char* kLabelLogPath = "sublet.dev/log-path";
inline constexpr const char* kLabelTermination = "sublet.dev/termination-message";
inline constexpr const char* kLabelStopSignal = "sublet.dev/stop-signal";
inline constexpr const char* kLabelGrace = "sublet.dev/grace-seconds";

struct ContainerFacts {
  std::string instance;  // value of kLabelNode
  int attempt = 0;
  std::string sandbox_id;
  ImageInfo image;
  Environment environment;
  std::vector<EngineMount> mounts;
  std::string log_path;
  std::string termination_file;     // on the machine; "" = none
  std::string target_container_id;  // pid namespace of an ephemeral container
  std::string seccomp_folder;       // where localhostProfile names are looked up
  std::int64_t node_memory_bytes = 0;
  int oom_score_floor = -1000;  // lower ones would be refused by the kernel
};

// Errors: BadRequest with kubelet's texts (CreateContainerConfigError).
Result<ContainerSpec> MakeContainerSpec(const PodPlan& plan, const ContainerPlan& container,
                                        const ContainerFacts& facts);

struct SandboxFacts {
  std::string instance;
  int attempt = 0;
  std::string ip;
  std::string image;
  std::string runtime;  // of the RuntimeClass; "" = the engine's default
  int oom_score_floor = -1000;
};
ContainerSpec MakeSandboxSpec(const PodPlan& plan, const SandboxFacts& facts);

// The cgroup numbers of the container's resources; absent ones 0.
struct CpuMemory {
  std::int64_t cpu_shares = 2;
  std::int64_t cpu_quota_us = 0;
  std::int64_t memory_bytes = 0;
};
CpuMemory ResourcesOf(const ContainerPlan& container);
int OomScoreAdjOf(const PodPlan& plan, const ContainerPlan& container,
                  std::int64_t node_memory_bytes);

// The lowest oom_score_adj that processes of ours may get: -1000 with CAP_SYS_RESOURCE, else our
// own.
int LowestOomScore();

// /etc/resolv.conf of the pod.
struct DnsConfig {
  std::string server;       // of the cluster; "" = none
  std::string domain;       // cluster.local
  std::string host_resolv;  // the machine's file content
};
std::string MakeResolvConf(const PodPlan& plan, const DnsConfig& dns);
// /etc/hosts of the pod; `host_hosts` is the machine's content, used on the machine's network.
std::string MakeHosts(const PodPlan& plan, const std::string& pod_ip, const DnsConfig& dns,
                      const std::string& host_hosts);

}  // namespace sublet::node
