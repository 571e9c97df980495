#include "gpu/gpud/status.h"

#include <nlohmann/json.hpp>

#include "gpu/hooks/protocol.h"

namespace sublet::gpu {
namespace {

constexpr const char* kChargeNames[kChargesMax] = {"linear", "pool",    "vmm",    "array",
                                                   "graph",  "context", "module", "host"};

// Quotes, backslashes and newlines as the text format wants them.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

class Text {
 public:
  void Family(const char* name, const char* type, const char* help) {
    out_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
    name_ = name;
  }
  void Line(const std::string& labels, double value) {
    char number[64];
    std::snprintf(number, sizeof number,
                  value == static_cast<double>(static_cast<long long>(value)) ? "%.0f" : "%.6f",
                  value);
    out_ += name_ + (labels.empty() ? "" : "{" + labels + "}") + " " + number + "\n";
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
  std::string name_;
};

std::string Labels(const SliceStatus& slice, const SliceDeviceStatus& device) {
  return "slice=\"" + Escaped(slice.slice.name) + "\",namespace=\"" +
         Escaped(slice.slice.name_space) + "\",pod=\"" + Escaped(slice.slice.pod) + "\",tenant=\"" +
         Escaped(slice.slice.tenant) + "\",gpu=\"" + Escaped(device.uuid) + "\"";
}

}  // namespace

std::string FormatMetrics(const EngineStatus& status, const DriverInventory& inventory) {
  Text text;
  const auto each = [&](const char* name, const char* type, const char* help, auto value) {
    text.Family(name, type, help);
    for (const SliceStatus& slice : status.slices) {
      for (const SliceDeviceStatus& device : slice.devices) {
        text.Line(Labels(slice, device), static_cast<double>(value(slice, device)));
      }
    }
  };
  using S = const SliceStatus&;
  using D = const SliceDeviceStatus&;
  each("sublet_gpu_memory_limit_bytes", "gauge", "The slice's cap.",
       [](S, D d) { return d.cap_bytes; });
  each("sublet_gpu_memory_used_bytes", "gauge", "Charged memory.",
       [](S, D d) { return d.used_bytes; });
  each("sublet_gpu_memory_peak_bytes", "gauge", "The most that was ever charged.",
       [](S, D d) { return d.peak_bytes; });
  each("sublet_gpu_memory_held_bytes", "gauge",
       "Memory of dead processes that the driver still shows.",
       [](S, D d) { return d.held_bytes; });
  each("sublet_gpu_memory_drift_bytes", "gauge", "Memory the driver shows beyond the charges.",
       [](S, D d) { return d.drift_bytes; });
  each("sublet_gpu_memory_context_bytes", "gauge", "Charged for contexts.",
       [](S, D d) { return d.class_bytes[static_cast<int>(Charge::kContext)]; });
  each("sublet_gpu_oom_refusals_total", "counter", "Allocations refused at the cap.",
       [](S, D d) { return d.refusals; });
  each("sublet_gpu_busy_seconds_total", "counter",
       "Device time: measured turns, and the driver's samples while the slice was alone.",
       [](S, D d) { return static_cast<double>(d.busy) / 1e9; });
  each("sublet_gpu_wait_seconds_total", "counter", "Time threads waited at the launch gate.",
       [](S, D d) { return static_cast<double>(d.wait) / 1e9; });
  each("sublet_gpu_lease_turns_total", "counter", "Turns given.", [](S, D d) { return d.turns; });
  each("sublet_gpu_lease_overruns_total", "counter", "Turns that ended more than a quarter late.",
       [](S, D d) { return d.overruns; });
  each("sublet_gpu_share_target", "gauge", "The granted share of the device.",
       [](S, D d) { return d.share_milli / 1000.0; });
  each("sublet_gpu_processes", "gauge", "Known processes of the slice.",
       [](S s, D) { return s.processes; });
  each("sublet_gpu_unmanaged_process_total", "counter", "Processes found past the interceptor.",
       [](S s, D) { return s.unmanaged; });
  each("sublet_gpu_ungated_launches_total", "counter", "Launches let through while gpud was away.",
       [](S s, D) { return s.ungated; });
  each("sublet_gpu_shim_passthrough_total", "counter", "Entry points handed out unwrapped.",
       [](S s, D) { return s.passthrough; });
  each("sublet_gpu_private_table_total", "counter", "Private export tables handed out.",
       [](S s, D) { return s.private_tables; });
  text.Family("sublet_gpu_device_memory_bytes", "gauge", "Usable memory of the device.");
  for (const DriverDevice& device : inventory.devices) {
    text.Line("gpu=\"" + Escaped(device.uuid) + "\",model=\"" + Escaped(device.model) + "\"",
              static_cast<double>(device.total_bytes - device.reserved_bytes));
  }
  text.Family("sublet_gpud_reconcile_seconds", "gauge",
              "How long the driver took to list its processes.");
  text.Line("", status.reconcile_seconds);
  text.Family("sublet_gpud_unmanaged_process_total", "counter",
              "Processes found past the interceptor, on the whole node.");
  text.Line("", static_cast<double>(status.unmanaged_total));
  text.Family("sublet_gpud_refused_hellos_total", "counter",
              "Connections refused: strangers, wrong version, full.");
  text.Line("", static_cast<double>(status.refused_hellos));
  return text.Take();
}

kube::Json StatusToJson(const EngineStatus& status, const DriverInventory& inventory,
                        const std::string& node, Nanoseconds now) {
  kube::Json devices = kube::Json::array();
  for (const DriverDevice& device : inventory.devices) {
    devices.push_back({{"uuid", device.uuid},
                       {"index", device.index},
                       {"model", device.model},
                       {"memoryBytes", device.total_bytes - device.reserved_bytes},
                       {"healthy", device.is_healthy}});
  }
  kube::Json slices = kube::Json::array();
  for (const SliceStatus& slice : status.slices) {
    kube::Json list = kube::Json::array();
    for (const SliceDeviceStatus& device : slice.devices) {
      kube::Json bytes = kube::Json::object();
      for (int charge = 0; charge < kChargesMax; ++charge) {
        bytes[kChargeNames[charge]] = device.class_bytes[charge];
      }
      list.push_back({{"uuid", device.uuid},
                      {"capBytes", device.cap_bytes},
                      {"usedBytes", device.used_bytes},
                      {"peakBytes", device.peak_bytes},
                      {"heldBytes", device.held_bytes},
                      {"bytes", std::move(bytes)},
                      {"refusals", device.refusals},
                      {"shareMilli", device.share_milli},
                      {"weight", device.weight},
                      {"busyNs", device.busy},
                      {"waitNs", device.wait},
                      {"turns", device.turns},
                      {"overruns", device.overruns},
                      {"waiting", device.is_waiting}});
    }
    slices.push_back({{"name", slice.slice.name},
                      {"namespace", slice.slice.name_space},
                      {"pod", slice.slice.pod},
                      {"tenant", slice.slice.tenant},
                      {"processes", slice.processes},
                      {"enforced", slice.slice.enforce == Enforce::kOn},
                      {"unmanaged", slice.unmanaged},
                      {"ungated", slice.ungated},
                      {"devices", std::move(list)}});
  }
  return {{"node", node},
          {"driverVersion", inventory.driver_version},
          {"nowNs", now},
          {"devices", std::move(devices)},
          {"slices", std::move(slices)}};
}

}  // namespace sublet::gpu
