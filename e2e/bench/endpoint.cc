#include "e2e/bench/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace sublet::bench {
namespace {

constexpr std::size_t kRecordBytes = 16 * 1024;
constexpr std::size_t kSendBytes = 128 * 1024;

BIO* TextBio(const std::string& text) {
  return BIO_new_mem_buf(text.data(), static_cast<int>(text.size()));
}

}  // namespace

void Fail(const std::string& text) {
  std::fprintf(stderr, "api_load: %s\n", text.c_str());
  std::exit(1);
}

void ContextDeleter::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

TlsContextPtr MakeClientContext(const std::string& certificate, const std::string& key,
                                std::size_t read_ahead) {
  TlsContextPtr context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), read_ahead);
  if (certificate.empty()) {
    return context;
  }
  BIO* bio = TextBio(certificate);
  X509* leaf = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  bio = TextBio(key);
  EVP_PKEY* pkey = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  if (leaf == nullptr || pkey == nullptr || SSL_CTX_use_certificate(context.get(), leaf) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), pkey) != 1) {
    Fail("the kubeconfig's client certificate cannot be used");
  }
  X509_free(leaf);
  EVP_PKEY_free(pkey);
  return context;
}

TlsContextPtr MakeServerContext() {
  TlsContextPtr context(SSL_CTX_new(TLS_server_method()));
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 24 * 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("ceiling"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  if (X509_sign(certificate, key, EVP_sha256()) == 0 ||
      SSL_CTX_use_certificate(context.get(), certificate) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key) != 1) {
    Fail("cannot make a certificate");
  }
  X509_free(certificate);
  EVP_PKEY_free(key);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_read_ahead(context.get(), 1);
  return context;
}

Endpoint::Endpoint(ssl_ctx_st* context, int fd, bool is_server)
    : fd_(fd), ssl_(SSL_new(context)), out_(BIO_new(BIO_s_mem())) {
  SSL_set_bio(ssl_, BIO_new_socket(fd, BIO_NOCLOSE), out_);
  if (is_server) {
    SSL_set_accept_state(ssl_);
  } else {
    SSL_set_connect_state(ssl_);
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Endpoint::~Endpoint() {
  SSL_free(ssl_);
  ::close(fd_);
}

Endpoint::Outcome Endpoint::Handshake() {
  const int result = SSL_do_handshake(ssl_);
  if (Flush() == Outcome::kClosed) {
    return Outcome::kClosed;
  }
  if (result == 1) {
    ready_ = true;
    return Outcome::kOk;
  }
  return SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ ? Outcome::kBlocked : Outcome::kClosed;
}

Endpoint::Outcome Endpoint::Read(const std::function<void(std::string_view)>& sink) {
  static thread_local std::vector<char> buffer(kRecordBytes);
  for (;;) {
    const int got = SSL_read(ssl_, buffer.data(), static_cast<int>(buffer.size()));
    if (got <= 0) {
      return SSL_get_error(ssl_, got) == SSL_ERROR_WANT_READ ? Outcome::kBlocked : Outcome::kClosed;
    }
    sink({buffer.data(), static_cast<std::size_t>(got)});
  }
}

void Endpoint::Write(std::string_view data) {
  while (!data.empty()) {
    const auto piece = data.substr(0, kRecordBytes);
    if (SSL_write(ssl_, piece.data(), static_cast<int>(piece.size())) <= 0) {
      Fail("SSL_write refused");
    }
    data.remove_prefix(piece.size());
    if (!data.empty() && BIO_ctrl_pending(out_) >= kSendBytes) {
      Flush();
    }
  }
}

Endpoint::Outcome Endpoint::Flush() {
  char* data = nullptr;
  for (;;) {
    const long bytes = BIO_get_mem_data(out_, &data);
    if (bytes <= 0) {
      return Outcome::kOk;
    }
    const ssize_t sent = ::send(fd_, data, static_cast<std::size_t>(bytes), MSG_NOSIGNAL);
    if (sent < 0) {
      return errno == EAGAIN ? Outcome::kBlocked : Outcome::kClosed;
    }
    if (sent == bytes) {
      BIO_reset(out_);
      return Outcome::kOk;
    }
    std::vector<char> rest(data + sent, data + bytes);
    BIO_reset(out_);
    BIO_write(out_, rest.data(), static_cast<int>(rest.size()));
  }
}

bool Endpoint::has_output() const { return BIO_ctrl_pending(out_) > 0; }

int ConnectLocal(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0) {
    Fail(std::string("no socket: ") + std::strerror(errno));
  }
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    return -1;
  }
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

int ListenLocal(int* port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(*port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 2048) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    Fail("cannot listen on 127.0.0.1:" + std::to_string(*port) + ": " + std::strerror(errno));
  }
  *port = ntohs(address.sin_port);
  return fd;
}

}  // namespace sublet::bench
