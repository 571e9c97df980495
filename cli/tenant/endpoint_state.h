// The local endpoint of a connected tenant: an address on 127.0.0.1 that always leads to the
// tenant, kept by a background process (`sublet endpoint`). Its state is one file per context, so
// that the process can be started again after a reboot by whoever notices (the kubeconfig's
// credential plugin). Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sublet::cli {

struct EndpointState {
  std::string context;  // the tenant's kubeconfig context
  std::string parent;   // the host's
  std::string tenant;
  std::string host_namespace;
  std::uint16_t port = 0;  // on 127.0.0.1
  std::int64_t pid = 0;    // of the process, 0 = not running
  bool paused = false;     // the tenant was, from this machine; it may have been resumed since
  std::string certificate_pem;
  std::string key_pem;
};

// $XDG_STATE_HOME/sublet/endpoints, made with mode 0700.
Result<std::string> EndpointDirectory();
// Errors: NotFound (this context is not connected), BadRequest (broken file).
Result<EndpointState> LoadEndpoint(const std::string& context);
Result<void> SaveEndpoint(const EndpointState& state);
std::vector<EndpointState> AllEndpoints();

// True when something answers on the port.
bool EndpointAnswers(const EndpointState& state);
// Starts the process when it does not answer; it listens a moment later.
Result<void> StartEndpoint(const EndpointState& state);
// Starts the process when it does not answer and waits until it does. Errors: Timeout.
Result<void> EnsureEndpoint(EndpointState& state);
// Stops the process and removes the file. Only a process that is this endpoint is signalled.
void RemoveEndpoint(const std::string& context);
// A free port of 127.0.0.1.
Result<std::uint16_t> FreePort();

}  // namespace sublet::cli
