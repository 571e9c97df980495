#include "node/kubelet_api/stats.h"

#include <sys/statvfs.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "kube/timestamp.h"
#include "node/agent/node_status.h"
#include "node/pod/exit_watcher.h"
#include "node/pod/payload_volume.h"

namespace sublet::node {
namespace {

using kube::Json;

std::uint64_t Number(const std::string& path) {
  return std::strtoull(ReadFile(path, 64).c_str(), nullptr, 10);
}

// "key 123" in a file of such lines.
std::uint64_t Field(const std::string& text, const std::string& key) {
  std::size_t at = 0;
  while (at < text.size()) {
    auto end = text.find('\n', at);
    end = end == std::string::npos ? text.size() : end;
    if (text.compare(at, key.size() + 1, key + " ") == 0) {
      return std::strtoull(text.c_str() + at + key.size() + 1, nullptr, 10);
    }
    at = end + 1;
  }
  return 0;
}

// The process's path in a v1 hierarchy.
std::string V1Path(int pid, const std::string& controller) {
  const std::string text = ReadFile("/proc/" + std::to_string(pid) + "/cgroup", 16384);
  std::size_t at = 0;
  while (at < text.size()) {
    auto end = text.find('\n', at);
    end = end == std::string::npos ? text.size() : end;
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string list = "," + line.substr(first + 1, second - first - 1) + ",";
    if (list.find("," + controller + ",") != std::string::npos) {
      return "/sys/fs/cgroup/" + controller + line.substr(second + 1);
    }
  }
  return {};
}

struct LinkUsage {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
};

// Received and sent as the pod sees them: the other way round at the machine's end.
LinkUsage ReadLink(const std::string& link) {
  const std::string text = ReadFile("/proc/net/dev", 1 << 20);
  const auto at = text.find(link + ":");
  LinkUsage usage;
  if (at != std::string::npos) {
    unsigned long long rx = 0;
    unsigned long long tx = 0;
    if (std::sscanf(text.c_str() + at + link.size() + 1, "%llu %*u %*u %*u %*u %*u %*u %*u %llu",
                    &rx, &tx) == 2) {
      usage.sent = rx;
      usage.received = tx;
    }
  }
  return usage;
}

struct Running {
  std::string name;
  const Incarnation* run = nullptr;
};
std::vector<Running> RunningOf(const PodSnapshot& pod) {
  std::vector<Running> out;
  for (const auto& [name, record] : pod.record.containers) {
    if (record.IsRunning()) {
      out.push_back({name, &*record.current});
    }
  }
  return out;
}

Json CpuStats(std::uint64_t nanoseconds, const std::string& time) {
  return {{"time", time}, {"usageCoreNanoSeconds", nanoseconds}};
}

Json MemoryStats(const ContainerUsage& usage, const std::string& time) {
  return {{"time", time},
          {"usageBytes", usage.memory_bytes},
          {"workingSetBytes", usage.working_set_bytes},
          {"rssBytes", usage.rss_bytes}};
}

void Add(const ContainerUsage& from, ContainerUsage* to) {
  to->cpu_nanoseconds += from.cpu_nanoseconds;
  to->memory_bytes += from.memory_bytes;
  to->working_set_bytes += from.working_set_bytes;
  to->rss_bytes += from.rss_bytes;
}

std::string MetricLabels(const PodSnapshot& pod, const std::string& container) {
  std::string out = "{";
  if (!container.empty()) {
    out += "container=\"" + container + "\",";
  }
  return out + "namespace=\"" + pod.plan->namespace_name + "\",pod=\"" + pod.plan->name + "\"}";
}

std::string Seconds(std::uint64_t nanoseconds) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.6f", static_cast<double>(nanoseconds) / 1e9);
  return text;
}

ContainerUsage NodeUsage() {
  ContainerUsage usage;
  const std::string stat = ReadFile("/proc/stat", 4096);
  unsigned long long user = 0;
  unsigned long long nice = 0;
  unsigned long long system = 0;
  if (std::sscanf(stat.c_str(), "cpu %llu %llu %llu", &user, &nice, &system) == 3) {
    usage.cpu_nanoseconds = (user + nice + system) * 10'000'000ull;  // ticks of a hundredth
  }
  const MachineFacts machine = ReadMachineFacts("/");
  usage.memory_bytes = static_cast<std::uint64_t>(machine.memory_bytes - machine.memory_free_bytes);
  usage.working_set_bytes = usage.memory_bytes;
  usage.rss_bytes = usage.memory_bytes;
  return usage;
}

}  // namespace

