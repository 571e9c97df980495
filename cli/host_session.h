// HostSession: the host cluster a tenant verb works on, from the kubeconfig. When the current
// context is one of ours (`sublet_NAME_NAMESPACE_PARENT`), its parent is meant. Threads: one.
#pragma once

#include <optional>
#include <string>

#include "client/client.h"
#include "client/kubeconfig.h"

namespace sublet::cli {

// The flags every tenant verb has.
struct HostFlags {
  std::string context;         // --context
  std::string namespace_name;  // -n, --namespace
};

struct HostSession {
  client::Client client;
  client::Connection connection;
  std::string context;          // of the host, "" in a cluster
  std::string kubeconfig_path;  // the file contexts are written to
  bool embedded = false;        // it is the embedded host
};

// A tenant's own context: which tenant it leads to and where it came from.
struct TenantContext {
  std::string name;
  std::string host_namespace;
  std::string parent;
};
inline constexpr std::string_view kEmbeddedContext = "sublet-host";

std::string TenantContextName(std::string_view name, std::string_view host_namespace,
                              std::string_view parent);
// nullopt when `context` is not one of ours.
std::optional<TenantContext> ParseTenantContext(std::string_view context);

// Errors: NotFound (no context at all: the caller offers the embedded host), BadRequest (unreadable
// kubeconfig, unknown context).
Result<HostSession> OpenHost(const HostFlags& flags);

}  // namespace sublet::cli
