#include "server/parts.h"

#include "apiserver/auth/pki.h"
#include "base/log.h"
#include "client/kubeconfig.h"
#include "kube/json.h"
#include "server/host_dialer.h"

namespace sublet::server {

std::string HostServiceAddress(const ControlPlaneOptions& options) {
  const auto connection = client::FindConnection(options.host_kubeconfig, "");
  if (!connection.ok()) {
    return "";
  }
  const auto client = client::Connect(*connection, "sublet-syncer");
  if (!client.ok()) {
    return "";
  }
  const auto service =
      client->WithTimeout(std::chrono::seconds(2))
          .Get({{"", "v1", "services"}, options.host_namespace, options.tenant, ""});
  const std::string address(service.ok() ? kube::FindString(*service, {"spec", "clusterIP"})
                                         : std::string_view());
  return address == "None" ? "" : address;
}

Result<std::unique_ptr<Parts>> Parts::Make(const PartsContext& context) {
  std::unique_ptr<Parts> parts(new Parts());
  if (!context.options.tenant.empty()) {
    SUBLET_RETURN_IF_ERROR(parts->MakeTenant(context));
  }
  parts->MakeControllers(context);
  SUBLET_RETURN_IF_ERROR(parts->MakeScheduler(context));
  SUBLET_RETURN_IF_ERROR(parts->MakeDns(context));
  return parts;
}

Result<void> Parts::MakeTenant(const PartsContext& context) {
  const ControlPlaneOptions& options = context.options;
  auto host = client::FindConnection(options.host_kubeconfig, "");
  if (!host.ok()) {
    return std::move(host).error().Prefixed("the connection to the host of --tenant " +
                                            options.tenant);
  }
  const std::string server = "https://" + options.tenant + "." + options.host_namespace + ".svc";
  TenantPartOptions tenant{
      options.tenant,
      options.host_namespace,
      options.config,
      client::Client(context.loopback("system:sublet:syncer"), "sublet-syncer"),
      std::move(*host),
      {context.authority_certificate, context.admin.certificate, context.admin.key,
       apiserver::MakeKubeconfig(options.tenant, server, context.authority_certificate,
                                 context.admin)}};
  SUBLET_TRY(tenant_, TenantPart::Make(std::move(tenant), context.store, context.clock));
  dialer_ = std::make_unique<HostDialer>(tenant_->syncer());
  return {};
}

void Parts::MakeControllers(const PartsContext& context) {
  controllers::Settings settings;
  settings.role =
      context.options.role == Role::kHost ? controllers::Role::kHost : controllers::Role::kTenant;
  settings.root_ca_pem = context.authority_certificate;
  if (context.options.role == Role::kHost) {
    settings.local_volume_root = context.options.data_directory + "/volumes";
  }
  controllers_ = std::make_unique<controllers::ControllerSet>(
      client::Client(context.loopback("system:kube-controller-manager"),
                     "kube-controller-manager/sublet"),
      std::move(settings));
}

Result<void> Parts::MakeScheduler(const PartsContext& context) {
  const ControlPlaneOptions& options = context.options;
  SchedulerPartOptions scheduler{
      options.config,
      client::Client(context.loopback("system:kube-scheduler"), "kube-scheduler/sublet"),
      client::Client(context.loopback("system:sublet:setup"), "sublet-setup"),
      options.role == Role::kHost,
      std::nullopt,
      options.host_namespace,
      options.tenant};
  if (tenant_) {
    scheduler.host = tenant_->syncer().host_client();
  }
  SUBLET_TRY(scheduler_, SchedulerPart::Make(std::move(scheduler), context.clock));
  return {};
}

Result<void> Parts::MakeDns(const PartsContext& context) {
  if (context.options.dns_listen.empty()) {
    return {};
  }
  SUBLET_TRY(dns_,
             DnsPart::Make(client::Client(context.loopback("system:sublet:dns"), "sublet-dns"),
                           context.options.dns_listen, context.options.config.cluster_domain));
  return {};
}

Parts::~Parts() { Stop(); }

void Parts::Start() {
  if (tenant_) {
    tenant_->Start();
  }
  controllers_->Start();
  scheduler_->Start();
  if (dns_) {
    dns_->Start();
  }
}

void Parts::Stop() {
  if (dns_) {
    dns_->Stop();
  }
  scheduler_->Stop();
  controllers_->Stop();
  if (tenant_) {
    tenant_->Stop();
  }
}

}  // namespace sublet::server
