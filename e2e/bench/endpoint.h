// Endpoint: one TLS connection of the load tool, either side, without blocking. It exists so that
// the same few lines carry the bytes to every server that is measured and of the ceiling's own
// server. Reads go through OpenSSL's socket BIO with read-ahead; what is written is gathered and
// leaves in large sends. Threads: one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

struct ssl_ctx_st;
struct ssl_st;
struct bio_st;

namespace sublet::bench {

struct ContextDeleter {
  void operator()(ssl_ctx_st* context) const;
};
using TlsContextPtr = std::unique_ptr<ssl_ctx_st, ContextDeleter>;

// `certificate` and `key` are PEM texts and may be empty. The server's certificate is not verified:
// the tool speaks to processes of this machine only. `read_ahead` bytes are kept per connection.
// Aborts with a message when OpenSSL cannot use a text.
TlsContextPtr MakeClientContext(const std::string& certificate, const std::string& key,
                                std::size_t read_ahead);
// A server with a certificate made on the spot (P-256, as the control plane's own).
TlsContextPtr MakeServerContext();

class Endpoint {
 public:
  enum class Outcome : std::uint8_t { kOk, kBlocked, kClosed };

  // Takes over `fd`, which must not block.
  Endpoint(ssl_ctx_st* context, int fd, bool is_server);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Outcome Handshake();
  // All that can be read now goes to `sink`, piece by piece. kBlocked = more may come later.
  Outcome Read(const std::function<void(std::string_view)>& sink);
  // Encrypts `data`; Flush sends. kBlocked: the rest waits, call Flush when the socket is writable.
  void Write(std::string_view data);
  Outcome Flush();

  bool ready() const { return ready_; }
  bool has_output() const;
  int fd() const { return fd_; }

 private:
  const int fd_;
  ssl_st* ssl_;
  bio_st* out_;
  bool ready_ = false;
};

// A connected TCP socket to 127.0.0.1 that does not block; -1 when refused.
int ConnectLocal(int port);
// A listening socket on 127.0.0.1; *port 0 = any. Aborts when there is none.
int ListenLocal(int* port);

[[noreturn]] void Fail(const std::string& text);

}  // namespace sublet::bench
