#include "node/kubelet_api/port_forward.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>

#include "base/log.h"
#include "node/kubelet_api/spdy.h"
#include "node/kubelet_api/websocket.h"

namespace sublet::node {
namespace {

constexpr std::size_t kConnectionsMax = 256;
constexpr std::string_view kProtocol = "portforward.k8s.io";
constexpr std::string_view kTunnelProtocol = "SPDY/3.1+portforward.k8s.io";

bool WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return false;
    }
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

int ParsePort(std::string_view text) {
  int port = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || port > 65535) {
      return 0;
    }
    port = port * 10 + (c - '0');
  }
  return port <= 65535 ? port : 0;
}

// The forwarded connections of one client.
class Forwards {
 public:
  explicit Forwards(const ConnectPort& connect) : connect_(connect) {}
  ~Forwards() {
    for (auto& entry : threads_) {
      entry.thread.join();
    }
  }
  Forwards(const Forwards&) = delete;
  Forwards& operator=(const Forwards&) = delete;

  // Takes a stream; its pair starts when both have come. Streams pair by requestID.
  bool Add(const std::shared_ptr<SpdyStream>& stream) {
    threads_.remove_if([](Entry& entry) {
      if (!entry.done->load()) {
        return false;
      }
      entry.thread.join();
      return true;
    });
    const std::string type = stream->Header("streamtype");
    Pair& pair = pairs_[stream->Header("requestid")];
    if (type == "error") {
      pair.error = stream;
    } else if (type == "data") {
      pair.data = stream;
    } else {
      return false;
    }
    if (pair.error == nullptr || pair.data == nullptr) {
      return pairs_.size() <= kConnectionsMax;
    }
    Pair ready = std::move(pair);
    pairs_.erase(stream->Header("requestid"));
    if (threads_.size() >= kConnectionsMax) {
      ready.error->Write("too many forwarded connections");
      ready.error->Close();
      ready.data->Reset();
      return true;
    }
    auto done = std::make_shared<std::atomic<bool>>(false);
    threads_.push_back(Entry{std::thread([this, ready, done] {
                               ::pthread_setname_np(::pthread_self(), "forward");
                               Forward(ready);
                               done->store(true);
                             }),
                             done});
    return true;
  }

 private:
  struct Pair {
    std::shared_ptr<SpdyStream> error;
    std::shared_ptr<SpdyStream> data;
  };
  struct Entry {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };

  void Forward(const Pair& pair) {
    const std::string text = pair.data->Header("port");
    const int port = ParsePort(text);
    auto socket =
        port == 0 ? Result<int>(BadRequest("\"" + text + "\" is not a port")) : connect_(port);
    if (!socket.ok()) {
      pair.error->Write("error forwarding port " + text + ": " + socket.error().message());
      pair.error->Close();
      pair.data->Close();
      return;
    }
    std::thread up([&] {
      ::pthread_setname_np(::pthread_self(), "forward-up");
      for (std::string data = pair.data->Read(); !data.empty(); data = pair.data->Read()) {
        if (!WriteAll(*socket, data)) {
          break;
        }
      }
      // A client that has gone ends the connection; one that has said all may still listen.
      ::shutdown(*socket, pair.data->dead() ? SHUT_RDWR : SHUT_WR);
    });
    char chunk[32768];
    for (;;) {
      const ssize_t n = ::recv(*socket, chunk, sizeof(chunk), 0);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0 || !pair.data->Write(std::string_view(chunk, static_cast<std::size_t>(n)))) {
        break;
      }
    }
    // The server has ended the connection: the client's half has nowhere to go any more.
    pair.data->Close();
    pair.error->Close();
    ::shutdown(*socket, SHUT_RDWR);
    pair.data->Abandon();
    up.join();
    ::close(*socket);
  }

  const ConnectPort& connect_;
  std::map<std::string, Pair> pairs_;
  std::list<Entry> threads_;
};

Result<void> RunSpdy(Duplex& connection, std::string early, const ConnectPort& connect) {
  SpdySession session(connection, std::move(early));
  Forwards forwards(connect);
  return session.Run([&](std::shared_ptr<SpdyStream> stream) { return forwards.Add(stream); });
}

// The old WebSocket form: channel 2n carries the data of the nth port, 2n+1 its errors, and each
// begins with the port as two bytes, low one first.
class ChannelForward {
 public:
  ChannelForward(Duplex& connection, std::vector<int> ports)
      : connection_(connection), sockets_(ports.size(), -1), ports_(std::move(ports)) {}
  ~ChannelForward() {
    for (const int socket : sockets_) {
      if (socket >= 0) {
        ::shutdown(socket, SHUT_RDWR);
      }
    }
    for (std::thread& thread : threads_) {
      thread.join();
    }
    for (const int socket : sockets_) {
      if (socket >= 0) {
        ::close(socket);
      }
    }
  }
  ChannelForward(const ChannelForward&) = delete;
  ChannelForward& operator=(const ChannelForward&) = delete;

