// Listener: the TLS port of the API server. Takes connections, parses HTTP/1.1, hands each request
// to a Handler and writes its answer: whole, as a stream, or as a switch to raw bytes.
//
// Threads: `io_threads` threads named http-N carry all bytes; each connection stays on one of them.
// Handler::Handle runs on it and must not block. Upgraded connections run on threads of their own,
// named tunnel, at most tunnels_max.
// Bounds: connections_max (more are closed at once), head, headers and body sizes, one request at a
// time per connection (pipelined ones wait in at most 128 KiB, then TCP pushes back), 128 KiB of
// unsent output per connection, and a deadline in every state.
// Source: limits.md figures 1, 2 and 5 in the design notes; k8s.io/apiserver for what is answered.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "apiserver/handler.h"
#include "apiserver/http/parser.h"
#include "apiserver/http/tls.h"
#include "base/result.h"

namespace sublet::apiserver {

struct ListenerOptions {
  std::string address = "127.0.0.1";  // an IP address
  std::uint16_t port = 0;             // 0 = any free one
  bool free_bind = false;             // the address may appear on the machine later
  TlsMaterial tls;
  int io_threads = 2;
  std::size_t connections_max = 20000;
  std::size_t tunnels_max = 256;
  ParserLimits parser;
  std::chrono::milliseconds handshake_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds head_timeout = std::chrono::seconds(32);  // as kube-apiserver
  std::chrono::milliseconds body_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(180);
  std::chrono::milliseconds stall_timeout =
      std::chrono::seconds(60);  // a client that reads nothing
};

struct ListenerStats {
  std::size_t connections = 0;
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;  // over connections_max
  std::size_t tunnels = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual std::uint16_t port() const = 0;
  // Starts the threads and takes connections.
  virtual void Start() = 0;
  // New connections use `material`; running ones keep theirs. Errors: BadRequest.
  virtual Result<void> SetTls(const TlsMaterial& material) = 0;
  // Takes no new connections, closes idle ones, ends streams cleanly, waits up to `drain` for
  // requests in flight, then cuts the rest and joins. Idempotent; the destructor calls it.
  virtual void Stop(std::chrono::milliseconds drain) = 0;
  virtual ListenerStats stats() const = 0;
};

// Binds the port; `handler` outlives the listener. Errors: BadRequest (address or PEM),
// Conflict (address in use), Forbidden (no permission for the port).
Result<std::unique_ptr<Listener>> OpenListener(const ListenerOptions& options, Handler& handler);

// Raises the soft limit of open files to the hard one, for a connection per watch. Returns it.
std::uint64_t RaiseFileLimit();

}  // namespace sublet::apiserver
