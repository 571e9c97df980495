// TlsContext and TlsSession: OpenSSL driven over memory, not over sockets. The connection feeds the
// bytes it received and sends what the session put into out(): many records leave in one system
// call, and an idle session holds no buffers (SSL_MODE_RELEASE_BUFFERS): about 15 KB in all.
// Used by http/connection.cc and by the raw connections behind an upgrade.
// Threads: a context any; a session one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct ssl_ctx_st;
struct ssl_st;
struct bio_st;

namespace sublet::apiserver {

// PEM texts. client_ca empty = client certificates are not asked for.
struct TlsMaterial {
  std::string certificate;  // leaf first, then its chain
  std::string key;
  std::string client_ca;
};

class TlsContext {
 public:
  // TLS 1.2 and 1.3, no tickets, ALPN http/1.1; a client certificate is asked for but not demanded.
  // Errors: BadRequest (a PEM text that OpenSSL cannot use, key does not fit the certificate).
  static Result<std::shared_ptr<TlsContext>> Make(const TlsMaterial& material);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
};

// What the client's certificate said; empty when it showed none.
struct PeerIdentity {
  std::string common_name;
  std::vector<std::string> organizations;
  std::string fingerprint;  // SHA-256 of the certificate, hexadecimal
  bool rejected = false;    // shown, but not signed by our authority or out of date
};

class TlsSession {
 public:
  enum class Outcome : std::uint8_t { kOk, kWantInput, kClosed, kFailed };

  explicit TlsSession(const TlsContext& context);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Makes `ciphertext` the input of the calls that follow. The bytes must stay until KeepRest.
  void Feed(std::string_view ciphertext);
  // Copies what the session has not read yet, so that the fed buffer may be reused.
  void KeepRest();

  Outcome Handshake();
  // Decrypts up to `bytes_max`; kOk with *bytes > 0, else nothing was read.
  Outcome Read(char* data, std::size_t bytes_max, std::size_t* bytes);
  // Encrypts all of `data` into out(). False: the session is broken.
  bool Write(std::string_view data);
  // Puts the close_notify alert into out().
  void Close();

  // True when Read may return bytes without a Feed before it.
  bool has_pending() const;
  bool handshake_done() const { return handshake_done_; }
  // Ciphertext to be sent; the caller takes bytes from it.
  std::string& out() { return out_; }
  PeerIdentity Peer() const;

  // For the BIO in tls.cc.
  int BioRead(char* data, int bytes_max);
  void BioWrite(const char* data, int bytes);
  void MarkCertificateRejected() { certificate_rejected_ = true; }

 private:
  Outcome OutcomeOf(int result);

  ssl_st* ssl_;
  bio_st* bio_;
  std::string_view input_;
  std::string rest_;
  std::string out_;
  bool handshake_done_ = false;
  bool certificate_rejected_ = false;
};

}  // namespace sublet::apiserver
