// What probes and lifecycle hooks do: run a command in the container, ask an HTTP or gRPC port,
// connect to a TCP port, sleep. Blocking. Threads: any.
// Source: kubelet prober, pkg/probe/{exec,http,tcp,grpc}, lifecycle/handlers.go.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "node/engine/engine.h"
#include "node/pod/plan.h"

namespace sublet::node {

struct HandlerTarget {
  std::string container_id;
  std::string pod_ip;  // host for network handlers that name none
};

struct HandlerOutcome {
  bool success = false;
  // The engine could not be asked: says nothing about the container. Probes throw this away.
  bool errored = false;
  std::string output;  // what was seen, at most 10 KiB: kubelet's words for the Event
};

// Runs `handler` for at most `timeout`. A handler that could not be run at all is no success.
// `cancel` (optional) ends sleeps and waits early.
HandlerOutcome RunHandler(ContainerEngine& engine, const HandlerPlan& handler,
                          const ContainerPlan& container, const HandlerTarget& target,
                          std::chrono::milliseconds timeout, Canceller* cancel);

// The number behind a handler's port: digits or the name of a container port; 0 when unknown.
int ResolvePort(const HandlerPlan& handler, const ContainerPlan& container);

}  // namespace sublet::node
