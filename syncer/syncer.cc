#include "syncer/syncer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "gpu/api/types.h"
#include "kube/object.h"
#include "syncer/node_usage.h"

namespace sublet::syncer {
namespace {

using kube::Json;

constexpr auto kRetryFirst = std::chrono::milliseconds(100);
constexpr auto kRetryMax = std::chrono::seconds(5);

}  // namespace

Syncer::Syncer(SyncerOptions options, LocalFacts& facts, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      mapping_(facts),
      recorder_(options_.virtual_client, "sublet-syncer", "", clock),
      reporter_(recorder_, mapping_, options_.tenant),
      virtual_informers_(options_.virtual_client),
      host_informers_(options_.host_client),
      manager_(virtual_informers_, clock, options_.threads) {}

Syncer::~Syncer() { Stop(); }

void Syncer::Start() {
  SUBLET_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Run(); });
}

void Syncer::Stop() {
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
    stopped_ = true;
  }
  stopping_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
  manager_.Stop();
  if (loop_ != nullptr) {
    loop_->Stop();
  }
  recorder_.Stop();
}

std::string Syncer::WaitingFor() const {
  MutexLock lock(mutex_);
  return running() ? "" : waiting_for_;
}

bool Syncer::Serves(std::string_view group, std::string_view version,
                    std::string_view resource) const {
  const auto answer =
      options_.host_client.GetRaw("/apis/" + std::string(group) + "/" + std::string(version));
  if (!answer.ok()) {
    return false;
  }
  const auto list = kube::ParseJson(*answer);
  if (!list.ok() || !list->contains("resources")) {
    return false;
  }
  const Json& resources = (*list)["resources"];
  return std::any_of(resources.begin(), resources.end(), [resource](const Json& entry) {
    return kube::FindString(entry, {"name"}) == resource;
  });
}

Result<void> Syncer::Connect() {
  SUBLET_RETURN_IF_ERROR(mapping_.Load());
  // The tenant's Service: the host's garbage collector takes everything with it.
  SUBLET_TRY(
      const Json service,
      options_.host_client.Get(
          {{"", "v1", "services"}, options_.tenant.host_namespace, options_.tenant.name, ""}));
  const std::string address(kube::FindString(service, {"spec", "clusterIP"}));
  if (address.empty() || address == "None") {
    return ServiceUnavailable("Service " + options_.tenant.host_namespace + "/" +
                              options_.tenant.name + " has no ClusterIP yet");
  }
  context_ = std::make_unique<SyncContext>(
      SyncContext{options_.tenant,
                  options_.config,
                  options_.virtual_client,
                  options_.host_client,
                  virtual_informers_,
                  host_informers_,
                  mapping_,
                  reporter_,
                  clock_,
                  {{"apiVersion", "v1"},
                   {"kind", "Service"},
                   {"name", options_.tenant.name},
                   {"uid", kube::UidOf(service)}},
                  address,
                  options_.dns_address.empty() ? address : options_.dns_address,
                  Serves(gpu::kGroup, gpu::kVersion, gpu::kSliceResource),
                  Serves(kNodeUsageGroup, kNodeUsageVersion, kNodeUsageResource)});
  if (!context_->host_has_node_usage) {
    log::Warn("host publishes no NodeUsage; nodes are shown whole",
              {{"tenant", options_.tenant.name}, {"remedy", "sublet host install"}});
  }
  return Ok();
}

void Syncer::Run() {
  std::chrono::milliseconds delay = kRetryFirst;
  for (;;) {
    auto connected = Connect();
    if (connected.ok()) {
      break;
    }
    log::Debug("host not ready", {{"error", connected.error()}});
    MutexLock lock(mutex_);
    waiting_for_ = "the host: " + connected.error().message();
    const Deadline until = After(delay);
    while (!stopped_ && stopping_.WaitUntil(mutex_, until)) {
    }
    if (stopped_) {
      return;
    }
    delay = std::min<std::chrono::milliseconds>(delay * 2, kRetryMax);
  }
  loop_ = std::make_unique<SyncLoop>(*context_, manager_);
  Kinds kinds = MakeKinds(*context_);
  services_ = kinds.services;
  loop_->AddKinds(std::move(kinds.all));
  loop_->Start();
  manager_.Start();
  while (!host_informers_.WaitSynced(After(std::chrono::milliseconds(200)))) {
    MutexLock lock(mutex_);
    waiting_for_ = "the first state of the host's objects";
    if (stopped_) {
      return;
    }
  }
  running_.store(true, std::memory_order_release);
  log::Info("syncer running", {{"tenant", options_.tenant.name},
                               {"host_namespace", options_.tenant.host_namespace},
                               {"mappings", mapping_.size()}});
}

Result<std::string> Syncer::HostPodPath(const kube::ObjectKey& pod) const {
  if (!running()) {
    return ServiceUnavailable("the tenant is not connected to its host yet: " + WaitingFor());
  }
  const auto name = mapping_.HostNameOf("pods", pod);
  if (!name) {
    return NotFound({"", "pods"}, pod.name);
  }
  return "/api/v1/namespaces/" + options_.tenant.host_namespace + "/pods/" + *name;
}

Result<Json> Syncer::AllocateService(const Json& service, Deadline deadline) {
  if (!running() || services_ == nullptr) {
    return ServiceUnavailable("the tenant is not connected to its host yet: " + WaitingFor());
  }
  auto given = services_->Allocate(service, deadline);
  if (!given.ok()) {
    const Status& why = given.error();
    return Status(why.reason(), why.code(),
                  reporter_.Sanitise(why.message(), kube::NamespaceOf(service)));
  }
  return given;
}

}  // namespace sublet::syncer
