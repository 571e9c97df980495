#include "client/tls_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

namespace sublet::client {
namespace {

std::string ErrnoText(int error) {
  char buffer[128];
  return strerror_r(error, buffer, sizeof buffer);
}

std::string SslText() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  return reason != nullptr ? reason : "the connection was cut";
}

std::string WhereText(const Endpoint& endpoint) {
  return endpoint.is_unix ? endpoint.host : endpoint.host + ":" + endpoint.port;
}

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using BioPtr = std::unique_ptr<BIO, BioFree>;

BioPtr MemoryOf(std::string_view text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

bool LoadAuthorities(SSL_CTX* context, std::string_view pem) {
  const BioPtr bio = MemoryOf(pem);
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  int loaded = 0;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    loaded += X509_STORE_add_cert(store, certificate);
    X509_free(certificate);
  }
  ERR_clear_error();  // the end of the text is reported as an error
  return loaded > 0;
}

bool LoadCertificate(SSL_CTX* context, std::string_view certificate_pem, std::string_view key_pem) {
  const BioPtr certificates = MemoryOf(certificate_pem);
  X509* leaf = PEM_read_bio_X509(certificates.get(), nullptr, nullptr, nullptr);
  if (leaf == nullptr) {
    return false;
  }
  const int used = SSL_CTX_use_certificate(context, leaf);
  X509_free(leaf);
  while (X509* next = PEM_read_bio_X509(certificates.get(), nullptr, nullptr, nullptr)) {
    SSL_CTX_add0_chain_cert(context, next);  // takes it
  }
  ERR_clear_error();
  const BioPtr key_bio = MemoryOf(key_pem);
  EVP_PKEY* key = PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr);
  const bool ok = used == 1 && key != nullptr && SSL_CTX_use_PrivateKey(context, key) == 1;
  EVP_PKEY_free(key);
  return ok;
}

Result<int> StartUnix(const Endpoint& endpoint) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (endpoint.host.size() >= sizeof address.sun_path) {
    return BadRequest("the socket path is too long: " + endpoint.host);
  }
  std::memcpy(address.sun_path, endpoint.host.data(), endpoint.host.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return ServiceUnavailable("socket: " + ErrnoText(errno));
  }
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    close(fd);
    return ServiceUnavailable("dial unix " + endpoint.host + ": " + ErrnoText(error));
  }
  return fd;
}

int PollTimeout(Deadline deadline) {
  if (deadline == Deadline::max()) {
    return -1;
  }
  const Deadline now = std::chrono::steady_clock::now();
  if (deadline <= now) {
    return 0;
  }
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<std::int64_t>(milliseconds, 1 << 30));
}

// Waits until a non-blocking connect ended.
Result<void> FinishConnect(int fd, const std::string& where, Deadline deadline) {
  pollfd entry{fd, POLLOUT, 0};
  int ready = 0;
  while ((ready = poll(&entry, 1, PollTimeout(deadline))) < 0 && errno == EINTR) {
  }
  if (ready == 0) {
    return Timeout("dial tcp " + where + ": no answer in time");
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    return ServiceUnavailable("dial tcp " + where + ": " + ErrnoText(error));
  }
  return Ok();
}

Result<int> StartTcp(const Endpoint& endpoint, Deadline deadline) {
  const std::string where = WhereText(endpoint);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &hints, &found);
      code != 0) {
    return ServiceUnavailable("lookup " + endpoint.host + ": " + gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Result<int> last = ServiceUnavailable("lookup " + endpoint.host + ": no address");
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      last = ServiceUnavailable("socket: " + ErrnoText(errno));
      continue;
    }
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    const int idle = 30;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
      last = ServiceUnavailable("dial tcp " + where + ": " + ErrnoText(errno));
      close(fd);
      continue;
    }
    auto finished = FinishConnect(fd, where, deadline);
    if (finished.ok()) {
      return fd;
    }
    close(fd);
    last = std::move(finished).error();
  }
  return last;
}

}  // namespace

