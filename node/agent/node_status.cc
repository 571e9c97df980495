#include "node/agent/node_status.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "kube/timestamp.h"
#include "node/pod/payload_volume.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindString;
using kube::Json;

constexpr const char* kVersion = "v1.36.0+sublet";
constexpr std::int64_t kMemoryPressureBytes = 100 << 20;  // kubelet's memory.available<100Mi

std::string FirstLine(const std::string& path) {
  std::string text = ReadFile(path, 4096);
  return text.substr(0, text.find('\n'));
}

std::int64_t MemInfo(const std::string& text, const char* key) {
  const auto at = text.find(key);
  return at == std::string::npos
             ? 0
             : std::strtoll(text.c_str() + at + std::char_traits<char>::length(key), nullptr, 10) *
                   1024;
}

Json Condition(const Json& old_status, std::string_view type, bool value, std::string_view reason,
               std::string_view message, WallTime now) {
  Json condition = {{"type", type},
                    {"status", value ? "True" : "False"},
                    {"reason", reason},
                    {"message", message},
                    {"lastHeartbeatTime", kube::FormatTime(now)},
                    {"lastTransitionTime", kube::FormatTime(now)}};
  if (const Json* list = Find(old_status, {"conditions"}); list != nullptr && list->is_array()) {
    for (const Json& old : *list) {
      if (FindString(old, {"type"}) == type && FindString(old, {"status"}) == condition["status"]) {
        condition["lastTransitionTime"] =
            FindString(old, {"lastTransitionTime"}, kube::FormatTime(now));
      }
    }
  }
  return condition;
}

}  // namespace

MachineFacts ReadMachineFacts(const std::string& root) {
  MachineFacts facts;
  facts.cpus = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::string memory = ReadFile("/proc/meminfo", 8192);
  facts.memory_bytes = MemInfo(memory, "MemTotal:");
  facts.memory_free_bytes = MemInfo(memory, "MemAvailable:");
  struct statvfs disk {};
  if (::statvfs(root.c_str(), &disk) == 0) {
    facts.disk_bytes = static_cast<std::int64_t>(disk.f_blocks * disk.f_frsize);
    facts.disk_free_bytes = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
  }
  utsname system{};
  ::uname(&system);
  facts.hostname = system.nodename;
  facts.kernel_version = system.release;
  facts.machine_id = FirstLine("/etc/machine-id");
  facts.system_uuid = FirstLine("/sys/class/dmi/id/product_uuid");
  facts.boot_id = FirstLine("/proc/sys/kernel/random/boot_id");
  const std::string release = ReadFile("/etc/os-release", 8192);
  if (const auto at = release.find("PRETTY_NAME=\""); at != std::string::npos) {
    const auto begin = at + 13;
    facts.os_image = release.substr(begin, release.find('"', begin) - begin);
  }
  return facts;
}

std::string FindHostAddress() {
  // A connected UDP socket sends nothing but has the address the default route would use.
  std::string found;
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    ::inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
    socklen_t length = sizeof(address);
    char text[INET_ADDRSTRLEN];
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
      found = ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    }
    ::close(fd);
  }
  return found;
}

Json MakeNode(const NodeFacts& facts) {
  Json labels = {{"kubernetes.io/hostname", facts.name},
                 {"kubernetes.io/os", "linux"},
                 {"kubernetes.io/arch", facts.engine.architecture},
                 {"beta.kubernetes.io/os", "linux"},
                 {"beta.kubernetes.io/arch", facts.engine.architecture}};
  for (const auto& [key, value] : facts.labels) {
    labels[key] = value;
  }
  Json node = {{"apiVersion", "v1"},
               {"kind", "Node"},
               {"metadata", {{"name", facts.name}, {"labels", std::move(labels)}}},
               {"spec", Json::object()}};
  if (!facts.pod_net.empty()) {
    node["spec"]["podCIDR"] = facts.pod_net;
    node["spec"]["podCIDRs"] = {facts.pod_net};
  }
  return node;
}

Json MakeNodeStatus(const NodeFacts& facts, const Json& old_status, WallTime now) {
  Json capacity = {{"cpu", std::to_string(facts.machine.cpus)},
                   {"memory", std::to_string(facts.machine.memory_bytes / 1024) + "Ki"},
                   {"pods", std::to_string(facts.pods_max)},
                   {"ephemeral-storage", std::to_string(facts.machine.disk_bytes / 1024) + "Ki"}};
  for (const auto& [name, amount] : facts.extra_resources) {
    capacity[name] = amount;
  }
  Json allocatable = capacity;
  // Resources of others stay: whoever patched them in (gpud, a device plugin) owns them.
  if (const Json* old = Find(old_status, {"capacity"}); old != nullptr && old->is_object()) {
    for (const auto& [name, amount] : old->items()) {
      if (!capacity.contains(name)) {
        capacity[name] = amount;
        const Json* own = Find(old_status, {"allocatable", name});
        allocatable[name] = own != nullptr ? *own : amount;
      }
    }
  }
  Json status = {{"capacity", std::move(capacity)}, {"allocatable", std::move(allocatable)}};
  Json addresses = Json::array();
  for (const std::string& address : facts.addresses) {
    addresses.push_back({{"type", "InternalIP"}, {"address", address}});
  }
  addresses.push_back({{"type", "Hostname"}, {"address", facts.name}});
  status["addresses"] = std::move(addresses);
  status["daemonEndpoints"] = {{"kubeletEndpoint", {{"Port", facts.kubelet_port}}}};
  const bool podman = facts.engine.kind == EngineKind::kPodman;
  status["nodeInfo"] = {
      {"machineID", facts.machine.machine_id},
      {"systemUUID", facts.machine.system_uuid},
      {"bootID", facts.machine.boot_id},
      {"kernelVersion", facts.machine.kernel_version},
      {"osImage", facts.machine.os_image},
      {"containerRuntimeVersion", (podman ? "podman://" : "docker://") + facts.engine.version},
      {"kubeletVersion", kVersion},
      {"kubeProxyVersion", ""},
      {"operatingSystem", "linux"},
      {"architecture", facts.engine.architecture}};
  const bool memory_low = facts.machine.memory_free_bytes < kMemoryPressureBytes;
  const bool disk_low =
      facts.machine.disk_bytes > 0 && facts.machine.disk_free_bytes * 20 < facts.machine.disk_bytes;
  status["conditions"] = {
      Condition(old_status, "MemoryPressure", memory_low,
                memory_low ? "KubeletHasInsufficientMemory" : "KubeletHasSufficientMemory",
                memory_low ? "kubelet has insufficient memory available"
                           : "kubelet has sufficient memory available",
                now),
      Condition(old_status, "DiskPressure", disk_low,
                disk_low ? "KubeletHasDiskPressure" : "KubeletHasNoDiskPressure",
                disk_low ? "kubelet has disk pressure" : "kubelet has no disk pressure", now),
      Condition(old_status, "PIDPressure", false, "KubeletHasSufficientPID",
                "kubelet has sufficient PID available", now),
      Condition(old_status, "Ready", facts.engine_ready,
                facts.engine_ready ? "KubeletReady" : "KubeletNotReady",
                facts.engine_ready ? "kubelet is posting ready status"
                                   : "container runtime is down: " + facts.engine_error,
                now)};
  return status;
}

}  // namespace sublet::node
