#include "syncer/sync_loop.h"

#include <nlohmann/json.hpp>

#include "base/log.h"

namespace sublet::syncer {
namespace {

using client::Outcome;
using kube::Json;

// What the tenant can do something about; the rest is the operator's and only logged.
bool IsForTheTenant(const Status& status) {
  return status.Is(Reason::kForbidden) || status.Is(Reason::kInvalid) ||
         status.Is(Reason::kBadRequest) || status.Is(Reason::kRequestEntityTooLarge);
}

}  // namespace

SyncLoop::SyncLoop(SyncContext& context, client::Manager& manager)
    : context_(context), manager_(manager) {}

SyncLoop::~SyncLoop() { Stop(); }

void SyncLoop::AddKinds(std::vector<std::unique_ptr<KindSyncer>> kinds) {
  for (auto& kind : kinds) {
    KindSyncer* raw = kind.get();
    client::ControllerOptions options;
    options.name = "sync-" + raw->info().name;
    options.workers_max = 8;
    options.reconcile = [this, raw](const kube::ObjectKey& key) { return Reconcile(*raw, key); };
    client::WorkQueue& queue = manager_.Add(std::move(options));
    raw->Watch([&queue](const kube::ObjectKey& key) { queue.Add(key); });
    kinds_.push_back(std::move(kind));
  }
}

Result<Outcome> SyncLoop::Dispatch(KindSyncer& kind, const kube::ObjectKey& key,
                                   const client::ObjectPtr& virtual_object,
                                   const client::ObjectPtr& host_object) {
  if (virtual_object == nullptr && host_object == nullptr) {
    return kind.Gone(key);
  }
  if (host_object == nullptr) {
    SUBLET_TRY(const Json object, virtual_object->Parse());
    return kind.SyncToHost(object);
  }
  if (virtual_object != nullptr) {
    if (const auto settled = kind.Settled(*virtual_object, *host_object)) {
      return *settled;
    }
  }
  SUBLET_TRY(const Json host, host_object->Parse());
  if (virtual_object == nullptr) {
    return kind.SyncToVirtual(key, host);
  }
  SUBLET_TRY(const Json object, virtual_object->Parse());
  return kind.Sync(object, host);
}

Result<Outcome> SyncLoop::Reconcile(KindSyncer& kind, const kube::ObjectKey& key) {
  // Until the host's state is known, "absent on the host" means nothing.
  if (!context_.host_informers.WaitSynced(After(std::chrono::seconds(30)))) {
    return ServiceUnavailable("the host's API does not answer; its objects are not known yet");
  }
  const auto virtual_object = kind.Virtual(key);
  auto result = Dispatch(kind, key, virtual_object, kind.Host(key));
  if (result.ok() || result.error().Is(Reason::kConflict) ||
      result.error().Is(Reason::kAlreadyExists)) {
    return result;
  }
  log::Debug("sync failed", {{"kind", kind.info().name},
                             {"namespace", key.namespace_name},
                             {"name", key.name},
                             {"error", result.error()}});
  if (virtual_object != nullptr && IsForTheTenant(result.error())) {
    if (const auto object = virtual_object->Parse(); object.ok()) {
      context_.reporter.Warn(*object, "SyncError", result.error().message());
    }
  }
  return result;
}

void SyncLoop::Start() { context_.host_informers.Start(); }

void SyncLoop::Stop() { context_.host_informers.Stop(); }

}  // namespace sublet::syncer
