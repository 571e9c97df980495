// Server: the way of every request, whoever carried it:
//   audit id → request info → authentication → impersonation → deadline → in-flight limits →
//   authorization → router → handler
// and what every answer gets: Audit-Id, Cache-Control, priority level headers, metrics.
//
// Threads: Handle on the transport's thread; handlers of slow routes on the request pool (threads
// request-N, a bounded queue; full = 429). Answers come from any thread.
// Bounds: inflight_max reading and mutating_inflight_max writing requests at once (429 beyond; long
// running ones and system:masters excepted, as upstream), request_timeout for all but long running.
// Source: k8s.io/apiserver pkg/server/config.go DefaultBuildHandlerChain and its filters.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apiserver/auth/authenticator.h"
#include "apiserver/auth/authorizer.h"
#include "apiserver/router.h"
#include "base/bounded_queue.h"
#include "base/metrics.h"

namespace sublet::apiserver {

// What API priority and fairness says about a request, for its two headers. Values are uids.
struct FlowNames {
  std::string flow_schema;
  std::string priority_level;
};

struct ServerOptions {
  int inflight_max = 400;
  int mutating_inflight_max = 200;
  int request_threads = 8;
  std::size_t request_queue_max = 1024;
  std::chrono::milliseconds request_timeout = std::chrono::seconds(60);
  // May be empty. Called for every request that is not in process.
  std::function<FlowNames(const User&)> flow_of;
};

class Server final : public Handler {
 public:
  // All outlive the server; `metrics` also outlives every Responder.
  Server(ServerOptions options, const Authenticator& authenticator, const Authorizer& authorizer,
         const Router& router, Metrics& metrics);
  ~Server() override;

  void Start();
  void Handle(std::unique_ptr<Request> request, ResponderPtr responder) override;
  // Runs `work` on the request pool. False: the pool is full or stopped; `work` is not run.
  bool Offload(std::function<void()> work);
  // Finishes what the pool has begun, drops the rest (their clients get 500). Idempotent.
  void Stop();

 private:
  struct Counters;
  class PipelineResponder;

  Result<void> Admit(Request& request, PipelineResponder& responder);
  Result<void> SetDeadline(Request& request) const;
  Result<void> CheckAuthorized(const Request& request) const;

  const ServerOptions options_;
  const Authenticator& authenticator_;
  const Authorizer& authorizer_;
  const Router& router_;
  const std::shared_ptr<Counters> counters_;
  BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

// watch, proxy and the streaming subresources: no deadline, not counted in flight.
bool IsLongRunning(const RequestInfo& info);

}  // namespace sublet::apiserver
