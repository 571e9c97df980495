#include "gpu/cli_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu/api/codec.h"

namespace sublet::gpu {
namespace {

using kube::FindInt;
using kube::FindString;
using kube::Json;

using Row = std::vector<std::string>;

std::string Table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(i + 1 < row.size() ? widths[i] - row[i].size() + 3 : 0, ' ');
    }
    out += line + "\n";
  }
  return out;
}

std::string Percent(std::int64_t milli) {
  char text[32];
  std::snprintf(text, sizeof text, milli % 10 == 0 ? "%.0f%%" : "%.1f%%",
                static_cast<double>(milli) / 10.0);
  return text;
}

const Json& Items(const Json& document, std::string_view key) {
  static const Json none = Json::array();
  const Json* list = kube::Find(document, {key});
  return list != nullptr && list->is_array() ? *list : none;
}

// The entry of `before` for the same slice and device, or nullptr.
const Json* Earlier(const Json* before, std::string_view slice, std::string_view uuid) {
  if (before == nullptr) {
    return nullptr;
  }
  for (const Json& candidate : Items(*before, "slices")) {
    if (FindString(candidate, {"name"}) != slice) {
      continue;
    }
    for (const Json& device : Items(candidate, "devices")) {
      if (FindString(device, {"uuid"}) == uuid) {
        return &device;
      }
    }
  }
  return nullptr;
}

}  // namespace

std::string HumanBytes(std::int64_t bytes) {
  if (bytes <= 0) {
    return "0";
  }
  char text[32];
  if (bytes >= std::int64_t{10} << 30) {
    std::snprintf(text, sizeof text, "%.1fGi",
                  static_cast<double>(bytes) / (std::int64_t{1} << 30));
  } else {
    std::snprintf(text, sizeof text, "%lldMi",
                  static_cast<long long>((bytes + kBytesPerMebibyte - 1) / kBytesPerMebibyte));
  }
  return text;
}

Json GpuListToJson(const std::vector<GpuNode>& nodes, const std::vector<GpuSlice>& slices) {
  Json items = Json::array();
  for (const GpuNode& node : nodes) {
    for (const NodeDevice& device : node.devices) {
      Json held = Json::array();
      for (const GpuSlice& slice : slices) {
        for (const GrantedDevice& granted : slice.status.devices) {
          if (slice.spec.node == node.name && granted.device.uuid == device.uuid) {
            held.push_back({{"namespace", slice.name_space},
                            {"name", slice.name},
                            {"pod", slice.spec.pod.name},
                            {"tenant", slice.spec.tenant},
                            {"memoryBytes", granted.device.memory_bytes},
                            {"shareMilli", granted.device.share_milli},
                            {"phase", SlicePhaseName(slice.status.phase)},
                            {"ready", slice.status.ready}});
          }
        }
      }
      items.push_back({{"node", node.name},
                       {"index", device.index},
                       {"uuid", device.uuid},
                       {"model", device.model},
                       {"memoryBytes", device.memory_bytes},
                       {"freeMemoryBytes", device.free_memory_bytes},
                       {"freeShareMilli", device.free_share_milli},
                       {"healthy", device.is_healthy},
                       {"slices", std::move(held)}});
    }
  }
  return {{"items", std::move(items)}};
}

std::string FormatGpuList(const std::vector<GpuNode>& nodes, const std::vector<GpuSlice>& slices) {
  const Json document = GpuListToJson(nodes, slices);
  const Json& items = document["items"];
  if (items.empty()) {
    return "No GPUs found\n";
  }
  std::vector<Row> rows = {
      {"NODE", "GPU", "MODEL", "MEMORY", "FREE", "FREE SHARE", "SLICES", "HEALTH"}};
  for (const Json& item : items) {
    rows.push_back(
        {std::string(FindString(item, {"node"})), std::to_string(FindInt(item, {"index"})),
         std::string(FindString(item, {"model"})), HumanBytes(FindInt(item, {"memoryBytes"})),
         HumanBytes(FindInt(item, {"freeMemoryBytes"})), Percent(FindInt(item, {"freeShareMilli"})),
         std::to_string(item["slices"].size()),
         kube::FindBool(item, {"healthy"}) ? "ok" : "unhealthy"});
  }
  std::vector<Row> held = {{"TENANT", "POD", "NODE", "GPU", "MEMORY", "SHARE", "PHASE"}};
  for (const Json& item : items) {
    for (const Json& slice : item["slices"]) {
      const std::string tenant(FindString(slice, {"tenant"}));
      held.push_back(
          {tenant.empty() ? "-" : tenant, std::string(FindString(slice, {"pod"})),
           std::string(FindString(item, {"node"})), std::to_string(FindInt(item, {"index"})),
           HumanBytes(FindInt(slice, {"memoryBytes"})), Percent(FindInt(slice, {"shareMilli"})),
           std::string(FindString(slice, {"phase"}))});
    }
  }
  return Table(rows) + (held.size() > 1 ? "\n" + Table(held) : "");
}

