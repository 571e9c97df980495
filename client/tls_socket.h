// TlsSocket: one connection, TCP or unix, TLS or plain, read and written with deadlines by blocking
// callers over a non-blocking descriptor. Private to client/http_transport.cc.
// Threads: one reader and one writer at a time (they may differ); Shutdown from any.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"

struct ssl_ctx_st;
struct ssl_st;

namespace sublet::client {

struct Endpoint {
  bool tls = false;
  bool is_unix = false;
  std::string host;  // or the socket's path
  std::string port;
  std::string prefix;  // path before every target, without the last slash
};

// Errors: BadRequest.
Result<Endpoint> ParseServer(std::string_view server);

// A TLS client configuration, shared by the connections that use it.
class TlsContext {
 public:
  // Errors: BadRequest (unreadable PEM). Empty texts: the machine's authorities, no certificate.
  static Result<std::shared_ptr<TlsContext>> Make(std::string_view ca_pem, bool insecure,
                                                  std::string_view certificate_pem,
                                                  std::string_view key_pem);
  ~TlsContext();
  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
};

class TlsSocket {
 public:
  // Connects and shakes hands. `tls_name` is checked against the server's certificate.
  // Errors: Timeout, ServiceUnavailable (the message names host and reason).
  static Result<std::unique_ptr<TlsSocket>> Connect(const Endpoint& endpoint,
                                                    std::shared_ptr<TlsContext> context,
                                                    const std::string& tls_name, Deadline deadline);
  ~TlsSocket();

  // At least one byte; 0 = the peer ended its side. Errors: Timeout, ServiceUnavailable.
  Result<std::size_t> Read(char* data, std::size_t bytes_max, Deadline deadline);
  Result<void> WriteAll(std::string_view data, Deadline deadline);
  void CloseWrite();
  // Wakes and ends a Read or Write in another thread. Idempotent.
  void Shutdown();
  // Whether bytes or the peer's end wait on an idle connection, so that it is not fit for reuse.
  bool IsStale() const;
  int fd() const { return fd_; }

 private:
  TlsSocket(int fd, std::shared_ptr<TlsContext> context) : fd_(fd), context_(std::move(context)) {}
  Result<void> Handshake(const std::string& tls_name, Deadline deadline);
  // Waits for what SSL_get_error asked for.
  Result<void> WaitFor(int ssl_error, Deadline deadline, std::string_view what);
  Result<void> WaitEvents(short events, Deadline deadline, std::string_view what) const;

  const int fd_;
  const std::shared_ptr<TlsContext> context_;
  Mutex mutex_;  // one call into OpenSSL at a time; never held while waiting
  ssl_st* ssl_ SUBLET_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace sublet::client
