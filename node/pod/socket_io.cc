#include "node/pod/socket_io.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "node/engine/poll_timeout.h"

namespace sublet::node {
namespace {

SSL_CTX* ClientContext() {
  static SSL_CTX* const context = [] {
    SSL_CTX* made = SSL_CTX_new(TLS_client_method());
    SUBLET_CHECK(made != nullptr);
    SSL_CTX_set_verify(made, SSL_VERIFY_NONE, nullptr);
    return made;
  }();
  return context;
}

std::string GoError(int error) {
  std::string text = std::strerror(error);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') {
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  }
  return text;
}

Result<sockaddr_storage> Resolve(const std::string& host, int port, socklen_t* length) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_UNSPEC;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0 ||
      list == nullptr) {
    return ServiceUnavailable("dial tcp: lookup " + host + ": no such host");
  }
  sockaddr_storage address{};
  std::memcpy(&address, list->ai_addr, list->ai_addrlen);
  *length = list->ai_addrlen;
  ::freeaddrinfo(list);
  return address;
}

}  // namespace

ProbeSocket::~ProbeSocket() {
  if (ssl_ != nullptr) {
    SSL_free(ssl_);
  }
  ::close(fd_);
}

Result<std::unique_ptr<ProbeSocket>> ProbeSocket::Connect(const std::string& host, int port,
                                                          bool tls, Deadline deadline) {
  socklen_t length = 0;
  SUBLET_TRY(const sockaddr_storage address, Resolve(host, port, &length));
  const std::string where = "dial tcp " + host + ":" + std::to_string(port) + ": ";
  const int fd = ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return ServiceUnavailable(where + GoError(errno));
  }
  std::unique_ptr<ProbeSocket> socket(new ProbeSocket(fd));
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno != EINPROGRESS) {
      return ServiceUnavailable(where + "connect: " + GoError(errno));
    }
    if (!socket->Wait(POLLOUT, deadline).ok()) {
      return Timeout(where + "i/o timeout");
    }
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      return ServiceUnavailable(where + "connect: " + GoError(error));
    }
  }
  if (tls) {
    SUBLET_RETURN_IF_ERROR(socket->Handshake(host, deadline));
  }
  return socket;
}

Result<void> ProbeSocket::Handshake(const std::string& host, Deadline deadline) {
  ssl_ = SSL_new(ClientContext());
  SUBLET_CHECK(ssl_ != nullptr);
  SSL_set_fd(ssl_, fd_);
  in_addr probe{};
  if (::inet_pton(AF_INET, host.c_str(), &probe) != 1) {
    SSL_set_tlsext_host_name(ssl_, host.c_str());
  }
  for (;;) {
    ERR_clear_error();
    const int result = SSL_connect(ssl_);
    if (result == 1) {
      return {};
    }
    const int error = SSL_get_error(ssl_, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      return ServiceUnavailable("tls: handshake failed");
    }
    SUBLET_RETURN_IF_ERROR(Wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline));
  }
}

Result<void> ProbeSocket::Wait(short events, Deadline deadline) {
  for (;;) {
    pollfd p{fd_, events, 0};
    const int n = ::poll(&p, 1, PollTimeout(deadline));
    if (n > 0) {
      return {};
    }
    if (n == 0) {
      return Timeout("i/o timeout");
    }
    if (errno != EINTR) {
      return ServiceUnavailable(GoError(errno));
    }
  }
}

Result<void> ProbeSocket::Write(std::string_view data, Deadline deadline) {
  while (!data.empty()) {
    ssize_t n = 0;
    bool wants_read = false;
    if (ssl_ != nullptr) {
      ERR_clear_error();
      n = SSL_write(ssl_, data.data(),
                    static_cast<int>(std::min<std::size_t>(data.size(), 1 << 20)));
      if (n <= 0) {
        const int error = SSL_get_error(ssl_, static_cast<int>(n));
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
          return ServiceUnavailable("write: connection closed");
        }
        wants_read = error == SSL_ERROR_WANT_READ;
      }
    } else {
      n = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EINTR) {
        return ServiceUnavailable("write: " + GoError(errno));
      }
    }
    if (n > 0) {
      data.remove_prefix(static_cast<std::size_t>(n));
    } else {
      SUBLET_RETURN_IF_ERROR(Wait(wants_read ? POLLIN : POLLOUT, deadline));
    }
  }
  return {};
}

Result<std::size_t> ProbeSocket::Read(char* data, std::size_t bytes_max, Deadline deadline) {
  for (;;) {
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int n =
          SSL_read(ssl_, data, static_cast<int>(std::min<std::size_t>(bytes_max, 1 << 20)));
      if (n > 0) {
        return static_cast<std::size_t>(n);
      }
      const int error = SSL_get_error(ssl_, n);
      if (error == SSL_ERROR_ZERO_RETURN || error == SSL_ERROR_SYSCALL || error == SSL_ERROR_SSL) {
        return std::size_t{0};
      }
      SUBLET_RETURN_IF_ERROR(Wait(error == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN, deadline));
      continue;
    }
    const ssize_t n = ::recv(fd_, data, bytes_max, 0);
    if (n >= 0) {
      return static_cast<std::size_t>(n);
    }
    if (errno == EAGAIN) {
      SUBLET_RETURN_IF_ERROR(Wait(POLLIN, deadline));
    } else if (errno != EINTR) {
      return ServiceUnavailable("read: " + GoError(errno));
    }
  }
}

}  // namespace sublet::node
