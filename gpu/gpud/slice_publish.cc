// SliceController: what it says about the node, and the lease that lets it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "gpu/api/codec.h"
#include "gpu/gpud/slice_controller.h"
#include "kube/timestamp.h"

namespace sublet::gpu {
namespace {

using client::Outcome;
using kube::Json;

constexpr auto kNodeRetry = std::chrono::milliseconds(500);

const kube::GroupVersionResource kLeases{"coordination.k8s.io", "v1", "leases"};
const kube::GroupVersionResource kNodes{"", "v1", "nodes"};

// A label value holds letters, digits, '-', '_', '.'; feature discovery writes '-' for the rest.
std::string LabelValue(std::string_view text) {
  std::string value;
  for (const char c : text.substr(0, 63)) {
    value += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ? c : '-';
  }
  while (!value.empty() && std::isalnum(static_cast<unsigned char>(value.back())) == 0) {
    value.pop_back();
  }
  return value;
}

// The labels of NVIDIA's GPU feature discovery, from the first device.
std::map<std::string, std::string> FeatureLabels(const DriverInventory& inventory) {
  std::map<std::string, std::string> labels;
  if (inventory.devices.empty()) {
    return labels;
  }
  const DriverDevice& first = inventory.devices.front();
  const std::string prefix = "nvidia.com/";
  labels[prefix + "gpu.present"] = "true";
  labels[prefix + "gpu.count"] = std::to_string(inventory.devices.size());
  labels[prefix + "gpu.product"] = LabelValue(first.model);
  labels[prefix + "gpu.memory"] = std::to_string(first.total_bytes >> 20);
  labels[prefix + "gpu.replicas"] = "1";
  labels[prefix + "gpu.compute.major"] = std::to_string(first.compute_major);
  labels[prefix + "gpu.compute.minor"] = std::to_string(first.compute_minor);
  labels[prefix + "mig.capable"] = "false";
  labels[prefix + "cuda.driver-version.full"] = LabelValue(inventory.driver_version);
  labels[prefix + "cuda.runtime-version.full"] = LabelValue(inventory.cuda_version);
  const std::size_t dot = inventory.cuda_version.find('.');
  labels[prefix + "cuda.runtime.major"] = LabelValue(inventory.cuda_version.substr(0, dot));
  if (dot != std::string::npos) {
    labels[prefix + "cuda.runtime.minor"] = LabelValue(inventory.cuda_version.substr(dot + 1));
  }
  return labels;
}

}  // namespace

Result<Outcome> SliceController::PublishNode() {
  GpuNode node;
  node.name = options_.node_name;
  node.driver_version = inventory_.driver_version;
  node.cuda_version = inventory_.cuda_version;
  node.is_simulated = options_.cdi.is_simulated;
  node.epoch = epoch_.load();
  node.heartbeat_at = kube::FormatTime(clock_.Now());
  const std::map<std::string, std::string> unhealthy = engine_.ReadStatus().unhealthy;
  for (const DriverDevice& device : inventory_.devices) {
    const auto why = unhealthy.find(device.uuid);
    ledger_.SetDevice(device.uuid, ledger_.FindDevice(device.uuid)->memory_bytes,
                      device.is_healthy && why == unhealthy.end(),
                      why == unhealthy.end() ? device.health_message : why->second);
    const Ledger::Device* books = ledger_.FindDevice(device.uuid);
    node.devices.push_back({.uuid = device.uuid,
                            .index = device.index,
                            .model = device.model,
                            .memory_bytes = books->memory_bytes,
                            .free_memory_bytes = books->free_bytes(),
                            .free_share_milli = books->free_milli(),
                            .ledger_generation = books->generation,
                            .is_healthy = books->is_healthy,
                            .health_message = books->health_message});
  }
  const client::Target target{NodeResource(), "", options_.node_name, ""};
  auto current = client_.Get(target);
  if (!current.ok() && current.error().Is(Reason::kNotFound)) {
    Json created = NodeToJson(node);
    created.erase("status");
    current = client_.Create({NodeResource(), "", "", ""}, created);
  }
  if (!current.ok()) {
    return std::move(current).error();
  }
  Json object = NodeToJson(node);
  object["metadata"] = (*current)["metadata"];
  SUBLET_TRY(Json stored,
             client_.Update({NodeResource(), "", options_.node_name, "status"}, object));
  (void)stored;
  if (options_.publishes_node) {
    if (const auto published = PublishHostNode(); !published.ok()) {
      if (!published.error().Is(Reason::kNotFound)) {
        return published.error();
      }
      return Outcome::After(kNodeRetry);  // the agent has not registered the Node yet
    }
  }
  return Outcome::After(options_.heartbeat);
}

// nvidia.com/gpu and the labels on the Node. The Node is its agent's; only our keys are touched,
// and only when they differ. NotFound: the agent has not registered yet.
Result<void> SliceController::PublishHostNode() {
  SUBLET_TRY(Json node, client_.Get({kNodes, "", options_.node_name, ""}));
  Json labels = Json::object();
  for (const auto& [key, value] : FeatureLabels(inventory_)) {
    if (kube::FindString(node, {"metadata", "labels", key}) != value) {
      labels[key] = value;
    }
  }
  if (!labels.empty()) {
    SUBLET_TRY(Json patched,
               client_.Patch({kNodes, "", options_.node_name, ""}, client::PatchType::kMerge,
                             {{"metadata", {{"labels", std::move(labels)}}}}));
    (void)patched;
  }
  const std::string count =
      std::to_string(std::count_if(inventory_.devices.begin(), inventory_.devices.end(),
                                   [](const DriverDevice& device) { return device.is_healthy; }));
  if (kube::FindString(node, {"status", "capacity", "nvidia.com/gpu"}) != count ||
      kube::FindString(node, {"status", "allocatable", "nvidia.com/gpu"}) != count) {
    SUBLET_TRY(Json patched,
               client_.Patch({kNodes, "", options_.node_name, "status"}, client::PatchType::kMerge,
                             {{"status",
                               {{"capacity", {{"nvidia.com/gpu", count}}},
                                {"allocatable", {{"nvidia.com/gpu", count}}}}}}));
    (void)patched;
  }
  return Ok();
}

// One gpud per node: whoever holds the Lease "gpud-NODE". leaseTransitions is the epoch.
Result<Outcome> SliceController::RenewLease() {
  const client::Target target{kLeases, options_.lease_namespace, "gpud-" + options_.node_name, ""};
  const auto again = std::chrono::nanoseconds(options_.lease_duration) / 3;
  const std::string now = kube::FormatMicroTime(clock_.Now());
  auto current = client_.Get(target);
  if (!current.ok() && !current.error().Is(Reason::kNotFound)) {
    // The server is away: what was granted stays, nothing new is.
    return std::move(current).error();
  }
  Result<Json> written = Json();
  std::int64_t epoch = 1;
  if (!current.ok()) {
    written = client_.Create(
        {kLeases, options_.lease_namespace, "", ""},
        {{"apiVersion", "coordination.k8s.io/v1"},
         {"kind", "Lease"},
         {"metadata", {{"name", target.name}, {"namespace", options_.lease_namespace}}},
         {"spec",
          {{"holderIdentity", options_.identity},
           {"leaseDurationSeconds", options_.lease_duration.count()},
           {"acquireTime", now},
           {"renewTime", now},
           {"leaseTransitions", epoch}}}});
  } else {
    Json lease = std::move(current).value();
    const bool is_mine = kube::FindString(lease, {"spec", "holderIdentity"}) == options_.identity;
    const auto renewed = kube::FindTime(kube::FindString(lease, {"spec", "renewTime"}));
    if (!is_mine && renewed && clock_.Now() - *renewed < options_.lease_duration) {
      if (is_leader_.exchange(false)) {
        log::Error("another gpud has taken this node over", {{"node", options_.node_name}});
      }
      return Outcome::After(again);
    }
    epoch = kube::FindInt(lease, {"spec", "leaseTransitions"}) +
            (is_mine && epoch_.load() != 0 ? 0 : 1);
    lease["spec"]["holderIdentity"] = options_.identity;
    lease["spec"]["leaseDurationSeconds"] = options_.lease_duration.count();
    lease["spec"]["renewTime"] = now;
    lease["spec"]["leaseTransitions"] = epoch;
    written = client_.Update(target, lease);
  }
  if (!written.ok()) {
    return std::move(written).error();
  }
  epoch_ = epoch;
  if (!is_leader_.exchange(true)) {
    // Another may have granted meanwhile: start from what is written.
    restored_ = false;
    ledger_ = Ledger();
    queue_->Add({"", kNodeKey});
    for (const client::ObjectPtr& object : slices_.List()) {
      queue_->Add(object->key);
    }
  }
  return Outcome::After(again);
}

}  // namespace sublet::gpu
