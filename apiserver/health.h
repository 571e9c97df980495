// HealthHandler: /healthz, /livez and /readyz with ?verbose, ?exclude and one path per check.
// Threads: any. Checks run on the asking thread and must not block.
// Source: k8s.io/apiserver pkg/server/healthz.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "apiserver/handler.h"

namespace sublet::apiserver {

class HealthHandler final : public Handler {
 public:
  struct Check {
    std::string name;  // "etcd"
    std::function<Result<void>()> run;
    bool only_ready = false;  // counts for /readyz only
  };

  // Before the server starts.
  void Add(Check check) { checks_.push_back(std::move(check)); }
  // From now on /readyz fails, so that nobody sends new work.
  void BeginShutdown() { shutting_down_.store(true); }
  void Handle(std::unique_ptr<Request> request, ResponderPtr responder) override;

 private:
  std::vector<Check> checks_;
  std::atomic<bool> shutting_down_{false};
};

}  // namespace sublet::apiserver
