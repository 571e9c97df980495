#include "gpu/gpud/slice_controller.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "gpu/api/codec.h"
#include "gpu/api/request.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::gpu {
namespace {

using client::Outcome;
using kube::Json;

constexpr auto kDrainPoll = std::chrono::milliseconds(100);
constexpr auto kOpenRetry = std::chrono::seconds(1);

const kube::GroupVersionResource kPods{"", "v1", "pods"};

client::InformerOptions SliceInformer() {
  return {.resource = SliceResource(),
          .kind = std::string(kSliceKind),
          .keep_bytes = false,
          .make_record = [](const Json& object) -> std::shared_ptr<const void> {
            auto slice = SliceFromJson(object);
            return slice.ok() ? std::make_shared<GpuSlice>(std::move(slice).value()) : nullptr;
          }};
}

struct PodRecord {
  bool has_ended = false;
  std::vector<std::string> slices;  // names of slices this pod may be the pod of
};

constexpr std::string_view kBySlice = "slice";

// A tenant's host pod names its slice (its own name is a translation that only the syncer knows); a
// pod of the host's own is known by its UID as well, before and after the binding has named the
// slice.
std::vector<std::string> SlicesOf(const Json& pod) {
  std::vector<std::string> slices = {std::string(kube::FindString(pod, {"metadata", "uid"}))};
  const std::string prefix = CdiDeviceName("");
  if (const std::string_view device = kube::AnnotationOf(pod, kCdiAnnotation);
      device.starts_with(prefix)) {
    slices.emplace_back(device.substr(prefix.size()));
  }
  return slices;
}

std::string SliceIndexKey(std::string_view name_space, std::string_view slice) {
  return std::string(name_space) + "/" + std::string(slice);
}

client::InformerOptions PodInformer(const std::string& node) {
  return {.resource = kPods,
          .kind = "Pod",
          .field_selector = "spec.nodeName=" + node,
          .keep_bytes = false,
          .make_record = [](const Json& object) -> std::shared_ptr<const void> {
            const std::string_view phase = kube::FindString(object, {"status", "phase"});
            return std::make_shared<PodRecord>(
                PodRecord{phase == "Succeeded" || phase == "Failed", SlicesOf(object)});
          }};
}

client::Target SliceTarget(const GpuSlice& slice, std::string subresource = "") {
  return {SliceResource(), slice.name_space, slice.name, std::move(subresource)};
}

EngineSlice EngineSliceOf(const GpuSlice& slice, const Grant& grant) {
  return {.name = slice.name,
          .name_space = slice.name_space,
          .pod = slice.spec.pod.name,
          .tenant = slice.spec.tenant,
          .devices = grant,
          .compute = slice.spec.compute,
          .enforce = slice.spec.enforce};
}

std::string LedgerKey(const kube::ObjectKey& key) { return key.namespace_name + "/" + key.name; }

}  // namespace

SliceController::SliceController(SliceControllerOptions options, client::Client client,
                                 client::InformerFactory& informers, client::Manager& manager,
                                 Engine& engine, InstalledFiles files, DriverInventory inventory,
                                 const Clock& clock)
    : options_(std::move(options)),
      client_(client),
      engine_(engine),
      files_(std::move(files)),
      inventory_(std::move(inventory)),
      driver_libraries_(options_.cdi.is_simulated
                            ? std::vector<std::string>{}
                            : FindDriverLibraries(options_.cdi.driver_folder)),
      clock_(clock),
      slices_(informers.For(SliceInformer())),
      pods_(informers.For(PodInformer(options_.node_name))),
      events_(client, "gpud", options_.node_name, clock) {
  queue_ = &manager.Add({.name = "gpuslice", .reconcile = [this](const kube::ObjectKey& key) {
                           return Reconcile(key);
                         }});
  slices_.AddHandler([this](const client::ObjectPtr& before, const client::ObjectPtr& after) {
    queue_->Add((after != nullptr ? after : before)->key);
  });
  pods_.AddIndex(std::string(kBySlice), [](const client::CachedObject& pod) {
    std::vector<std::string> keys;
    for (const std::string& slice : pod.As<PodRecord>().slices) {
      keys.push_back(SliceIndexKey(pod.key.namespace_name, slice));
    }
    return keys;
  });
  pods_.AddHandler([this](const client::ObjectPtr& before, const client::ObjectPtr& after) {
    const client::ObjectPtr& pod = after != nullptr ? after : before;
    for (const std::string& slice : pod->As<PodRecord>().slices) {
      const kube::ObjectKey key{pod->key.namespace_name, slice};
      if (slices_.Get(key) != nullptr) {
        queue_->Add(key);
      }
    }
  });
  queue_->Add({"", kLeaseKey});
}

