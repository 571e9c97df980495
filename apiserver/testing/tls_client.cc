#include "apiserver/testing/tls_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

namespace sublet::apiserver::testing {

struct TlsClient::Impl {
  int fd = -1;
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
  ~Impl() {
    SSL_free(ssl);
    SSL_CTX_free(context);
    if (fd >= 0) {
      ::close(fd);
    }
  }
};

namespace {

X509* ReadX509(const std::string& pem) {
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  return certificate;
}

bool UseIdentity(SSL_CTX* context, const TlsClientOptions& options) {
  X509* certificate = ReadX509(options.client_certificate);
  BIO* bio =
      BIO_new_mem_buf(options.client_key.data(), static_cast<int>(options.client_key.size()));
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  const bool ok = SSL_CTX_use_certificate(context, certificate) == 1 &&
                  SSL_CTX_use_PrivateKey(context, key) == 1;
  X509_free(certificate);
  EVP_PKEY_free(key);
  return ok;
}

std::string Lower(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

}  // namespace

TlsClient::TlsClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsClient::~TlsClient() = default;

std::unique_ptr<TlsClient> TlsClient::Connect(const TlsClientOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that the server has closed
  auto impl = std::make_unique<Impl>();
  impl->fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(impl->fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return nullptr;
  }
  impl->context = SSL_CTX_new(TLS_client_method());
  if (!options.authority.empty()) {
    X509* authority = ReadX509(options.authority);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(impl->context), authority);
    X509_free(authority);
    SSL_CTX_set_verify(impl->context, SSL_VERIFY_PEER, nullptr);
  }
  if (!options.client_certificate.empty() && !UseIdentity(impl->context, options)) {
    return nullptr;
  }
  impl->ssl = SSL_new(impl->context);
  SSL_set_fd(impl->ssl, impl->fd);
  SSL_set1_host(impl->ssl, "localhost");
  SSL_set_tlsext_host_name(impl->ssl, "localhost");
  if (SSL_connect(impl->ssl) != 1) {
    ERR_clear_error();
    return nullptr;
  }
  return std::unique_ptr<TlsClient>(new TlsClient(std::move(impl)));
}

bool TlsClient::Send(std::string_view bytes) {
  std::size_t written = 0;
  ERR_clear_error();
  return bytes.empty() || SSL_write_ex(impl_->ssl, bytes.data(), bytes.size(), &written) == 1;
}

std::string TlsClient::Receive(int timeout_ms) {
  if (SSL_pending(impl_->ssl) == 0) {
    pollfd wait{impl_->fd, POLLIN, 0};
    if (::poll(&wait, 1, timeout_ms) <= 0) {
      return "";
    }
  }
  char data[65536];
  std::size_t bytes = 0;
  ERR_clear_error();
  return SSL_read_ex(impl_->ssl, data, sizeof data, &bytes) == 1 ? std::string(data, bytes) : "";
}

bool TlsClient::Fill() {
  const std::string more = Receive();
  buffer_ += more;
  return !more.empty();
}

ClientResponse TlsClient::ReadHead() {
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!Fill()) {
      return {};
    }
  }
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  ClientResponse response;
  response.code = std::atoi(head.c_str() + std::string_view("HTTP/1.1 ").size());
  for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
    const auto line_end = head.find("\r\n", at);
    const auto colon = head.find(": ", at);
    response.headers[Lower(head.substr(at, colon - at))] =
        head.substr(colon + 2, line_end - colon - 2);
    at = line_end + 2;
  }
  return response;
}

std::string TlsClient::ReadChunk() {
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!Fill()) {
      return "";
    }
  }
  const std::size_t size = std::stoul(buffer_.substr(0, end), nullptr, 16);
  while (buffer_.size() < end + 2 + size + 2) {
    if (!Fill()) {
      return "";
    }
  }
  std::string chunk = buffer_.substr(end + 2, size);
  buffer_.erase(0, end + 2 + size + 2);
  return chunk;
}

ClientResponse TlsClient::ReadResponse(bool is_head) {
  ClientResponse response = ReadHead();
  if (is_head || response.code < 200 || response.code == 204 || response.code == 304) {
    return response;
  }
  if (response.headers.contains("transfer-encoding")) {
    for (std::string chunk; !(chunk = ReadChunk()).empty();) {
      response.body += chunk;
    }
    return response;
  }
  const std::size_t length = std::stoul("0" + response.headers["content-length"]);
  while (buffer_.size() < length && Fill()) {
  }
  response.body = buffer_.substr(0, length);
  buffer_.erase(0, length);
  return response;
}

ClientResponse TlsClient::Call(std::string_view method, std::string_view path,
                               std::string_view headers, std::string_view body) {
  std::string request;
  request.append(method).append(" ").append(path).append(" HTTP/1.1\r\nHost: localhost\r\n");
  request.append(headers);
  if (!body.empty()) {
    request.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  }
  request.append("\r\n").append(body);
  if (!Send(request)) {
    return {};
  }
  return ReadResponse(method == "HEAD");
}

void TlsClient::Close() {
  SSL_shutdown(impl_->ssl);
  ::shutdown(impl_->fd, SHUT_RDWR);
}

}  // namespace sublet::apiserver::testing