Json GpuTopToJson(const Json& status, const Json* before) {
  const std::int64_t passed =
      before == nullptr ? 0 : FindInt(status, {"nowNs"}) - FindInt(*before, {"nowNs"});
  Json gpus = Json::array();
  for (const Json& device : Items(status, "devices")) {
    const std::string_view uuid = FindString(device, {"uuid"});
    Json slices = Json::array();
    for (const Json& slice : Items(status, "slices")) {
      for (const Json& mine : Items(slice, "devices")) {
        if (FindString(mine, {"uuid"}) != uuid) {
          continue;
        }
        const Json* old = Earlier(before, FindString(slice, {"name"}), uuid);
        Json got = nullptr;
        if (old != nullptr && passed > 0) {
          got = std::clamp<std::int64_t>(
              (FindInt(mine, {"busyNs"}) - FindInt(*old, {"busyNs"})) * 1000 / passed, 0, 1000);
        }
        slices.push_back(
            {{"tenant", FindString(slice, {"tenant"})},
             {"namespace", FindString(slice, {"namespace"})},
             {"pod", FindString(slice, {"pod"})},
             {"capBytes", FindInt(mine, {"capBytes"})},
             {"usedBytes", FindInt(mine, {"usedBytes"})},
             {"peakBytes", FindInt(mine, {"peakBytes"})},
             {"shareWantedMilli", FindInt(mine, {"shareMilli"})},
             {"shareGotMilli", std::move(got)},
             {"waitMs", FindInt(mine, {"waitNs"}) / 1'000'000},
             {"waitMsPerSecond",
              old == nullptr || passed <= 0
                  ? Json()
                  : Json(std::max<std::int64_t>(
                        (FindInt(mine, {"waitNs"}) - FindInt(*old, {"waitNs"})) * 1000 / passed,
                        0))},
             {"enforced", kube::FindBool(slice, {"enforced"}, true)},
             {"refusals", FindInt(mine, {"refusals"})},
             {"processes", FindInt(slice, {"processes"})}});
      }
    }
    gpus.push_back({{"uuid", uuid},
                    {"index", FindInt(device, {"index"})},
                    {"model", FindString(device, {"model"})},
                    {"memoryBytes", FindInt(device, {"memoryBytes"})},
                    {"slices", std::move(slices)}});
  }
  return {{"node", FindString(status, {"node"})}, {"gpus", std::move(gpus)}};
}

std::string FormatGpuTop(const Json& status, const Json* before) {
  const Json document = GpuTopToJson(status, before);
  std::string out;
  for (const Json& gpu : document["gpus"]) {
    std::int64_t used = 0;
    std::int64_t got = 0;
    for (const Json& slice : gpu["slices"]) {
      used += FindInt(slice, {"usedBytes"});
      got += FindInt(slice, {"shareGotMilli"});
    }
    out += "GPU " + std::to_string(FindInt(gpu, {"index"})) + "  " +
           std::string(FindString(gpu, {"model"})) + "  " + HumanBytes(used) + " of " +
           HumanBytes(FindInt(gpu, {"memoryBytes"})) + " used, " +
           Percent(std::min<std::int64_t>(got, 1000)) + " busy  " +
           std::string(FindString(gpu, {"uuid"})) + "\n";
    if (gpu["slices"].empty()) {
      out += "  no slices\n\n";
      continue;
    }
    std::vector<Row> rows = {{"  TENANT", "POD", "CAP", "USED", "PEAK", "WANTED", "GOT", "WAIT",
                              "REFUSED", "PROCESSES"}};
    for (const Json& slice : gpu["slices"]) {
      const std::string tenant(FindString(slice, {"tenant"}));
      rows.push_back(
          {"  " + (tenant.empty() ? "-" : tenant), std::string(FindString(slice, {"pod"})),
           kube::FindBool(slice, {"enforced"}) ? HumanBytes(FindInt(slice, {"capBytes"})) : "off",
           HumanBytes(FindInt(slice, {"usedBytes"})), HumanBytes(FindInt(slice, {"peakBytes"})),
           Percent(FindInt(slice, {"shareWantedMilli"})),
           slice["shareGotMilli"].is_null() ? "-" : Percent(FindInt(slice, {"shareGotMilli"})),
           slice["waitMsPerSecond"].is_null()
               ? "-"
               : std::to_string(FindInt(slice, {"waitMsPerSecond"})) + "ms/s",
           std::to_string(FindInt(slice, {"refusals"})),
           std::to_string(FindInt(slice, {"processes"}))});
    }
    out += Table(rows) + "\n";
  }
  return out.empty() ? "No GPUs found\n" : out;
}

}  // namespace sublet::gpu