  void Run(const ConnectPort& connect, std::string early) {
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      const std::string number{static_cast<char>(ports_[i] & 255),
                               static_cast<char>(ports_[i] >> 8)};
      Send(2 * i, number);
      Send(2 * i + 1, number);
      auto socket = connect(ports_[i]);
      if (!socket.ok()) {
        Send(2 * i + 1, socket.error().message());
        continue;
      }
      sockets_[i] = *socket;
      threads_.emplace_back([this, i] {
        ::pthread_setname_np(::pthread_self(), "forward");
        char chunk[32768];
        for (;;) {
          const ssize_t n = ::recv(sockets_[i], chunk, sizeof(chunk), 0);
          if (n <= 0 || !Send(2 * i, std::string_view(chunk, static_cast<std::size_t>(n)))) {
            return;
          }
        }
      });
    }
    ReadWebSocketMessages(connection_, early, 4u << 20, [this](const std::string& payload) {
      const auto channel = static_cast<unsigned char>(payload[0]);
      const std::size_t index = channel / 2;
      if (channel % 2 == 0 && index < sockets_.size() && sockets_[index] >= 0) {
        WriteAll(sockets_[index], std::string_view(payload).substr(1));
      }
    });
  }

 private:
  bool Send(std::size_t channel, std::string_view data) {
    std::string payload(1, static_cast<char>(channel));
    payload += data;
    return connection_.Write(MakeWebSocketFrame(WebSocketOp::kBinary, payload)).ok();
  }

  Duplex& connection_;
  std::vector<int> sockets_;
  const std::vector<int> ports_;
  std::vector<std::thread> threads_;
};

Result<void> ServeWebSocket(Duplex& connection, const KubeletRequest& request, std::string early,
                            const ConnectPort& connect) {
  const auto offered = SplitList(request.Header("sec-websocket-protocol"));
  const auto has = [&](std::string_view name) {
    return std::find(offered.begin(), offered.end(), name) != offered.end();
  };
  if (has(kTunnelProtocol)) {
    SUBLET_RETURN_IF_ERROR(connection.Write(MakeWebSocketAccept(request, kTunnelProtocol)));
    WebSocketDuplex tunnel(connection, std::move(early));
    return RunSpdy(tunnel, "", connect);
  }
  std::string chosen;
  for (const char* name : {"v4.channel.k8s.io", "portforward.k8s.io", "channel.k8s.io"}) {
    if (chosen.empty() && has(name)) {
      chosen = name;
    }
  }
  if (chosen.empty() && !offered.empty()) {
    return BadRequest("none of the offered WebSocket subprotocols is supported");
  }
  std::vector<int> ports;
  for (const char* name : {"port", "ports"}) {
    for (const std::string& list : request.QueryAll(name)) {
      for (const std::string& text : SplitList(list)) {
        const int port = ParsePort(text);
        if (port == 0) {
          return BadRequest("\"" + text + "\" is not a port");
        }
        ports.push_back(port);
      }
    }
  }
  if (ports.empty() || ports.size() > 100) {
    return BadRequest("query parameter \"port\" is required");
  }
  SUBLET_RETURN_IF_ERROR(connection.Write(MakeWebSocketAccept(request, chosen)));
  ChannelForward forward(connection, std::move(ports));
  forward.Run(connect, std::move(early));
  return {};
}

}  // namespace

Result<void> ServePortForward(Duplex& connection, const KubeletRequest& request, std::string early,
                              const ConnectPort& connect) {
  if (IsWebSocketUpgrade(request)) {
    return ServeWebSocket(connection, request, std::move(early), connect);
  }
  const auto upgrade = SplitList(request.Header("upgrade"));
  const bool spdy = std::any_of(upgrade.begin(), upgrade.end(), [](const std::string& item) {
    return item == "SPDY/3.1" || item == "spdy/3.1";
  });
  if (!spdy) {
    return BadRequest("port-forward needs an upgrade to SPDY/3.1 or WebSocket");
  }
  SUBLET_RETURN_IF_ERROR(connection.Write(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
      "X-Stream-Protocol-Version: " +
      std::string(kProtocol) + "\r\n\r\n"));
  return RunSpdy(connection, std::move(early), connect);
}

Result<int> ConnectInNamespace(int pid, int port) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/net";
  const int netns = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (netns < 0) {
    return Status(Reason::kNotFound, "the pod's network is gone");
  }
  Result<int> result = ServiceUnavailable("not tried");
  std::thread inside([&] {
    // setns moves only this thread, which ends here; the socket keeps the namespace it was made in.
    if (::setns(netns, CLONE_NEWNET) != 0) {
      result = InternalError(std::string("entering the pod's network: ") + std::strerror(errno));
      return;
    }
    int error = 0;
    for (const int family : {AF_INET, AF_INET6}) {
      const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) {
        continue;
      }
      sockaddr_in v4{};
      v4.sin_family = AF_INET;
      v4.sin_port = htons(static_cast<std::uint16_t>(port));
      v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      sockaddr_in6 v6{};
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(static_cast<std::uint16_t>(port));
      v6.sin6_addr = in6addr_loopback;
      const auto* address = family == AF_INET ? reinterpret_cast<const sockaddr*>(&v4)
                                              : reinterpret_cast<const sockaddr*>(&v6);
      const socklen_t size = family == AF_INET ? sizeof(v4) : sizeof(v6);
      if (::connect(fd, address, size) == 0) {
        const int one = 1;
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        result = fd;
        return;
      }
      error = error == 0 ? errno : error;
      ::close(fd);
    }
    result = ServiceUnavailable("failed to connect to localhost:" + std::to_string(port) +
                                " inside the pod's network: " + std::strerror(error));
  });
  inside.join();
  ::close(netns);
  return result;
}

}  // namespace sublet::node
