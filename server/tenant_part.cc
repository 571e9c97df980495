#include "server/tenant_part.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace sublet::server {
namespace {
using kube::Json;
}  // namespace

syncer::SyncConfig MakeSyncConfig(const config::TenantConfig& config) {
  syncer::SyncConfig sync;
  sync.pods.translate_images = config.translate_images;
  sync.pods.enforced_tolerations = config.enforced_tolerations;
  sync.pods.node_selector = config.node_labels;
  sync.pods.runtime_class_name = config.runtime_class_name;
  sync.pods.priority_class_name = config.priority_class_name;
  sync.pods.sync_priority_classes = config.priority_classes_to_host;
  sync.pods.extra_keys = config.allowed_metadata;
  sync.pods.sync_service_accounts = config.service_accounts;
  sync.pods.cluster_domain = config.cluster_domain;
  sync.set_owner = config.set_owner;
  sync.config_maps_all = config.config_maps_all;
  sync.secrets_all = config.secrets_all;
  sync.services = config.services;
  sync.endpoints = config.endpoints;
  sync.endpoint_slices = config.endpoint_slices;
  sync.persistent_volume_claims = config.persistent_volume_claims;
  sync.service_accounts = config.service_accounts;
  sync.ingresses = config.ingresses;
  sync.network_policies = config.network_policies;
  sync.pods.priority_max = config.priority_max;
  sync.network_policy = config.network_policy;
  sync.pod_disruption_budgets = config.pod_disruption_budgets;
  sync.priority_classes_to_host = config.priority_classes_to_host;
  sync.priority_classes_from_host = config.priority_classes_from_host;
  sync.storage_classes = config.storage_classes;
  sync.storage_classes_to_host = config.storage_classes_to_host;
  sync.persistent_volumes_to_host = config.persistent_volumes_to_host;
  sync.ingress_classes = config.ingress_classes;
  sync.runtime_classes = config.runtime_classes;
  sync.events = config.events;
  sync.node_labels = config.node_labels;
  sync.host_schedulers = config.host_schedulers;
  sync.host_schedules_all = !config.control_plane.scheduler_enabled;
  for (const auto& row : config.replicate_to_host) {
    sync.replicate_to_host.push_back({row.from, row.to});
  }
  for (const auto& row : config.replicate_from_host) {
    sync.replicate_from_host.push_back({row.from, row.to});
  }
  sync.pod_security = config.pod_security;
  sync.gpu_enforced = config.control_plane.gpu_enforce == "on";
  sync.gpu_devices_max = config.gpu_devices;
  sync.gpu_memory_max = config.gpu_memory_bytes;
  return sync;
}

Result<std::unique_ptr<TenantPart>> TenantPart::Make(TenantPartOptions options,
                                                     storage::Store& store, const Clock& clock) {
  SUBLET_TRY(client::Client host, client::Connect(options.host, "sublet-syncer"));
  return std::unique_ptr<TenantPart>(
      new TenantPart(std::move(options), std::move(host), store, clock));
}

TenantPart::TenantPart(TenantPartOptions options, client::Client host_client, storage::Store& store,
                       const Clock& clock)
    : options_(std::move(options)), host_client_(std::move(host_client)), facts_(store) {
  syncer_ = std::make_unique<syncer::Syncer>(
      syncer::SyncerOptions{{options_.tenant, options_.host_namespace},
                            MakeSyncConfig(options_.config),
                            options_.virtual_client,
                            host_client_,
                            ""},
      facts_, clock);
}

TenantPart::~TenantPart() { Stop(); }

void TenantPart::Start() {
  syncer_->Start();
  publisher_ = std::thread([this] { PublishAccess(); });
}

void TenantPart::Stop() {
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
    stopped_ = true;
  }
  stopping_.NotifyAll();
  if (publisher_.joinable()) {
    publisher_.join();
  }
  syncer_->Stop();
}

Result<void> TenantPart::WriteAccess() {
  const client::Target target{
      {"", "v1", "secrets"}, options_.host_namespace, "sublet-" + options_.tenant, ""};
  const Json secret = {{"apiVersion", "v1"},
                       {"kind", "Secret"},
                       {"type", "Opaque"},
                       {"metadata",
                        {{"name", target.name},
                         {"namespace", options_.host_namespace},
                         {"labels", {{"app", "sublet"}, {"release", options_.tenant}}}}},
                       {"stringData",
                        {{"config", options_.access.kubeconfig},
                         {"certificate-authority", options_.access.ca_pem},
                         {"client-certificate", options_.access.certificate_pem},
                         {"client-key", options_.access.key_pem}}}};
  auto written = host_client_.Create({target.resource, target.namespace_name, "", ""}, secret);
  if (!written.ok() && written.error().Is(Reason::kAlreadyExists)) {
    written = host_client_.Update(target, secret);
  }
  if (!written.ok()) {
    return std::move(written).error();
  }
  return Ok();
}

void TenantPart::PublishAccess() {
  auto delay = std::chrono::milliseconds(50);
  for (;;) {
    const auto written = WriteAccess();
    if (written.ok()) {
      log::Info("published the administrator's access", {{"secret", "sublet-" + options_.tenant}});
      return;
    }
    log::Warn("cannot publish the administrator's access", {{"error", written.error()}});
    MutexLock lock(mutex_);
    const Deadline until = After(delay);
    while (!stopped_ && stopping_.WaitUntil(mutex_, until)) {
    }
    if (stopped_) {
      return;
    }
    delay = std::min<std::chrono::milliseconds>(delay * 2, std::chrono::seconds(5));
  }
}

}  // namespace sublet::server