Result<Endpoint> ParseServer(std::string_view server) {
  Endpoint out;
  if (server.starts_with("unix:")) {
    server.remove_prefix(5);
    while (server.starts_with("//")) {
      server.remove_prefix(1);
    }
    out.is_unix = true;
    out.host = server;
    return out;
  }
  const std::string text(server);
  if (server.starts_with("https://")) {
    out.tls = true;
    server.remove_prefix(8);
  } else if (server.starts_with("http://")) {
    server.remove_prefix(7);
  } else {
    return BadRequest("the server address \"" + text +
                      "\" starts with neither https:// nor http://");
  }
  const std::size_t slash = server.find('/');
  if (slash != std::string_view::npos) {
    out.prefix = server.substr(slash);
    while (out.prefix.ends_with('/')) {
      out.prefix.pop_back();
    }
    server = server.substr(0, slash);
  }
  std::size_t colon = server.rfind(':');
  if (server.starts_with('[')) {
    const std::size_t close_bracket = server.find(']');
    if (close_bracket == std::string_view::npos) {
      return BadRequest("the server address \"" + text + "\" has no closing bracket");
    }
    out.host = server.substr(1, close_bracket - 1);
    colon = close_bracket + 1 < server.size() ? close_bracket + 1 : std::string_view::npos;
  } else {
    out.host = server.substr(0, colon);
  }
  out.port = colon == std::string_view::npos ? (out.tls ? "443" : "80")
                                             : std::string(server.substr(colon + 1));
  if (out.host.empty() || out.port.empty() ||
      out.port.find_first_not_of("0123456789") != std::string::npos) {
    return BadRequest("the server address \"" + text + "\" has no usable host and port");
  }
  return out;
}

