// port-forward: connects ports of a pod, as seen inside its network namespace, to streams of a
// client. Three wire forms: SPDY (a data and an error stream per connection), the same SPDY bytes
// inside a WebSocket ("SPDY/3.1+portforward.k8s.io"), and the old WebSocket form with two channels
// per port.
// Bounds: 256 connections per client; more are refused on their error stream.
// Source: kubelet server/portforward; KEP-4006. Threads: the connection's, two per forwarded
// connection ("forward"); Serve returns when all have ended.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "node/kubelet_api/duplex.h"
#include "node/kubelet_api/http_request.h"

namespace sublet::node {

// A connected socket to the port, or why not.
using ConnectPort = std::function<Result<int>(int port)>;

// Errors: BadRequest (no upgrade, no protocol in common, bad port): nothing was sent then.
Result<void> ServePortForward(Duplex& connection, const KubeletRequest& request, std::string early,
                              const ConnectPort& connect);

// Connects to 127.0.0.1:port (or ::1) inside the network namespace of process `pid`.
// Errors: ServiceUnavailable (nothing listens), NotFound (the process is gone).
Result<int> ConnectInNamespace(int pid, int port);

}  // namespace sublet::node
