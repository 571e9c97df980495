// ControlPlane: one running `sublet serve`: storage, API server and the parts that live beside it,
// opened in order and closed in reverse. The one place that may include everything.
// Threads: Open and Stop one at a time; the getters any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/transport.h"
#include "config/tenant_config.h"

namespace sublet::server {

enum class Role : std::uint8_t { kTenant, kHost };

struct ControlPlaneOptions {
  std::string data_directory;
  std::string listen_address = "127.0.0.1";
  std::uint16_t listen_port = 0;
  // A second address at which pods reach the API (the pod network's gateway, which may appear
  // later); "" = none.
  std::string pod_listen_address;
  std::uint16_t pod_listen_port = 0;
  std::string kubeconfig_path;  // "" = none is written
  // "" = none. Where the credentials of node `node_name` are written at each start
  // (server/node_kubeconfig.h).
  std::string node_kubeconfig_path;
  std::string node_name;
  Role role = Role::kTenant;
  // The tenant's name on its host; "" = there is no host, nothing is synced.
  std::string tenant;
  std::string host_namespace;
  std::string host_kubeconfig;  // "" = $KUBECONFIG or the pod's own account
  std::string dns_listen;       // ADDRESS:PORT of the tenant's nameserver; "" = none
  // Nothing runs beside the API server: no controllers, no scheduler, no kinds of ours. For those
  // who bring their own, and for comparing the API with another server.
  bool api_only = false;
  config::TenantConfig config;
};

class ControlPlane {
 public:
  // Opens or creates the data directory and serves. Errors, each saying what to do: Conflict
  // (directory or port in use), Forbidden (no permission), BadRequest (address, PEM files),
  // ServiceUnavailable (disk full), InternalError (corrupt state).
  static Result<std::unique_ptr<ControlPlane>> Open(const ControlPlaneOptions& options);
  // Whether Open would find usable state, without serving. Errors: as Open.
  static Result<void> Check(const ControlPlaneOptions& options);
  virtual ~ControlPlane() = default;

  virtual std::uint16_t port() const = 0;
  // "https://127.0.0.1:6443", as the kubeconfig says.
  virtual std::string url() const = 0;
  // An in-process client's transport; `user` acts with system:masters.
  virtual std::shared_ptr<client::Transport> Loopback(const std::string& user) = 0;
  // Answers what is in flight (up to five seconds), stops the parts, closes storage. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace sublet::server