Result<std::shared_ptr<TlsContext>> TlsContext::Make(std::string_view ca_pem, bool insecure,
                                                     std::string_view certificate_pem,
                                                     std::string_view key_pem) {
  static std::once_flag once;
  std::call_once(once, [] {
    // A peer that goes away must be an error of the write, not the end of the process.
    struct sigaction present {};
    if (sigaction(SIGPIPE, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) {
      signal(SIGPIPE, SIG_IGN);
    }
  });
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (context == nullptr) {
    return InternalError("no TLS context: " + SslText());
  }
  std::shared_ptr<TlsContext> made(new TlsContext(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Go's servers cut connections without close_notify; lengths tell truncation anyway.
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_verify(context, insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  if (ca_pem.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else if (!LoadAuthorities(context, ca_pem)) {
    return BadRequest("the certificate authority data holds no certificate");
  }
  if (!certificate_pem.empty() && !LoadCertificate(context, certificate_pem, key_pem)) {
    return BadRequest("the client certificate and its key cannot be used: " + SslText());
  }
  return made;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<std::unique_ptr<TlsSocket>> TlsSocket::Connect(const Endpoint& endpoint,
                                                      std::shared_ptr<TlsContext> context,
                                                      const std::string& tls_name,
                                                      Deadline deadline) {
  SUBLET_TRY(const int fd, endpoint.is_unix ? StartUnix(endpoint) : StartTcp(endpoint, deadline));
  std::unique_ptr<TlsSocket> connection(
      new TlsSocket(fd, endpoint.tls ? std::move(context) : nullptr));
  if (endpoint.tls) {
    if (auto done = connection->Handshake(tls_name.empty() ? endpoint.host : tls_name, deadline);
        !done.ok()) {
      return std::move(done).error().Prefixed("connect " + WhereText(endpoint));
    }
  }
  return connection;
}

Result<void> TlsSocket::Handshake(const std::string& tls_name, Deadline deadline) {
  {
    MutexLock lock(mutex_);
    ssl_ = SSL_new(context_->get());
    SSL_set_fd(ssl_, fd_);
    in6_addr ignored{};
    const bool is_address = inet_pton(AF_INET, tls_name.c_str(), &ignored) == 1 ||
                            inet_pton(AF_INET6, tls_name.c_str(), &ignored) == 1;
    if (is_address) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), tls_name.c_str());
    } else {
      SSL_set_tlsext_host_name(ssl_, tls_name.c_str());
      SSL_set1_host(ssl_, tls_name.c_str());
    }
  }
  for (;;) {
    int error = 0;
    {
      MutexLock lock(mutex_);
      ERR_clear_error();
      const int code = SSL_connect(ssl_);
      if (code == 1) {
        return Ok();
      }
      error = SSL_get_error(ssl_, code);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
        const long verified = SSL_get_verify_result(ssl_);
        return ServiceUnavailable(
            std::string("tls: ") +
            (verified != X509_V_OK ? X509_verify_cert_error_string(verified) : SslText().c_str()));
      }
    }
    SUBLET_RETURN_IF_ERROR(WaitFor(error, deadline, "tls handshake"));
  }
}

TlsSocket::~TlsSocket() {
  {
    MutexLock lock(mutex_);
    if (ssl_ != nullptr) {
      SSL_free(ssl_);
    }
  }
  close(fd_);
}

Result<void> TlsSocket::WaitEvents(short events, Deadline deadline, std::string_view what) const {
  pollfd entry{fd_, events, 0};
  for (;;) {
    const int ready = poll(&entry, 1, PollTimeout(deadline));
    if (ready > 0) {
      return Ok();
    }
    if (ready == 0) {
      return Timeout(std::string(what) + ": no answer in time");
    }
    if (errno != EINTR) {
      return ServiceUnavailable("poll: " + ErrnoText(errno));
    }
  }
}

Result<void> TlsSocket::WaitFor(int ssl_error, Deadline deadline, std::string_view what) {
  return WaitEvents(ssl_error == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN, deadline, what);
}

Result<std::size_t> TlsSocket::Read(char* data, std::size_t bytes_max, Deadline deadline) {
  for (;;) {
    int wait = SSL_ERROR_WANT_READ;
    if (context_) {
      MutexLock lock(mutex_);
      ERR_clear_error();
      std::size_t count = 0;
      const int code = SSL_read_ex(ssl_, data, bytes_max, &count);
      if (code == 1) {
        return count;
      }
      wait = SSL_get_error(ssl_, code);
      if (wait == SSL_ERROR_ZERO_RETURN) {
        return std::size_t{0};
      }
      if (wait != SSL_ERROR_WANT_READ && wait != SSL_ERROR_WANT_WRITE) {
        return ServiceUnavailable("read: " + SslText());
      }
    } else {
      const ssize_t count = recv(fd_, data, bytes_max, 0);
      if (count >= 0) {
        return static_cast<std::size_t>(count);
      }
      if (errno != EAGAIN && errno != EINTR) {
        return ServiceUnavailable("read: " + ErrnoText(errno));
      }
    }
    SUBLET_RETURN_IF_ERROR(WaitFor(wait, deadline, "read"));
  }
}

Result<void> TlsSocket::WriteAll(std::string_view data, Deadline deadline) {
  while (!data.empty()) {
    int wait = SSL_ERROR_WANT_WRITE;
    std::size_t count = 0;
    if (context_) {
      MutexLock lock(mutex_);
      ERR_clear_error();
      const int code = SSL_write_ex(ssl_, data.data(), data.size(), &count);
      if (code != 1) {
        wait = SSL_get_error(ssl_, code);
        if (wait != SSL_ERROR_WANT_READ && wait != SSL_ERROR_WANT_WRITE) {
          return ServiceUnavailable("write: " + SslText());
        }
      }
    } else {
      const ssize_t sent = send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        count = static_cast<std::size_t>(sent);
      } else if (errno != EAGAIN && errno != EINTR) {
        return ServiceUnavailable("write: " + ErrnoText(errno));
      }
    }
    data.remove_prefix(count);
    if (count == 0) {
      SUBLET_RETURN_IF_ERROR(WaitFor(wait, deadline, "write"));
    }
  }
  return Ok();
}

void TlsSocket::CloseWrite() {
  if (context_) {
    MutexLock lock(mutex_);
    SSL_shutdown(ssl_);
  } else {
    shutdown(fd_, SHUT_WR);
  }
}

void TlsSocket::Shutdown() { shutdown(fd_, SHUT_RDWR); }

bool TlsSocket::IsStale() const {
  pollfd entry{fd_, POLLIN, 0};
  return poll(&entry, 1, 0) != 0;
}

}  // namespace sublet::client
