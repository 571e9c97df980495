// SchedulerPart: the embedded scheduler of one control plane. Puts KAI's kinds, queues and priority
// classes in place, chooses the profiles, and answers `sublet scheduler explain` and `queues` at
// /sublet/scheduler/...
// Threads: Start returns at once; "scheduler-start" waits until the kinds are served.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "apiserver/handler.h"
#include "config/tenant_config.h"
#include "scheduler/service/service.h"

namespace sublet::server {

struct SchedulerPartOptions {
  config::TenantConfig config;
  client::Client client;        // system:kube-scheduler, in process
  client::Client setup_client;  // may create CRDs
  bool host_role = false;
  // The host's API as the tenant's credential; for slices. Unset: slices are asked for here.
  std::optional<client::Client> host;
  std::string host_namespace;
  std::string tenant;
};

// The profiles a configuration asks for. Errors: BadRequest (unknown profile, one scheduler name
// twice).
Result<std::vector<scheduler::Profile>> ProfilesOf(const config::TenantConfig& config);

class SchedulerPart final : public apiserver::Handler {
 public:
  static Result<std::unique_ptr<SchedulerPart>> Make(SchedulerPartOptions options,
                                                     const Clock& clock);
  ~SchedulerPart() override;

  void Start();
  void Stop();  // idempotent; joins
  // KAI's metrics; nothing before the scheduler runs. Any thread.
  void AppendMetrics(std::string& out);

  // GET /sublet/scheduler/explain?namespace=NS&pod=NAME, GET /sublet/scheduler/queues,
  // POST /sublet/scheduler/whatif {"objects": [...]}. A slow route.
  void Handle(std::unique_ptr<apiserver::Request> request,
              apiserver::ResponderPtr responder) override;

 private:
  SchedulerPart(SchedulerPartOptions options, std::vector<scheduler::Profile> profiles,
                const Clock& clock);
  void Run();
  // Applies our manifests; tried again until they stand.
  Result<void> Install();
  bool Serves(const client::Client& client, const std::string& group_version,
              const std::string& resource) const;
  Result<kube::Json> Answer(const apiserver::Request& request);

  const SchedulerPartOptions options_;
  const std::vector<scheduler::Profile> profiles_;
  const Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::shared_ptr<scheduler::SchedulerService> service_ SUBLET_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sublet::server
