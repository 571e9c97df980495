// Finding tenants on a host, and what is known about each: shared by the tenant verbs.
// Threads: one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/host_session.h"

namespace sublet::cli {

struct TenantInfo {
  std::string name;
  std::string host_namespace;
  std::string status;      // Running, Starting, Paused, or the pod's own reason
  std::string version;     // of the image
  std::string created;     // RFC 3339
  std::string uid;         // of the StatefulSet
  bool connected = false;  // the current context leads there
  kube::Json stateful_set;
};

inline const kube::GroupVersionResource kStatefulSets{"apps", "v1", "statefulsets"};
inline const kube::GroupVersionResource kPods{"", "v1", "pods"};
inline const kube::GroupVersionResource kSecrets{"", "v1", "secrets"};
inline const kube::GroupVersionResource kNamespaces{"", "v1", "namespaces"};

// All tenants of the host, or of one namespace, by namespace and name.
// Errors: the host's.
Result<std::vector<TenantInfo>> ListTenants(const HostSession& host, const std::string& space);

// The tenant called `name`, in `space` when that is not empty.
// Errors: NotFound (with the names there are), BadRequest (the name stands in several namespaces).
Result<TenantInfo> FindTenant(const HostSession& host, const std::string& name,
                              const std::string& space);

// The decoded value of a Secret's key; "" when absent.
std::string DecodeSecret(const kube::Json& secret, std::string_view key);

// The administrator's credentials, from the Secret the tenant writes when it serves.
struct TenantAccess {
  std::string ca_pem;
  std::string certificate_pem;
  std::string key_pem;
  std::string server_name;  // a name in the serving certificate
};
// nullopt: not written yet. Errors: the host's.
Result<std::optional<TenantAccess>> ReadAccess(const HostSession& host, const TenantInfo& tenant);

// Waits until the tenant serves and its credentials are there. `note` is called with what it waits
// for. Errors: Timeout, saying what was missing.
Result<TenantAccess> WaitForTenant(const HostSession& host, const TenantInfo& tenant,
                                   Deadline deadline,
                                   const std::function<void(std::string_view)>& note);

// What a person looks at when a tenant does not become ready.
std::string LookAtPod(std::string_view name, std::string_view host_namespace);

// Starts a paused tenant again; does nothing to others. Returns before it serves.
Result<void> WakeTenant(const HostSession& host, const TenantInfo& tenant);

}  // namespace sublet::cli
