#include "server/parts.h"

#include "apiserver/auth/pki.h"
#include "base/log.h"
#include "client/kubeconfig.h"
#include "server/host_dialer.h"

namespace sublet::server {

Result<std::unique_ptr<Parts>> Parts::Make(const PartsContext& context) {
  std::unique_ptr<Parts> parts(new Parts());
  if (!context.options.tenant.empty()) {
    SUBLET_RETURN_IF_ERROR(parts->MakeTenant(context));
  }
  parts->MakeControllers(context);
  return parts;
}

Result<void> Parts::MakeTenant(const PartsContext& context) {
  const ControlPlaneOptions& options = context.options;
  auto host = client::FindConnection(options.host_kubeconfig, "");
  if (!host.ok()) {
    return std::move(host).error().Prefixed("the connection to the host of --tenant " +
                                            options.tenant);
  }
  const std::string server =
      "https://" + options.tenant + "." + options.host_namespace + ".svc";
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
  settings.role = context.options.role == Role::kHost ? controllers::Role::kHost
                                                      : controllers::Role::kTenant;
  settings.root_ca_pem = context.authority_certificate;
  controllers_ = std::make_unique<controllers::ControllerSet>(
      client::Client(context.loopback("system:kube-controller-manager"),
                     "kube-controller-manager/sublet"),
      std::move(settings));
}

Parts::~Parts() { Stop(); }

void Parts::Start() {
  if (tenant_) {
    tenant_->Start();
  }
  controllers_->Start();
}

void Parts::Stop() {
  controllers_->Stop();
  if (tenant_) {
    tenant_->Stop();
  }
}

}  // namespace sublet::server
