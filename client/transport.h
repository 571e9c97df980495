// Transport: bytes to an API server and back. Two implementations: HttpTransport (client/
// http_transport.h, TLS over TCP) and the loopback of apiserver/loopback_transport.h, which enters
// the same pipeline in process without TLS and HTTP. client/client.h is what callers use.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"

namespace sublet::client {

using Headers = std::vector<std::pair<std::string, std::string>>;

// Whether two header names are the same (ASCII, any case).
bool HeaderNameEquals(std::string_view a, std::string_view b);

struct HttpRequest {
  std::string method = "GET";
  std::string target;  // path and query, percent-encoded: "/api/v1/pods?limit=500"
  Headers headers;     // Content-Type, Accept and Impersonate-* stand here; no credentials
  std::string body;
  Deadline deadline = Deadline::max();
};

struct HttpResponse {
  int code = 0;
  Headers headers;
  std::string body;
  // The first value of header `name` (any case), or "".
  std::string_view Header(std::string_view name) const;
};

// One line of a watch, or one chunk of a log stream.
using Chunk = std::shared_ptr<const std::string>;

class Stream {
 public:
  virtual ~Stream() = default;
  // The next frame: for a watch one JSON event without its newline; otherwise the bytes as they
  // came. nullopt: the server ended the stream cleanly. Errors: Timeout (deadline passed, the
  // stream lives on), ServiceUnavailable (connection lost), whatever Status the server sent.
  // Threads: one reader at a time.
  virtual Result<std::optional<Chunk>> Next(Deadline deadline) = 0;
  // The tree of the object in the frame that Next returned last, where the transport has it at hand
  // (a watch of this process); else null. It is shared and never changed. Once per frame. Threads:
  // the reader's.
  virtual std::shared_ptr<const kube::Json> TakeTree() { return nullptr; }
  // Makes a waiting Next return nullopt. Threads: any; idempotent.
  virtual void Close() = 0;
  // Lets one thread read many streams. After it returned true: each time Next has returned Timeout,
  // `ready` is called once, from any thread and with no lock of a caller held, as soon as Next
  // would return something else (a frame, the end, an error, Close). It must not call back into the
  // stream. False: not supported; the reader needs a thread of its own. Threads: the reader's,
  // once, before the first Next.
  virtual bool NotifyWhenReady(std::function<void()> ready) {
    static_cast<void>(ready);
    return false;
  }
};

// A connection after "101 Switching Protocols": raw bytes both ways (exec, port-forward).
class Tunnel {
 public:
  virtual ~Tunnel() = default;
  // Blocks until at least one byte; 0 bytes = the peer ended its side.
  virtual Result<std::size_t> Read(char* data, std::size_t bytes_max) = 0;
  virtual Result<void> Write(std::string_view data) = 0;
  virtual void CloseWrite() = 0;
  virtual void Close() = 0;
  virtual const HttpResponse& response() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Errors: Timeout, ServiceUnavailable (could not connect, connection cut). An HTTP error code is
  // not an error here. Threads: any; blocks the caller.
  virtual Result<HttpResponse> RoundTrip(const HttpRequest& request) = 0;
  // Opens a streaming response. Errors as above, and the server's Status when its code is not 2xx.
  virtual Result<std::unique_ptr<Stream>> OpenStream(const HttpRequest& request) = 0;
  // Sends an Upgrade request. Errors as above, and the server's Status when it does not switch.
  virtual Result<std::unique_ptr<Tunnel>> OpenTunnel(const HttpRequest& request) = 0;
};

}  // namespace sublet::client
