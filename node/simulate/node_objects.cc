#include "node/simulate/node_objects.h"

#include <arpa/inet.h>

#include <nlohmann/json.hpp>

#include "kube/timestamp.h"
#include "node/simulate/pod_facts.h"

namespace sublet::node {
namespace {

using kube::Json;

std::string AddressText(std::uint32_t address) {
  in_addr value{};
  value.s_addr = htonl(address);
  char text[INET_ADDRSTRLEN];
  return inet_ntop(AF_INET, &value, text, sizeof text);
}

Json Condition(const char* type, const char* status, const char* reason, const char* message,
               const std::string& now) {
  return {{"type", type},       {"status", status},         {"reason", reason},
          {"message", message}, {"lastHeartbeatTime", now}, {"lastTransitionTime", now}};
}

Json Conditions(const std::string& now) {
  return Json::array(
      {Condition("MemoryPressure", "False", "KubeletHasSufficientMemory",
                 "kubelet has sufficient memory available", now),
       Condition("DiskPressure", "False", "KubeletHasNoDiskPressure",
                 "kubelet has no disk pressure", now),
       Condition("PIDPressure", "False", "KubeletHasSufficientPID",
                 "kubelet has sufficient PID available", now),
       Condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", now)});
}

Json Capacity(const SimulateOptions& options) {
  Json out = {{"cpu", options.cpu},   {"memory", options.memory},
              {"pods", options.pods}, {"ephemeral-storage", options.ephemeral_storage},
              {"hugepages-1Gi", "0"}, {"hugepages-2Mi", "0"}};
  if (options.gpus > 0) {
    out[options.gpu_resource] = std::to_string(options.gpus);
  }
  for (const auto& [name, amount] : options.extra_resources) {
    out[name] = amount;
  }
  return out;
}

}  // namespace

std::string NodeName(const SimulateOptions& options, int index) {
  return options.name_prefix + std::to_string(options.first + index);
}

std::string NodeIp(int index) {
  // 10.64.0.0/10 lies below the pods' half of 10/8.
  return AddressText((10u << 24) + (64u << 16) + static_cast<std::uint32_t>(index) + 1);
}

std::string PodIp(const SimulateOptions& options, int index, int slot) {
  in_addr base{};
  inet_pton(AF_INET, options.pod_network.c_str(), &base);
  return AddressText(ntohl(base.s_addr) + static_cast<std::uint32_t>(index) * 256 +
                     static_cast<std::uint32_t>(slot) + 1);
}

int SlotOf(const SimulateOptions& options, int index, const std::string& ip) {
  in_addr base{};
  in_addr address{};
  if (inet_pton(AF_INET, options.pod_network.c_str(), &base) != 1 ||
      inet_pton(AF_INET, ip.c_str(), &address) != 1) {
    return -1;
  }
  const std::int64_t slot =
      std::int64_t{ntohl(address.s_addr)} - ntohl(base.s_addr) - std::int64_t{index} * 256 - 1;
  return slot >= 0 && slot < kSlotsPerNode ? static_cast<int>(slot) : -1;
}

Json NodeObject(const SimulateOptions& options, int index, WallTime now) {
  const std::string name = NodeName(options, index);
  const std::string time = kube::FormatTime(now);
  Json labels = {{"kubernetes.io/hostname", name},     {"kubernetes.io/os", "linux"},
                 {"kubernetes.io/arch", "amd64"},      {"beta.kubernetes.io/os", "linux"},
                 {"beta.kubernetes.io/arch", "amd64"}, {std::string(kSimulatedAnnotation), "true"}};
  for (const auto& [key, value] : options.labels) {
    labels[key] = value;
  }
  const Json capacity = Capacity(options);
  return {{"apiVersion", "v1"},
          {"kind", "Node"},
          {"metadata",
           {{"name", name},
            {"labels", std::move(labels)},
            {"annotations", {{std::string(kSimulatedAnnotation), "true"}}}}},
          {"spec", {{"podCIDR", PodIp(options, index, -1) + "/24"}}},
          {"status",
           {{"capacity", capacity},
            {"allocatable", capacity},
            {"addresses", Json::array({{{"type", "InternalIP"}, {"address", NodeIp(index)}},
                                       {{"type", "Hostname"}, {"address", name}}})},
            {"conditions", Conditions(time)},
            {"nodeInfo",
             {{"architecture", "amd64"},
              {"operatingSystem", "linux"},
              {"kernelVersion", "simulated"},
              {"osImage", "simulated"},
              {"containerRuntimeVersion", "simulated://1.0"},
              {"kubeletVersion", "v1.36.0"},
              {"kubeProxyVersion", ""},
              {"machineID", ""},
              {"systemUUID", ""},
              {"bootID", ""}}}}}};
}

Json LeaseObject(const std::string& node, const std::string& owner_uid, WallTime now) {
  return {{"apiVersion", "coordination.k8s.io/v1"},
          {"kind", "Lease"},
          {"metadata",
           {{"name", node},
            {"namespace", "kube-node-lease"},
            {"ownerReferences",
             Json::array(
                 {{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node}, {"uid", owner_uid}}})}}},
          {"spec",
           {{"holderIdentity", node},
            {"leaseDurationSeconds", kLeaseDuration.count()},
            {"renewTime", kube::FormatMicroTime(now)}}}};
}

Json AllocatablePatch(const Json& node) {
  const Json* capacity = kube::Find(node, {"status", "capacity"});
  const Json* allocatable = kube::Find(node, {"status", "allocatable"});
  if (capacity == nullptr || allocatable == nullptr || *capacity == *allocatable) {
    return nullptr;
  }
  Json wanted = *capacity;
  for (const auto& [name, amount] : allocatable->items()) {
    if (!capacity->contains(name)) {
      wanted[name] = nullptr;
    }
  }
  return {{"status", {{"allocatable", std::move(wanted)}}}};
}

}  // namespace sublet::node
