// Parts: what runs beside the API server in one process, started in order when it serves and
// stopped in reverse: the tenant's syncer, the controllers, the scheduler, the tenant's nameserver.
// Each is an ordinary client over the loopback. Adding one: a member, a line in Start, a line in
// Stop. Threads: Make, Start and Stop one at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "apiserver/auth/certificates.h"
#include "apiserver/tunnel/node_dialer.h"
#include "controllers/registry.h"
#include "server/control_plane.h"
#include "server/dns_part.h"
#include "server/scheduler_part.h"
#include "server/tenant_part.h"
#include "storage/store.h"

namespace sublet::server {

struct PartsContext {
  const ControlPlaneOptions& options;
  storage::Store& store;
  const Clock& clock;
  std::string authority_certificate;
  apiserver::KeyPair admin;
  std::function<std::shared_ptr<client::Transport>(const std::string& user)> loopback;
};

// The ClusterIP of the tenant's own Service on its host: its pods know the API by it. Waits up to
// two seconds for the host; "" = not known.
std::string HostServiceAddress(const ControlPlaneOptions& options);

class Parts {
 public:
  // Errors: BadRequest (the connection to the host), NotFound (there is none).
  static Result<std::unique_ptr<Parts>> Make(const PartsContext& context);
  ~Parts();

  void Start();
  void Stop();  // idempotent

  // Answers /sublet/scheduler/...
  SchedulerPart& scheduler() { return *scheduler_; }
  // Null without a host.
  syncer::Syncer* syncer() { return tenant_ ? &tenant_->syncer() : nullptr; }
  // Where a tenant's pods really are; null without a host.
  apiserver::NodeDialer* dialer() { return dialer_.get(); }

 private:
  Parts() = default;
  Result<void> MakeTenant(const PartsContext& context);
  void MakeControllers(const PartsContext& context);
  Result<void> MakeScheduler(const PartsContext& context);
  Result<void> MakeDns(const PartsContext& context);

  std::unique_ptr<TenantPart> tenant_;
  std::unique_ptr<apiserver::NodeDialer> dialer_;
  std::unique_ptr<controllers::ControllerSet> controllers_;
  std::unique_ptr<SchedulerPart> scheduler_;
  std::unique_ptr<DnsPart> dns_;
};

}  // namespace sublet::server