SliceController::~SliceController() { events_.Stop(); }

std::optional<GpuSlice> SliceController::FindSlice(const kube::ObjectKey& key) const {
  const client::ObjectPtr object = slices_.Get(key);
  if (object == nullptr || object->record == nullptr) {
    return std::nullopt;
  }
  return object->As<GpuSlice>();
}

client::ObjectPtr SliceController::PodOf(const GpuSlice& slice) const {
  const auto pods =
      pods_.ByIndex(std::string(kBySlice), SliceIndexKey(slice.name_space, slice.name));
  return pods.empty() ? nullptr : pods.front();
}

void SliceController::OnEngineEvent(const EngineEvent& event) {
  log::Warn("gpu", {{"slice", event.slice}, {"reason", event.reason}, {"message", event.message}});
  if (event.slice.empty()) {
    queue_->Add({"", kNodeKey});  // the node's health may have changed
  }
  for (const client::ObjectPtr& object :
       event.slice.empty() ? std::vector<client::ObjectPtr>{} : slices_.List()) {
    if (object->key.name == event.slice && object->record != nullptr) {
      EventOnPod(object->As<GpuSlice>(), "Warning", event.reason, event.message);
    }
  }
}

void SliceController::EventOnPod(const GpuSlice& slice, std::string_view type,
                                 std::string_view reason, std::string_view message) {
  events_.Event({.api_version = std::string(kApiVersion),
                 .kind = std::string(kSliceKind),
                 .namespace_name = slice.name_space,
                 .name = slice.name,
                 .uid = slice.uid},
                type, reason, message);
  if (const client::ObjectPtr pod = PodOf(slice); pod != nullptr) {
    events_.Event({.api_version = "v1",
                   .kind = "Pod",
                   .namespace_name = slice.name_space,
                   .name = pod->key.name,
                   .uid = pod->uid},
                  type, reason, message);
  }
}

Result<Outcome> SliceController::Reconcile(const kube::ObjectKey& key) {
  if (key.name == kLeaseKey) {
    return RenewLease();
  }
  if (!is_leader_.load()) {
    return Outcome::Done();  // RenewLease asks for every key again
  }
  if (!restored_) {
    RestoreLedger();
  }
  return key.name == kNodeKey ? PublishNode() : ReconcileSlice(key);
}

// What an earlier gpud granted is charged before anything new is decided, in the order of the
// grants.
void SliceController::RestoreLedger() {
  std::map<std::string, std::int64_t> generations;
  if (auto old = client_.Get({NodeResource(), "", options_.node_name, ""}); old.ok()) {
    if (auto node = NodeFromJson(*old); node.ok()) {
      for (const NodeDevice& device : node->devices) {
        generations[device.uuid] = device.ledger_generation;
      }
    }
  }
  for (const DriverDevice& device : inventory_.devices) {
    ledger_.SetDevice(device.uuid,
                      static_cast<std::int64_t>(
                          device.total_bytes - std::min(device.total_bytes, device.reserved_bytes)),
                      device.is_healthy, device.health_message, generations[device.uuid]);
  }
  for (const client::ObjectPtr& object : slices_.List()) {
    if (object->record == nullptr) {
      continue;
    }
    const GpuSlice& slice = object->As<GpuSlice>();
    if (slice.spec.node == options_.node_name && slice.status.phase == SlicePhase::kGranted) {
      ledger_.Restore(LedgerKey(object->key), slice.status.devices);
    }
  }
  restored_ = true;
}

