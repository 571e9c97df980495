#include "scheduler/service/slices.h"

#include <nlohmann/json.hpp>

#include "gpu/api/codec.h"
#include "kube/object.h"

namespace sublet::scheduler {
namespace {

using kube::Json;

struct SliceRecord {
  gpu::SlicePhase phase = gpu::SlicePhase::kPending;
  std::string reason, message, node;
  std::int64_t share_milli = 0;
  std::int64_t memory_bytes = 0;
  std::vector<gpu::GrantedDevice> granted;
};

std::shared_ptr<const void> MakeRecord(const Json& object) {
  auto record = std::make_shared<SliceRecord>();
  if (const auto slice = gpu::SliceFromJson(object); slice.ok()) {
    record->phase = slice->status.phase;
    record->reason = slice->status.reason;
    record->message = slice->status.message;
    record->node = slice->spec.node;
    record->granted = slice->status.devices;
    for (const auto& device : slice->spec.devices) {
      record->share_milli += device.share_milli;
      record->memory_bytes += device.memory_bytes;
    }
  }
  return record;
}

}  // namespace

SliceBroker::SliceBroker(SliceBrokerOptions options,
                         std::function<void(const SliceAnswer&)> on_answer)
    : options_(std::move(options)), on_answer_(std::move(on_answer)), informers_(options_.client) {
  client::InformerOptions slices;
  slices.resource = {std::string(gpu::kGroup), std::string(gpu::kVersion),
                     std::string(gpu::kSliceResource)};
  slices.kind = std::string(gpu::kSliceKind);
  slices.namespace_name = options_.only_namespace;
  slices.keep_bytes = false;
  slices.make_record = MakeRecord;
  slices_ = &informers_.For(slices);
  slices_->AddHandler([this](const client::ObjectPtr&, const client::ObjectPtr& after) {
    if (after != nullptr) {
      Seen(after);
    }
  });
}

SliceBroker::~SliceBroker() { Stop(); }
void SliceBroker::Start() { informers_.Start(); }
void SliceBroker::Stop() { informers_.Stop(); }

void SliceBroker::Seen(const client::ObjectPtr& object) {
  const auto& record = object->As<SliceRecord>();
  if (record.phase != gpu::SlicePhase::kPending && !object->deleting()) {
    on_answer_({object->key.name, record.phase == gpu::SlicePhase::kGranted, record.reason,
                record.message});
  }
}

Result<void> SliceBroker::CheckPolicy(const gpu::GpuSliceSpec& spec) {
  if (options_.devices_milli_max < 0 && options_.memory_bytes_max < 0) {
    return Ok();
  }
  std::int64_t share = 0;
  std::int64_t bytes = 0;
  for (const auto& device : spec.devices) {
    share += device.share_milli;
    bytes += device.memory_bytes;
  }
  for (const auto& slice : slices_->List()) {
    const auto& record = slice->As<SliceRecord>();
    if (slice->key.name != spec.pod.uid && record.phase != gpu::SlicePhase::kDenied) {
      share += record.share_milli;
      bytes += record.memory_bytes;
    }
  }
  if (options_.devices_milli_max >= 0 && share > options_.devices_milli_max) {
    return sublet::Status(Reason::kForbidden,
                          "the tenant may hold " +
                              std::to_string(options_.devices_milli_max / 1000) +
                              " GPUs (policies.gpu.devices); with this pod it would hold " +
                              std::to_string(share) + " thousandths of a GPU");
  }
  if (options_.memory_bytes_max >= 0 && bytes > options_.memory_bytes_max) {
    return sublet::Status(
        Reason::kForbidden,
        "the tenant may hold " + std::to_string(options_.memory_bytes_max >> 20) +
            " MiB of GPU memory (policies.gpu.memory); with this pod it would hold " +
            std::to_string(bytes >> 20) + " MiB");
  }
  return Ok();
}

Result<void> SliceBroker::Ask(const std::string& pod_namespace, gpu::GpuSliceSpec spec) {
  spec.tenant = options_.tenant;
  const std::string space = options_.slice_namespace(pod_namespace);
  MutexLock lock(policy_mutex_);
  SUBLET_RETURN_IF_ERROR(CheckPolicy(spec));
  const gpu::GpuSlice slice = gpu::MakeSlice(space, spec);
  Json object = gpu::SliceToJson(slice);
  object.erase("status");
  if (!options_.tenant.empty()) {
    object["metadata"]["labels"]["sublet.dev/managed-by"] = options_.tenant;
  }
  auto created = options_.client.Create({slices_->options().resource, space, "", ""}, object);
  if (created.ok()) {
    slices_->NoteWritten(*created);
    return Ok();
  }
  if (!created.error().Is(Reason::kAlreadyExists)) {
    return std::move(created).error();
  }
  // After a restart, or when an answer got lost: the slice that stands there is ours if it asks for
  // the same.
  SUBLET_TRY(const Json there,
             options_.client.Get({slices_->options().resource, space, slice.name, ""}));
  SUBLET_TRY(const gpu::GpuSlice existing, gpu::SliceFromJson(there));
  if (!existing.is_deleting && existing.spec == spec &&
      existing.status.phase != gpu::SlicePhase::kDenied) {
    if (existing.status.phase == gpu::SlicePhase::kGranted) {
      on_answer_({slice.name, true, "", ""});
    }
    return Ok();
  }
  if (!existing.is_deleting) {
    SUBLET_RETURN_IF_ERROR(Release(pod_namespace, slice.name));
  }
  return sublet::Status(Reason::kConflict, "an earlier slice of this pod is still being released");
}

std::int64_t SliceBroker::OwnBytes(const std::string& uuid, std::int64_t generation) const {
  std::int64_t bytes = 0;
  for (const auto& slice : slices_->List()) {
    for (const auto& granted : slice->As<SliceRecord>().granted) {
      if (granted.device.uuid == uuid && granted.ledger_generation <= generation) {
        bytes += granted.device.memory_bytes;
      }
    }
  }
  return bytes;
}

std::vector<std::string> SliceBroker::DevicesOf(const std::string& pod_namespace,
                                                const std::string& pod_uid) const {
  std::vector<std::string> devices;
  if (const auto slice = slices_->Get({options_.slice_namespace(pod_namespace), pod_uid});
      slice != nullptr) {
    for (const auto& granted : slice->As<SliceRecord>().granted) {
      devices.push_back(granted.device.uuid);
    }
  }
  return devices;
}

Result<void> SliceBroker::Release(const std::string& pod_namespace, const std::string& pod_uid) {
  auto deleted = options_.client.Delete(
      {slices_->options().resource, options_.slice_namespace(pod_namespace), pod_uid, ""});
  if (!deleted.ok() && !deleted.error().Is(Reason::kNotFound)) {
    return std::move(deleted).error();
  }
  return Ok();
}

}  // namespace sublet::scheduler
