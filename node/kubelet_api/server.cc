#include "node/kubelet_api/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "node/kubelet_api/connection.h"

namespace sublet::node {
namespace {

constexpr std::size_t kHeadBytesMax = 64u << 10;
constexpr std::chrono::seconds kIdle{90};
constexpr std::chrono::seconds kHandshake{10};

}  // namespace

KubeletServer::KubeletServer(KubeletServerOptions options, PodManager& pods,
                             ContainerEngine& engine, PodNetwork& network, Access& access,
                             const Clock& clock)
    : options_(std::move(options)),
      pods_(pods),
      engine_(engine),
      network_(network),
      access_(access),
      clock_(clock) {}

KubeletServer::~KubeletServer() { Stop(); }

Result<void> KubeletServer::Start() {
  SUBLET_TRY(tls_,
             TlsContext::Make(options_.certificate_pem, options_.key_pem, options_.client_ca_pem));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(options_.port));
  if (::inet_pton(AF_INET, options_.address.c_str(), &address.sin_addr) != 1) {
    return BadRequest("not an IPv4 address to listen on: " + options_.address);
  }
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int one = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  socklen_t size = sizeof(address);
  if (listener_ < 0 ||
      ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener_, 128) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    const Status error(Reason::kConflict, "cannot listen on " + options_.address + ":" +
                                              std::to_string(options_.port) + ": " +
                                              std::strerror(errno));
    if (listener_ >= 0) {
      ::close(listener_);
      listener_ = -1;
    }
    return error;
  }
  port_ = ntohs(address.sin_port);
  accept_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "kubelet-api");
    RunAccept();
  });
  return {};
}

void KubeletServer::Stop() {
  stopping_.Cancel();
  if (accept_.joinable()) {
    accept_.join();
  }
  std::list<std::unique_ptr<Connection>> connections;
  {
    MutexLock lock(mutex_);
    connections.swap(connections_);
  }
  for (const auto& connection : connections) {
    connection->Cut();
  }
  for (const auto& connection : connections) {
    connection->thread.join();
  }
  if (listener_ >= 0) {
    ::close(listener_);
    listener_ = -1;
  }
}

void KubeletServer::RunAccept() {
  for (;;) {
    pollfd fds[2] = {{listener_, POLLIN, 0}, {stopping_.fd(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) {
      return;
    }
    if (stopping_.cancelled()) {
      return;
    }
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE) {
        ::poll(&fds[1], 1, 100);  // waits for a descriptor to become free
      }
      continue;
    }
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    MutexLock lock(mutex_);
    for (auto it = connections_.begin(); it != connections_.end();) {
      if ((*it)->done.load()) {
        (*it)->thread.join();
        it = connections_.erase(it);
      } else {
        ++it;
      }
    }
    if (connections_.size() >= kConnectionsMax) {
      log::Warn("too many connections to the kubelet API", {});
      ::close(fd);
      continue;
    }
    connections_.push_back(std::make_unique<Connection>(fd));
    Connection& connection = *connections_.back();
    connection.thread = std::thread([this, &connection] {
      ::pthread_setname_np(::pthread_self(), "kubelet-conn");
      RunConnection(connection);
      connection.done.store(true);
    });
  }
}

void KubeletServer::RunConnection(Connection& connection) {
  auto accepted = TlsConnection::Accept(*tls_, connection.TakeFd(), After(kHandshake));
  if (!accepted.ok() || !connection.Adopt(std::move(accepted).value())) {
    return;
  }
  std::string buffer;
  for (;;) {
    auto end = buffer.find("\r\n\r\n");
    while (end == std::string::npos) {
      char chunk[16384];
      auto n = connection.tls->Read(chunk, sizeof(chunk), After(kIdle));
      if (!n.ok() || *n == 0 || buffer.size() > kHeadBytesMax) {
        connection.Cut();
        return;
      }
      buffer.append(chunk, *n);
      end = buffer.find("\r\n\r\n");
    }
    auto request = ParseRequestHead(std::string_view(buffer).substr(0, end));
    buffer.erase(0, end + 4);
    if (!request.ok()) {
      connection.Answer(400, "text/plain", request.error().message(), true);
      break;
    }
    if (!Serve(connection, *request, &buffer)) {
      break;
    }
  }
  connection.Cut();
}

bool KubeletServer::Serve(Connection& connection, const KubeletRequest& request,
                          std::string* early) {
  // Bodies carry nothing this API reads; they are taken off the connection.
  while (early->size() < request.content_length) {
    char chunk[16384];
    auto n = connection.tls->Read(chunk, sizeof(chunk), After(kIdle));
    if (!n.ok() || *n == 0) {
      return false;
    }
    early->append(chunk, *n);
  }
  early->erase(0, request.content_length);
  if (request.path == "/healthz") {
    connection.Answer(200, "text/plain; charset=utf-8", "ok", !request.keep_alive);
    return request.keep_alive;
  }
  auto user = access_.Check(connection.tls->peer(), request);
  if (!user.ok()) {
    const int code = user.error().code();
    connection.Answer(code == 401 || code == 403 ? code : 500, "text/plain; charset=utf-8",
                      user.error().message(), !request.keep_alive);
    return request.keep_alive;
  }
  bool reusable = request.keep_alive;
  Dispatch(connection, request, std::move(*early), &reusable);
  early->clear();
  return reusable;
}

}  // namespace sublet::node