Result<Outcome> SliceController::ReconcileSlice(const kube::ObjectKey& key) {
  const std::optional<GpuSlice> slice = FindSlice(key);
  if (!slice) {
    return ForgetGone(key);
  }
  if (slice->spec.node != options_.node_name) {
    return Outcome::Done();
  }
  if (slice->is_deleting) {
    return Free(*slice);
  }
  switch (slice->status.phase) {
    case SlicePhase::kPending: return Decide(*slice);
    case SlicePhase::kGranted: return Keep(*slice);
    case SlicePhase::kDenied: return Outcome::Done();
  }
  return Outcome::Done();
}

Result<void> SliceController::WriteStatus(const GpuSlice& slice, const GpuSliceStatus& status) {
  GpuSlice written = slice;
  written.status = status;
  SUBLET_TRY(Json stored, client_.Update(SliceTarget(slice, "status"), SliceToJson(written)));
  slices_.NoteWritten(stored);
  return Ok();
}

Result<void> SliceController::Open(const GpuSlice& slice, const Grant& grant) {
  const EngineSlice opened = EngineSliceOf(slice, grant);
  SUBLET_RETURN_IF_ERROR(engine_.AddSlice(opened));
  return WriteCdiSpec(options_.cdi, slice.name,
                      MakeCdiSpec(opened, engine_.FolderOf(slice.name), files_, options_.cdi,
                                  inventory_, driver_libraries_));
}

void SliceController::Close(const std::string& ledger_key, const std::string& name) {
  RemoveCdiSpec(options_.cdi, name);
  engine_.RemoveSlice(name);
  ledger_.Release(ledger_key);
  granted_at_.erase(ledger_key);
  pod_was_seen_.erase(ledger_key);
  queue_->Add({"", kNodeKey});
}

bool SliceController::IsNameTaken(const GpuSlice& slice) const {
  for (const auto& [key, grant] : ledger_.grants()) {
    const std::size_t slash = key.find('/');
    if (key.substr(slash + 1) == slice.name && key.substr(0, slash) != slice.name_space) {
      return true;
    }
  }
  return false;
}

Result<Outcome> SliceController::Decide(const GpuSlice& slice) {
  const std::string key = slice.name_space + "/" + slice.name;
  GpuSliceStatus status;
  status.epoch = epoch_.load();
  std::variant<Grant, Denial> answer = Denial{};
  if (const auto valid = ValidateSliceSpec(slice.name, slice.spec); !valid.ok()) {
    answer = Denial{std::string(kDeniedInvalidSpec), valid.error().message()};
  } else if (slice.name != slice.spec.pod.uid) {
    answer = Denial{std::string(kDeniedInvalidSpec), "a slice is named by its pod's UID"};
  } else if (IsNameTaken(slice)) {
    // Sockets and CDI specs are named by the slice alone: whoever learned a foreign pod's UID must
    // not be served from, or replace, what is that pod's.
    answer = Denial{std::string(kDeniedInvalidSpec),
                    "a slice of this name is held in another namespace"};
  } else {
    answer = ledger_.TryGrant(key, slice.spec.devices);
  }
  if (const Denial* denial = std::get_if<Denial>(&answer)) {
    status.phase = SlicePhase::kDenied;
    status.reason = denial->reason;
    status.message = denial->message;
    SUBLET_RETURN_IF_ERROR(WriteStatus(slice, status));
    EventOnPod(slice, "Warning", "GpuSliceDenied", denial->message);
    return Outcome::Done();
  }
  const Grant& grant = std::get<Grant>(answer);
  const auto opened = Open(slice, grant);
  status.phase = SlicePhase::kGranted;
  status.devices = grant;
  status.cdi_device = CdiDeviceName(slice.name);
  status.ready = opened.ok();
  status.message = opened.ok() ? "" : opened.error().message();
  status.granted_at = kube::FormatTime(clock_.Now());
  if (const auto written = WriteStatus(slice, status); !written.ok()) {
    if (written.error().Is(Reason::kNotFound)) {
      Close(key, slice.name);
      return Outcome::Done();
    }
    return written.error();  // the ledger remembers the grant; the next try answers the same
  }
  queue_->Add({"", kNodeKey});
  return Outcome::After(opened.ok() ? std::chrono::nanoseconds(options_.orphan_after)
                                    : std::chrono::nanoseconds(kOpenRetry));
}

