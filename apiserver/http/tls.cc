#include "apiserver/http/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace sublet::apiserver {
namespace {

std::string LastError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  char text[256] = "unknown error";
  if (code != 0) {
    ERR_error_string_n(code, text, sizeof text);
  }
  return text;
}

TlsSession* SessionOf(BIO* bio) { return static_cast<TlsSession*>(BIO_get_data(bio)); }

int OnBioRead(BIO* bio, char* data, int bytes_max) {
  BIO_clear_retry_flags(bio);
  const int bytes = SessionOf(bio)->BioRead(data, bytes_max);
  if (bytes == 0) {
    BIO_set_retry_read(bio);
    return -1;
  }
  return bytes;
}

int OnBioWrite(BIO* bio, const char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  SessionOf(bio)->BioWrite(data, bytes);
  return bytes;
}

long OnBioControl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* Method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "memory");
    SUBLET_CHECK(made != nullptr);
    BIO_meth_set_read(made, OnBioRead);
    BIO_meth_set_write(made, OnBioWrite);
    BIO_meth_set_ctrl(made, OnBioControl);
    return made;
  }();
  return method;
}

// A bad client certificate does not end the handshake: the request is then answered with 401, as
// Kubernetes does, and a bearer token beside it still counts.
int OnVerify(int ok, X509_STORE_CTX* store) {
  if (ok == 0) {
    auto* ssl =
        static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    static_cast<TlsSession*>(SSL_get_app_data(ssl))->MarkCertificateRejected();
  }
  return 1;
}