ContainerUsage ReadUsage(int pid) {
  ContainerUsage usage;
  bool is_v2 = false;
  const std::string memory = pid > 0 ? MemoryCgroupOf(pid, &is_v2) : "";
  if (memory.empty()) {
    return usage;
  }
  const std::string stat = ReadFile(memory + "/memory.stat", 16384);
  std::uint64_t inactive = 0;
  if (is_v2) {
    usage.memory_bytes = Number(memory + "/memory.current");
    usage.rss_bytes = Field(stat, "anon");
    inactive = Field(stat, "inactive_file");
    usage.cpu_nanoseconds = Field(ReadFile(memory + "/cpu.stat", 4096), "usage_usec") * 1000;
  } else {
    usage.memory_bytes = Number(memory + "/memory.usage_in_bytes");
    usage.rss_bytes = Field(stat, "total_rss");
    inactive = Field(stat, "total_inactive_file");
    usage.cpu_nanoseconds = Number(V1Path(pid, "cpuacct") + "/cpuacct.usage");
  }
  usage.working_set_bytes = usage.memory_bytes > inactive ? usage.memory_bytes - inactive : 0;
  return usage;
}

Json MakeSummary(const std::string& node_name, const Snapshots& pods, const PodNetwork& network,
                 const std::string& root, WallTime now) {
  const std::string time = kube::FormatTime(now);
  Json list = Json::array();
  for (const auto& pod : pods) {
    Json containers = Json::array();
    ContainerUsage total;
    for (const Running& running : RunningOf(*pod)) {
      const ContainerUsage usage = ReadUsage(running.run->pid);
      Add(usage, &total);
      containers.push_back({{"name", running.name},
                            {"startTime", kube::FormatTime(running.run->started_at)},
                            {"cpu", CpuStats(usage.cpu_nanoseconds, time)},
                            {"memory", MemoryStats(usage, time)}});
    }
    if (containers.empty()) {
      continue;
    }
    Json item = {{"podRef",
                  {{"name", pod->plan->name},
                   {"namespace", pod->plan->namespace_name},
                   {"uid", pod->plan->uid}}},
                 {"startTime", kube::FormatTime(pod->record.start_time.value_or(now))},
                 {"containers", std::move(containers)},
                 {"cpu", CpuStats(total.cpu_nanoseconds, time)},
                 {"memory", MemoryStats(total, time)}};
    if (!pod->plan->host_network) {
      const LinkUsage link = ReadLink(network.VethName(pod->plan->uid));
      item["network"] = {
          {"time", time},
          {"name", "eth0"},
          {"rxBytes", link.received},
          {"txBytes", link.sent},
          {"interfaces", {{{"name", "eth0"}, {"rxBytes", link.received}, {"txBytes", link.sent}}}}};
    }
    list.push_back(std::move(item));
  }
  const ContainerUsage node = NodeUsage();
  struct statvfs disk {};
  ::statvfs(root.c_str(), &disk);
  const std::uint64_t capacity = disk.f_blocks * disk.f_frsize;
  const std::uint64_t available = disk.f_bavail * disk.f_frsize;
  return {{"node",
           {{"nodeName", node_name},
            {"cpu", CpuStats(node.cpu_nanoseconds, time)},
            {"memory", MemoryStats(node, time)},
            {"fs",
             {{"time", time},
              {"capacityBytes", capacity},
              {"availableBytes", available},
              {"usedBytes", capacity - available}}}}},
          {"pods", std::move(list)}};
}