// A granted slice: opened again after a restart, and given up when its pod does not need it.
Result<Outcome> SliceController::Keep(const GpuSlice& slice) {
  const std::string key = slice.name_space + "/" + slice.name;
  if (ledger_.Find(key) == nullptr) {
    ledger_.Restore(key, slice.status.devices);
  }
  if (const auto opened = Open(slice, slice.status.devices); !opened.ok()) {
    log::Warn("cannot open slice", {{"name", slice.name}, {"error", opened.error()}});
    return Outcome::After(kOpenRetry);
  }
  if (!slice.status.ready) {
    GpuSliceStatus status = slice.status;
    status.ready = true;
    status.message = "";
    status.epoch = epoch_.load();
    SUBLET_RETURN_IF_ERROR(WriteStatus(slice, status));
  }
  const client::ObjectPtr pod = PodOf(slice);
  bool is_orphan = pod != nullptr && pod->record != nullptr && pod->As<PodRecord>().has_ended;
  if (pod != nullptr) {
    pod_was_seen_[key] = true;
  } else if (pod_was_seen_[key]) {
    is_orphan = true;
  } else {
    const WallTime since =
        granted_at_.try_emplace(key, kube::FindTime(slice.status.granted_at).value_or(clock_.Now()))
            .first->second;
    const auto left = options_.orphan_after - (clock_.Now() - since);
    if (left > std::chrono::nanoseconds(0)) {
      return Outcome::After(std::chrono::duration_cast<std::chrono::nanoseconds>(left));
    }
    is_orphan = true;
  }
  if (!is_orphan) {
    return Outcome::Done();
  }
  log::Info("slice without a pod", {{"namespace", slice.name_space}, {"name", slice.name}});
  auto deleted = client_.Delete(SliceTarget(slice), {.uid = slice.uid});
  if (!deleted.ok() && !deleted.error().Is(Reason::kNotFound)) {
    return std::move(deleted).error();
  }
  return Outcome::Done();
}

Result<Outcome> SliceController::Free(const GpuSlice& slice) {
  const std::string key = slice.name_space + "/" + slice.name;
  if (slice.status.phase == SlicePhase::kGranted && ledger_.Find(key) == nullptr) {
    ledger_.Restore(key, slice.status.devices);
  }
  // A denied slice holds nothing; files of its name may be those of another namespace's slice.
  if (ledger_.Find(key) != nullptr) {
    // Not offered to new containers any more; what runs keeps its memory until it ends.
    RemoveCdiSpec(options_.cdi, slice.name);
    // A gpud that has just started finds the processes of its predecessor by opening the slice
    // again.
    SUBLET_RETURN_IF_ERROR(engine_.AddSlice(EngineSliceOf(slice, slice.status.devices)));
    if (engine_.ProcessesOf(slice.name) > 0) {
      return Outcome::After(kDrainPoll);
    }
    Close(key, slice.name);
  }
  if (!slice.has_finalizer) {
    return Outcome::Done();
  }
  SUBLET_TRY(Json object, client_.Get(SliceTarget(slice)));
  kube::RemoveFinalizer(&object, kSliceFinalizer);
  auto updated = client_.Update(SliceTarget(slice), object);
  if (!updated.ok() && !updated.error().Is(Reason::kNotFound)) {
    return std::move(updated).error();
  }
  return Outcome::Done();
}

// The object is gone without us (its finalizer was taken by force): the same rule holds.
Result<Outcome> SliceController::ForgetGone(const kube::ObjectKey& key) {
  if (ledger_.Find(LedgerKey(key)) == nullptr) {
    return Outcome::Done();
  }
  RemoveCdiSpec(options_.cdi, key.name);
  if (engine_.ProcessesOf(key.name) > 0) {
    return Outcome::After(kDrainPoll);
  }
  Close(LedgerKey(key), key.name);
  return Outcome::Done();
}

}  // namespace sublet::gpu