int OnSelectProtocol(SSL*, const unsigned char** out, unsigned char* out_bytes,
                     const unsigned char* in, unsigned int in_bytes, void*) {
  static constexpr unsigned char kHttp[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_bytes, kHttp, sizeof kHttp - 1, in, in_bytes) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct X509Free {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct KeyFree {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct ContextFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using BioPtr = std::unique_ptr<BIO, BioFree>;
using X509Ptr = std::unique_ptr<X509, X509Free>;

std::vector<X509Ptr> ReadCertificates(const std::string& pem) {
  std::vector<X509Ptr> certificates;
  BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate);
  }
  ERR_clear_error();
  return certificates;
}

Result<void> UseCertificate(SSL_CTX* context, const TlsMaterial& material) {
  const auto chain = ReadCertificates(material.certificate);
  if (chain.empty()) {
    return BadRequest("the serving certificate holds no PEM certificate");
  }
  BioPtr bio(BIO_new_mem_buf(material.key.data(), static_cast<int>(material.key.size())));
  std::unique_ptr<EVP_PKEY, KeyFree> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (!key) {
    return BadRequest("the serving key cannot be read: " + LastError());
  }
  if (SSL_CTX_use_certificate(context, chain.front().get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return BadRequest("the serving certificate cannot be used: " + LastError());
  }
  for (std::size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) {
      return BadRequest("the serving certificate's chain cannot be used: " + LastError());
    }
  }
  return {};
}

Result<void> UseClientAuthorities(SSL_CTX* context, const std::string& pem) {
  const auto authorities = ReadCertificates(pem);
  if (authorities.empty()) {
    return BadRequest("the client authority holds no PEM certificate");
  }
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  for (const auto& authority : authorities) {
    X509_STORE_add_cert(store, authority.get());
    SSL_CTX_add_client_CA(context, authority.get());
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, OnVerify);
  SSL_CTX_set_purpose(context, X509_PURPOSE_SSL_CLIENT);
  return {};
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::Make(const TlsMaterial& material) {
  std::unique_ptr<SSL_CTX, ContextFree> context(SSL_CTX_new(TLS_server_method()));
  if (!context) {
    return InternalError("cannot make a TLS context: " + LastError());
  }
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                         SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // AES-128 first: half the key schedule of AES-256 and as safe here.
  SSL_CTX_set_ciphersuites(context.get(),
                           "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                           "TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_cipher_list(context.get(), "ECDHE+AESGCM:ECDHE+CHACHA20");
  SSL_CTX_set1_groups_list(context.get(), "X25519:P-256");
  SSL_CTX_set_alpn_select_cb(context.get(), OnSelectProtocol, nullptr);
  SUBLET_RETURN_IF_ERROR(UseCertificate(context.get(), material));
  if (!material.client_ca.empty()) {
    SUBLET_RETURN_IF_ERROR(UseClientAuthorities(context.get(), material.client_ca));
  }
  return std::shared_ptr<TlsContext>(new TlsContext(context.release()));
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

TlsSession::TlsSession(const TlsContext& context)
    : ssl_(SSL_new(context.get())), bio_(BIO_new(Method())) {
  SUBLET_CHECK(ssl_ != nullptr && bio_ != nullptr);
  BIO_set_data(bio_, this);
  BIO_set_init(bio_, 1);
  SSL_set_bio(ssl_, bio_, bio_);
  SSL_set_app_data(ssl_, this);
  SSL_set_accept_state(ssl_);
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

void TlsSession::Feed(std::string_view ciphertext) {
  if (rest_.empty()) {
    input_ = ciphertext;
  } else {
    rest_.append(ciphertext);
    input_ = rest_;
  }
}

void TlsSession::KeepRest() {
  if (input_.empty()) {
    if (!rest_.empty()) {
      rest_ = std::string();
    }
  } else {
    rest_ = std::string(input_);
    input_ = rest_;
  }
}

int TlsSession::BioRead(char* data, int bytes_max) {
  const std::size_t bytes = std::min(input_.size(), static_cast<std::size_t>(bytes_max));
  std::memcpy(data, input_.data(), bytes);
  input_.remove_prefix(bytes);
  return static_cast<int>(bytes);
}

void TlsSession::BioWrite(const char* data, int bytes) {
  out_.append(data, static_cast<std::size_t>(bytes));
}

TlsSession::Outcome TlsSession::OutcomeOf(int result) {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return Outcome::kWantInput;
    case SSL_ERROR_ZERO_RETURN: return Outcome::kClosed;
    default: ERR_clear_error(); return Outcome::kFailed;
  }
}

TlsSession::Outcome TlsSession::Handshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) {
    handshake_done_ = true;
    return Outcome::kOk;
  }
  return OutcomeOf(result);
}

TlsSession::Outcome TlsSession::Read(char* data, std::size_t bytes_max, std::size_t* bytes) {
  *bytes = 0;
  ERR_clear_error();
  const int result = SSL_read_ex(ssl_, data, bytes_max, bytes);
  return result == 1 ? Outcome::kOk : OutcomeOf(result);
}

bool TlsSession::has_pending() const { return !input_.empty() || SSL_has_pending(ssl_) == 1; }

bool TlsSession::Write(std::string_view data) {
  while (!data.empty()) {
    std::size_t bytes = 0;
    ERR_clear_error();
    if (SSL_write_ex(ssl_, data.data(), data.size(), &bytes) != 1) {
      ERR_clear_error();
      return false;
    }
    data.remove_prefix(bytes);
  }
  return true;
}

void TlsSession::Close() {
  if (handshake_done_) {
    ERR_clear_error();
    SSL_shutdown(ssl_);
    ERR_clear_error();
  }
}

PeerIdentity TlsSession::Peer() const {
  PeerIdentity peer;
  X509Ptr certificate(SSL_get1_peer_certificate(ssl_));
  if (!certificate) {
    return peer;
  }
  if (certificate_rejected_) {
    peer.rejected = true;
    return peer;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned digest_bytes = 0;
  X509_digest(certificate.get(), EVP_sha256(), digest, &digest_bytes);
  for (unsigned i = 0; i < digest_bytes; ++i) {
    static constexpr char kHex[] = "0123456789abcdef";
    peer.fingerprint.push_back(kHex[digest[i] >> 4]);
    peer.fingerprint.push_back(kHex[digest[i] & 0xf]);
  }
  const X509_NAME* subject = X509_get_subject_name(certificate.get());
  for (int i = 0; i < X509_NAME_entry_count(subject); ++i) {
    const X509_NAME_ENTRY* entry = X509_NAME_get_entry(subject, i);
    const int id = OBJ_obj2nid(X509_NAME_ENTRY_get_object(entry));
    unsigned char* utf8 = nullptr;
    const int bytes = ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(entry));
    if (bytes < 0) {
      continue;
    }
    std::string text(reinterpret_cast<char*>(utf8), static_cast<std::size_t>(bytes));
    OPENSSL_free(utf8);
    if (id == NID_commonName) {
      peer.common_name = std::move(text);
    } else if (id == NID_organizationName) {
      peer.organizations.push_back(std::move(text));
    }
  }
  return peer;
}

}  // namespace sublet::apiserver