std::string MakeResourceMetrics(const Snapshots& pods, WallTime now) {
  const auto stamp = std::to_string(
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count());
  std::string cpu = "# TYPE container_cpu_usage_seconds_total counter\n";
  std::string memory = "# TYPE container_memory_working_set_bytes gauge\n";
  std::string start = "# TYPE container_start_time_seconds gauge\n";
  std::string pod_cpu = "# TYPE pod_cpu_usage_seconds_total counter\n";
  std::string pod_memory = "# TYPE pod_memory_working_set_bytes gauge\n";
  for (const auto& pod : pods) {
    ContainerUsage total;
    for (const Running& running : RunningOf(*pod)) {
      const ContainerUsage usage = ReadUsage(running.run->pid);
      Add(usage, &total);
      const std::string labels = MetricLabels(*pod, running.name);
      cpu += "container_cpu_usage_seconds_total" + labels + " " + Seconds(usage.cpu_nanoseconds) +
             " " + stamp + "\n";
      memory += "container_memory_working_set_bytes" + labels + " " +
                std::to_string(usage.working_set_bytes) + " " + stamp + "\n";
      start += "container_start_time_seconds" + labels + " " +
               std::to_string(std::chrono::duration_cast<std::chrono::seconds>(
                                  running.run->started_at.time_since_epoch())
                                  .count()) +
               "\n";
    }
    const std::string labels = MetricLabels(*pod, "");
    pod_cpu += "pod_cpu_usage_seconds_total" + labels + " " + Seconds(total.cpu_nanoseconds) + " " +
               stamp + "\n";
    pod_memory += "pod_memory_working_set_bytes" + labels + " " +
                  std::to_string(total.working_set_bytes) + " " + stamp + "\n";
  }
  const ContainerUsage node = NodeUsage();
  return cpu + memory + start + "# TYPE node_cpu_usage_seconds_total counter\n" +
         "node_cpu_usage_seconds_total " + Seconds(node.cpu_nanoseconds) + " " + stamp +
         "\n# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes " +
         std::to_string(node.working_set_bytes) + " " + stamp + "\n" + pod_cpu + pod_memory +
         "# TYPE resource_scrape_error gauge\nresource_scrape_error 0\n";
}

std::string MakeCadvisorMetrics(const Snapshots& pods) {
  std::string out = "# TYPE container_memory_usage_bytes gauge\n";
  std::string rss = "# TYPE container_memory_rss gauge\n";
  for (const auto& pod : pods) {
    for (const Running& running : RunningOf(*pod)) {
      const ContainerUsage usage = ReadUsage(running.run->pid);
      const std::string labels = MetricLabels(*pod, running.name);
      out +=
          "container_memory_usage_bytes" + labels + " " + std::to_string(usage.memory_bytes) + "\n";
      rss += "container_memory_rss" + labels + " " + std::to_string(usage.rss_bytes) + "\n";
    }
  }
  return out + rss;
}

std::string MakeAgentMetrics(const Snapshots& pods, const std::string& node_name) {
  std::map<std::string, int> states = {{"created", 0}, {"running", 0}, {"exited", 0}};
  int running_pods = 0;
  for (const auto& pod : pods) {
    running_pods +=
        pod->record.sandbox && pod->record.sandbox->phase == ContainerPhase::kRunning ? 1 : 0;
    for (const auto& [name, record] : pod->record.containers) {
      if (record.current) {
        ++states[record.IsRunning() ? "running" : record.HasEnded() ? "exited" : "created"];
      }
    }
  }
  std::string out = "# TYPE kubelet_node_name gauge\nkubelet_node_name{node=\"" + node_name +
                    "\"} 1\n# TYPE kubelet_running_pods gauge\nkubelet_running_pods " +
                    std::to_string(running_pods) + "\n# TYPE kubelet_running_containers gauge\n";
  for (const auto& [state, count] : states) {
    out += "kubelet_running_containers{container_state=\"" + state + "\"} " +
           std::to_string(count) + "\n";
  }
  return out;
}

}  // namespace sublet::node
