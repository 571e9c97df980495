// The container engine the embedded host runs pods on: an engine that is already there, or a Podman
// service of our own.
// Threads: one.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "cli/host/process.h"

namespace sublet::cli {

struct EngineChoice {
  std::string socket;
  Process process;   // pid 0: it was running already
  std::string name;  // "podman 4.3.1", for people
};

// `wanted` "" = take what is there, "podman" or "docker" = that one, else the path of a socket.
// Order: $SUBLET_ENGINE_SOCKET, a Docker or Podman socket that answers, a Podman service started
// with its state under `directory`. Errors: NotFound naming the package to install; Timeout.
Result<EngineChoice> ChooseEngine(const std::string& wanted, const std::string& directory);

// Starts the Podman service that ChooseEngine once started in `directory` again; its containers go
// on. `rebooted`: nothing of it can be running, and what it noted as running is forgotten. Errors:
// as ChooseEngine.
Result<EngineChoice> RestartEngine(const std::string& directory, bool rebooted);

}  // namespace sublet::cli
