// exec and attach: carries the engine's streams to a client over WebSocket or SPDY.
//
//   connection's thread   client frames -> stdin pipe, resizes
//   "exec-stdin"          stdin pipe -> engine
//   "exec-output"         engine -> client; at the end the status, then the close
//
// Bounds: 1 MiB of stdin waits for the process; then the client's connection is not read. Source:
// kubelet server/remotecommand; k8s.io/kubernetes remotecommand websocket and SPDY protocols v1-v5.
// Threads: Serve is called on the connection's thread and returns when all is over.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "node/engine/engine.h"
#include "node/kubelet_api/duplex.h"
#include "node/kubelet_api/http_request.h"

namespace sublet::node {

struct RemoteCommandOptions {
  bool stdin = false;
  bool stdout = false;
  bool stderr = false;
  bool tty = false;
};
RemoteCommandOptions ParseRemoteCommandOptions(const KubeletRequest& request);

// Opens the engine's side; called once the client's streams are there.
using OpenSession = std::function<Result<std::unique_ptr<StreamSession>>()>;

// Answers the upgrade request and serves it. `early` are bytes read behind the head. Errors:
// BadRequest (no upgrade, no protocol in common): nothing was sent then.
Result<void> ServeRemoteCommand(Duplex& connection, const KubeletRequest& request,
                                std::string early, const RemoteCommandOptions& options,
                                const OpenSession& open);

// The Status that ends an exec. `code` 0 is success.
std::string MakeExitStatus(int code);
std::string MakeErrorStatus(const Status& error);

// The terminal size messages of a client: {"Width":80,"Height":24}, several in a row.
class ResizeParser {
 public:
  // Calls `on_size(columns, rows)` for each complete message. At most 4 KiB are kept.
  void Feed(std::string_view bytes, const std::function<void(int, int)>& on_size);

 private:
  std::string buffer_;
};

}  // namespace sublet::node
