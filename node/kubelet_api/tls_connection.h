// TLS on the server's side: the context (own certificate, authority of clients) and a connection
// that one thread reads while another writes. Used by server.cc. Source: OpenSSL 3.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "node/kubelet_api/duplex.h"

struct ssl_ctx_st;
struct ssl_st;

namespace sublet::node {

struct PeerIdentity {
  bool verified = false;  // a certificate that the client authority has signed
  std::string common_name;
  std::vector<std::string> organizations;
};

class TlsContext {
 public:
  // `client_ca_pem` may be "": then no certificate is asked for.
  // Errors: BadRequest (unreadable PEM).
  static Result<std::unique_ptr<TlsContext>> Make(const std::string& certificate_pem,
                                                  const std::string& key_pem,
                                                  const std::string& client_ca_pem);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
};

class TlsConnection final : public Duplex {
 public:
  // Takes the socket over and does the handshake. Errors: ServiceUnavailable, Timeout.
  static Result<std::unique_ptr<TlsConnection>> Accept(const TlsContext& context, int fd,
                                                       Deadline deadline);
  ~TlsConnection() override;

  Result<std::size_t> Read(char* data, std::size_t bytes_max, Deadline deadline) override;
  Result<void> Write(std::string_view data) override;
  void Shutdown() override;

  const PeerIdentity& peer() const { return peer_; }
  int fd() const { return fd_; }

 private:
  TlsConnection(int fd, ssl_st* ssl) : fd_(fd), ssl_(ssl) {}
  Result<void> Wait(short events, Deadline deadline) const;

  const int fd_;
  PeerIdentity peer_;
  Mutex write_mutex_;  // one message at a time; taken before mutex_
  Mutex mutex_;        // OpenSSL's state
  ssl_st* ssl_ SUBLET_GUARDED_BY(mutex_);
};

// A key and a self-signed certificate for `names` (IP addresses and host names), good for ten
// years.
struct SelfSigned {
  std::string certificate_pem;
  std::string key_pem;
};
Result<SelfSigned> MakeSelfSigned(const std::string& common_name,
                                  const std::vector<std::string>& names);

}  // namespace sublet::node
