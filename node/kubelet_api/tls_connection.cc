#include "node/kubelet_api/tls_connection.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "node/engine/poll_timeout.h"

namespace sublet::node {
namespace {

constexpr std::chrono::seconds kWriteTimeout{60};

using BioPtr = std::unique_ptr<BIO, decltype(&BIO_free)>;
using X509Ptr = std::unique_ptr<X509, decltype(&X509_free)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

BioPtr FromText(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

std::string ToText(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<std::size_t>(size));
}

std::string NameEntry(X509_NAME_ENTRY* entry) {
  unsigned char* text = nullptr;
  const int size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(entry));
  std::string out;
  if (size > 0) {
    out.assign(reinterpret_cast<char*>(text), static_cast<std::size_t>(size));
  }
  OPENSSL_free(text);
  return out;
}

PeerIdentity IdentityOf(SSL* ssl) {
  PeerIdentity peer;
  const X509Ptr certificate(SSL_get1_peer_certificate(ssl), X509_free);
  if (certificate == nullptr || SSL_get_verify_result(ssl) != X509_V_OK) {
    return peer;
  }
  peer.verified = true;
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  for (int i = 0; i < X509_NAME_entry_count(subject); ++i) {
    X509_NAME_ENTRY* entry = X509_NAME_get_entry(subject, i);
    const int kind = OBJ_obj2nid(X509_NAME_ENTRY_get_object(entry));
    if (kind == NID_commonName) {
      peer.common_name = NameEntry(entry);
    } else if (kind == NID_organizationName) {
      peer.organizations.push_back(NameEntry(entry));
    }
  }
  return peer;
}

// Any certificate is taken in the handshake; whether it counts is asked afterwards.
int AcceptAnyCertificate(int, X509_STORE_CTX*) { return 1; }

}  // namespace

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<std::unique_ptr<TlsContext>> TlsContext::Make(const std::string& certificate_pem,
                                                     const std::string& key_pem,
                                                     const std::string& client_ca_pem) {
  std::unique_ptr<TlsContext> context(new TlsContext(SSL_CTX_new(TLS_server_method())));
  SSL_CTX* raw = context->get();
  SUBLET_CHECK(raw != nullptr);
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  const BioPtr certificate_bio = FromText(certificate_pem);
  const X509Ptr certificate(PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr),
                            X509_free);
  const BioPtr key_bio = FromText(key_pem);
  const KeyPtr key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr),
                   EVP_PKEY_free);
  if (certificate == nullptr || key == nullptr ||
      SSL_CTX_use_certificate(raw, certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(raw, key.get()) != 1) {
    return BadRequest("the node's serving certificate or key cannot be read");
  }
  if (!client_ca_pem.empty()) {
    const BioPtr bio = FromText(client_ca_pem);
    int count = 0;
    while (X509* authority = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(raw), authority);
      SSL_CTX_add_client_CA(raw, authority);
      X509_free(authority);
      ++count;
    }
    ERR_clear_error();
    if (count == 0) {
      return BadRequest("the client authority's certificate cannot be read");
    }
    SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, AcceptAnyCertificate);
  }
  return context;
}

Result<std::unique_ptr<TlsConnection>> TlsConnection::Accept(const TlsContext& context, int fd,
                                                             Deadline deadline) {
  SSL* ssl = SSL_new(context.get());
  SUBLET_CHECK(ssl != nullptr);
  std::unique_ptr<TlsConnection> connection(new TlsConnection(fd, ssl));
  SSL_set_fd(ssl, fd);
  for (;;) {
    ERR_clear_error();
    const int result = SSL_accept(ssl);
    if (result == 1) {
      break;
    }
    const int error = SSL_get_error(ssl, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      return ServiceUnavailable("TLS handshake failed");
    }
    SUBLET_RETURN_IF_ERROR(
        connection->Wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline));
  }
  connection->peer_ = IdentityOf(ssl);
  return connection;
}

