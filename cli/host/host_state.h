// HostState: what `sublet host up` started on this machine, in one file under the user's state
// directory, so that a later up, status or down knows it.
// Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/host/process.h"

namespace sublet::cli {

struct HostState {
  std::vector<Process> processes;  // in the order they were started
  std::string engine_socket;
  std::uint16_t port = 0;  // of the API on 127.0.0.1
  std::int64_t gpus = 0;
  std::int64_t nodes = 0;  // simulated ones
  std::string boot_id;     // of the machine when it was written; another one: it was rebooted
  std::string version;
};

// Files of the host: $XDG_STATE_HOME/sublet/host, made with mode 0700.
std::string HostDirectory();
// The kernel's id of this boot.
std::string BootId();
// nullopt: no host was started, or its file is gone.
std::optional<HostState> LoadHostState();
Result<void> SaveHostState(const HostState& state);

// The engine's socket of the running embedded host. Errors: NotFound (no host is up).
Result<std::string> EmbeddedEngineSocket();

}  // namespace sublet::cli
