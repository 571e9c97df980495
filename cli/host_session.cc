#include "cli/host_session.h"

#include "cli/output.h"

namespace sublet::cli {

std::string TenantContextName(std::string_view name, std::string_view host_namespace,
                              std::string_view parent) {
  std::string text = "sublet_";
  text.append(name).append("_").append(host_namespace).append("_").append(parent);
  return text;
}

std::optional<TenantContext> ParseTenantContext(std::string_view context) {
  if (!context.starts_with("sublet_")) {
    return std::nullopt;
  }
  std::string_view rest = context.substr(7);
  const auto first = rest.find('_');
  if (first == std::string_view::npos) {
    return std::nullopt;
  }
  const auto second = rest.find('_', first + 1);
  if (second == std::string_view::npos) {
    return std::nullopt;
  }
  return TenantContext{std::string(rest.substr(0, first)),
                       std::string(rest.substr(first + 1, second - first - 1)),
                       std::string(rest.substr(second + 1))};
}

Result<HostSession> OpenHost(const HostFlags& flags) {
  const auto paths = client::Kubeconfig::Paths("");
  SUBLET_TRY(const client::Kubeconfig kubeconfig, client::Kubeconfig::Load());
  std::string context = flags.context.empty() ? kubeconfig.current_context() : flags.context;
  // A tenant inside a tenant is not what a user in a tenant's context means.
  while (const auto tenant = ParseTenantContext(context)) {
    context = tenant->parent;
  }
  if (context.empty()) {
    if (auto inside = client::InClusterConnection(); inside.ok()) {
      SUBLET_TRY(client::Client client, client::Connect(*inside, "sublet-cli"));
      return HostSession{std::move(client), *inside, "", paths.front(), false};
    }
    return Status(Reason::kNotFound, std::string(kNoContext));
  }
  SUBLET_TRY(client::Connection connection, kubeconfig.Resolve(context));
  SUBLET_TRY(client::Client client, client::Connect(connection, "sublet-cli"));
  return HostSession{std::move(client), std::move(connection), context, paths.front(),
                     context == kEmbeddedContext};
}

}  // namespace sublet::cli