TlsConnection::~TlsConnection() {
  MutexLock lock(mutex_);
  SSL_free(ssl_);
  ::close(fd_);
}

Result<void> TlsConnection::Wait(short events, Deadline deadline) const {
  for (;;) {
    pollfd p{fd_, events, 0};
    const int n = ::poll(&p, 1, PollTimeout(deadline));
    if (n > 0) {
      return {};
    }
    if (n == 0) {
      return Timeout("the peer took too long");
    }
    if (errno != EINTR) {
      return ServiceUnavailable(std::strerror(errno));
    }
  }
}

Result<std::size_t> TlsConnection::Read(char* data, std::size_t bytes_max, Deadline deadline) {
  for (;;) {
    int n = 0;
    int error = 0;
    {
      MutexLock lock(mutex_);
      ERR_clear_error();
      n = SSL_read(ssl_, data, static_cast<int>(std::min<std::size_t>(bytes_max, 1 << 20)));
      error = n > 0 ? 0 : SSL_get_error(ssl_, n);
    }
    if (n > 0) {
      return static_cast<std::size_t>(n);
    }
    if (error == SSL_ERROR_ZERO_RETURN || error == SSL_ERROR_SYSCALL || error == SSL_ERROR_SSL) {
      return std::size_t{0};
    }
    SUBLET_RETURN_IF_ERROR(Wait(error == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN, deadline));
  }
}

Result<void> TlsConnection::Write(std::string_view data) {
  MutexLock whole(write_mutex_);
  while (!data.empty()) {
    int n = 0;
    int error = 0;
    {
      MutexLock lock(mutex_);
      ERR_clear_error();
      n = SSL_write(ssl_, data.data(),
                    static_cast<int>(std::min<std::size_t>(data.size(), 1 << 16)));
      error = n > 0 ? 0 : SSL_get_error(ssl_, n);
    }
    if (n > 0) {
      data.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      return ServiceUnavailable("the connection is closed");
    }
    SUBLET_RETURN_IF_ERROR(
        Wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, After(kWriteTimeout)));
  }
  return {};
}

void TlsConnection::Shutdown() {
  {
    MutexLock lock(mutex_);
    ERR_clear_error();
    SSL_shutdown(ssl_);  // tells the peer that the end is meant; what it answers is not waited for
  }
  ::shutdown(fd_, SHUT_RDWR);
}

Result<SelfSigned> MakeSelfSigned(const std::string& common_name,
                                  const std::vector<std::string>& names) {
  const KeyPtr key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const X509Ptr certificate(X509_new(), X509_free);
  if (key == nullptr || certificate == nullptr) {
    return InternalError("cannot make a key");
  }
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), RandomUint64() >> 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 10L * 365 * 86400);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate.get(), subject);
  std::string alternatives;
  for (const std::string& name : names) {
    in_addr probe{};
    const bool is_ip = ::inet_pton(AF_INET, name.c_str(), &probe) == 1;
    alternatives += (alternatives.empty() ? "" : ",") + std::string(is_ip ? "IP:" : "DNS:") + name;
  }
  const std::pair<int, std::string> extensions[] = {{NID_subject_alt_name, alternatives},
                                                    {NID_ext_key_usage, "serverAuth"}};
  for (const auto& [kind, value] : extensions) {
    if (value.empty()) {
      continue;
    }
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
    if (extension == nullptr) {
      return BadRequest("not a name for a certificate: " + value);
    }
    X509_add_ext(certificate.get(), extension, -1);
    X509_EXTENSION_free(extension);
  }
  if (X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0) {
    return InternalError("cannot sign a certificate");
  }
  const BioPtr certificate_bio(BIO_new(BIO_s_mem()), BIO_free);
  const BioPtr key_bio(BIO_new(BIO_s_mem()), BIO_free);
  PEM_write_bio_X509(certificate_bio.get(), certificate.get());
  PEM_write_bio_PrivateKey(key_bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return SelfSigned{ToText(certificate_bio.get()), ToText(key_bio.get())};
}

}  // namespace sublet::node
