#include "gpu/api/codec.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sublet::gpu {
namespace {

using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;

constexpr std::int64_t kIntMax = 2'147'483'647;

// JSON numbers are 64-bit; a value that does not fit becomes one that no validation accepts.
std::int32_t Int32(std::int64_t value) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, -1, kIntMax));
}

std::string Text(const Json& value, std::initializer_list<std::string_view> path) {
  return std::string(FindString(value, path));
}

template <typename Visit>
void EachDevice(const Json& object, std::initializer_list<std::string_view> path, Visit visit) {
  const Json* list = kube::Find(object, path);
  if (list == nullptr || !list->is_array()) {
    return;
  }
  for (const Json& item : *list) {
    visit(item);
  }
}

SliceDevice DeviceFromJson(const Json& item) {
  return {.uuid = Text(item, {"uuid"}),
          .memory_bytes = FindInt(item, {"memoryBytes"}),
          .share_milli = Int32(FindInt(item, {"shareMilli"}))};
}

Json DeviceToJson(const SliceDevice& device) {
  return {{"uuid", device.uuid},
          {"memoryBytes", device.memory_bytes},
          {"shareMilli", device.share_milli}};
}

GpuSliceSpec SpecFromJson(const Json& object) {
  GpuSliceSpec spec;
  spec.node = Text(object, {"spec", "node"});
  spec.pod = {Text(object, {"spec", "pod", "name"}), Text(object, {"spec", "pod", "uid"})};
  spec.container = Text(object, {"spec", "container"});
  spec.tenant = Text(object, {"spec", "tenant"});
  EachDevice(object, {"spec", "devices"},
             [&](const Json& item) { spec.devices.push_back(DeviceFromJson(item)); });
  spec.compute.weight = Int32(FindInt(object, {"spec", "compute", "weight"}));
  spec.compute.limit_milli =
      Int32(FindInt(object, {"spec", "compute", "limitMilli"}, kShareMilliWhole));
  spec.compute.mode = FindString(object, {"spec", "compute", "mode"}) == "strict"
                          ? ComputeMode::kStrict
                          : ComputeMode::kFair;
  // Anything but the exact word "off" is held to its slice.
  spec.enforce = FindString(object, {"spec", "enforce"}) == "off" ? Enforce::kOff : Enforce::kOn;
  return spec;
}

GpuSliceStatus StatusFromJson(const Json& object) {
  GpuSliceStatus status;
  const std::string_view phase = FindString(object, {"status", "phase"});
  status.phase = phase == "Granted"  ? SlicePhase::kGranted
                 : phase == "Denied" ? SlicePhase::kDenied
                                     : SlicePhase::kPending;
  status.reason = Text(object, {"status", "reason"});
  status.message = Text(object, {"status", "message"});
  status.cdi_device = Text(object, {"status", "cdiDevice"});
  status.ready = FindBool(object, {"status", "ready"});
  status.epoch = FindInt(object, {"status", "epoch"});
  status.granted_at = Text(object, {"status", "grantedAt"});
  EachDevice(object, {"status", "devices"}, [&](const Json& item) {
    status.devices.push_back({DeviceFromJson(item), FindInt(item, {"ledgerGeneration"})});
  });
  return status;
}

Json MetadataOf(const std::string& name, const std::string& name_space, const std::string& uid,
                const std::string& resource_version) {
  Json metadata = {{"name", name}};
  if (!name_space.empty()) {
    metadata["namespace"] = name_space;
  }
  if (!uid.empty()) {
    metadata["uid"] = uid;
  }
  if (!resource_version.empty()) {
    metadata["resourceVersion"] = resource_version;
  }
  return metadata;
}

}  // namespace

Result<GpuSlice> SliceFromJson(const Json& object) {
  GpuSlice slice;
  slice.name = Text(object, {"metadata", "name"});
  if (slice.name.empty()) {
    return BadRequest("a GpuSlice needs metadata.name");
  }
  slice.name_space = Text(object, {"metadata", "namespace"});
  slice.uid = Text(object, {"metadata", "uid"});
  slice.resource_version = Text(object, {"metadata", "resourceVersion"});
  slice.is_deleting = !FindString(object, {"metadata", "deletionTimestamp"}).empty();
  if (const Json* finalizers = kube::Find(object, {"metadata", "finalizers"});
      finalizers != nullptr) {
    slice.has_finalizer = std::find(finalizers->begin(), finalizers->end(),
                                    Json(kSliceFinalizer)) != finalizers->end();
  }
  slice.spec = SpecFromJson(object);
  slice.status = StatusFromJson(object);
  return slice;
}

Json SliceSpecToJson(const GpuSliceSpec& spec) {
  Json devices = Json::array();
  for (const SliceDevice& device : spec.devices) {
    devices.push_back(DeviceToJson(device));
  }
  Json json = {{"node", spec.node},
               {"pod", {{"name", spec.pod.name}, {"uid", spec.pod.uid}}},
               {"devices", std::move(devices)},
               {"compute",
                {{"weight", spec.compute.weight},
                 {"limitMilli", spec.compute.limit_milli},
                 {"mode", ComputeModeName(spec.compute.mode)}}},
               {"enforce", EnforceName(spec.enforce)}};
  if (!spec.container.empty()) {
    json["container"] = spec.container;
  }
  if (!spec.tenant.empty()) {
    json["tenant"] = spec.tenant;
  }
  return json;
}

Json SliceStatusToJson(const GpuSliceStatus& status) {
  Json json = {
      {"phase", SlicePhaseName(status.phase)}, {"ready", status.ready}, {"epoch", status.epoch}};
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) {
      json[key] = value;
    }
  };
  text("reason", status.reason);
  text("message", status.message);
  text("cdiDevice", status.cdi_device);
  text("grantedAt", status.granted_at);
  Json devices = Json::array();
  for (const GrantedDevice& device : status.devices) {
    Json item = DeviceToJson(device.device);
    item["ledgerGeneration"] = device.ledger_generation;
    devices.push_back(std::move(item));
  }
  json["devices"] = std::move(devices);
  return json;
}

Json SliceToJson(const GpuSlice& slice) {
  Json object = {
      {"apiVersion", kApiVersion},
      {"kind", kSliceKind},
      {"metadata", MetadataOf(slice.name, slice.name_space, slice.uid, slice.resource_version)},
      {"spec", SliceSpecToJson(slice.spec)}};
  if (slice.has_finalizer) {
    object["metadata"]["finalizers"] = Json::array({kSliceFinalizer});
  }
  if (slice.status.phase != SlicePhase::kPending) {
    object["status"] = SliceStatusToJson(slice.status);
  }
  return object;
}

Result<GpuNode> NodeFromJson(const Json& object) {
  GpuNode node;
  node.name = Text(object, {"metadata", "name"});
  if (node.name.empty()) {
    return BadRequest("a GpuNode needs metadata.name");
  }
  node.resource_version = Text(object, {"metadata", "resourceVersion"});
  node.driver_version = Text(object, {"status", "driverVersion"});
  node.cuda_version = Text(object, {"status", "cudaVersion"});
  node.is_simulated = FindBool(object, {"status", "simulated"});
  node.epoch = FindInt(object, {"status", "epoch"});
  node.heartbeat_at = Text(object, {"status", "heartbeatAt"});
  EachDevice(object, {"status", "devices"}, [&](const Json& item) {
    NodeDevice device;
    device.uuid = Text(item, {"uuid"});
    device.index = Int32(FindInt(item, {"index"}));
    device.model = Text(item, {"model"});
    device.memory_bytes = FindInt(item, {"memoryBytes"});
    device.free_memory_bytes = FindInt(item, {"freeMemoryBytes"});
    device.free_share_milli = Int32(FindInt(item, {"freeShareMilli"}));
    device.ledger_generation = FindInt(item, {"ledgerGeneration"});
    device.is_healthy = FindBool(item, {"healthy"}, true);
    device.health_message = Text(item, {"healthMessage"});
    device.mig_profile = Text(item, {"migProfile"});
    device.numa_node = Int32(FindInt(item, {"numaNode"}, -1));
    node.devices.push_back(std::move(device));
  });
  return node;
}

Json NodeToJson(const GpuNode& node) {
  Json devices = Json::array();
  for (const NodeDevice& device : node.devices) {
    Json item = {{"uuid", device.uuid},
                 {"index", device.index},
                 {"model", device.model},
                 {"memoryBytes", device.memory_bytes},
                 {"freeMemoryBytes", device.free_memory_bytes},
                 {"freeShareMilli", device.free_share_milli},
                 {"ledgerGeneration", device.ledger_generation},
                 {"healthy", device.is_healthy},
                 {"numaNode", device.numa_node}};
    if (!device.health_message.empty()) {
      item["healthMessage"] = device.health_message;
    }
    if (!device.mig_profile.empty()) {
      item["migProfile"] = device.mig_profile;
    }
    devices.push_back(std::move(item));
  }
  return {{"apiVersion", kApiVersion},
          {"kind", kNodeKind},
          {"metadata", MetadataOf(node.name, "", "", node.resource_version)},
          {"status",
           {{"driverVersion", node.driver_version},
            {"cudaVersion", node.cuda_version},
            {"simulated", node.is_simulated},
            {"epoch", node.epoch},
            {"heartbeatAt", node.heartbeat_at},
            {"devices", std::move(devices)}}}};
}

GpuSlice MakeSlice(std::string name_space, GpuSliceSpec spec) {
  GpuSlice slice;
  slice.name = spec.pod.uid;
  slice.name_space = std::move(name_space);
  slice.has_finalizer = true;
  slice.spec = std::move(spec);
  return slice;
}

std::string CdiDeviceName(std::string_view slice_name) {
  return std::string(kCdiKind) + "=" + std::string(slice_name);
}

}  // namespace sublet::gpu
