// `sublet endpoint CONTEXT` (hidden): listens on the connected tenant's port of 127.0.0.1 and
// carries bytes to the tenant, straight to its pod on the embedded host, by the host's port-forward
// elsewhere. Each connection is dialled anew, so a restarted tenant pod costs nothing. Threads: the
// accept loop, and one (direct) or two (port-forward) per connection, at most kConnectionsMax
// connections; one more is closed at once.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <list>
#include <memory>
#include <thread>

#include "cli/output.h"
#include "cli/tenant/commands.h"
#include "cli/tenant/endpoint_state.h"
#include "client/websocket.h"
#include "kube/json.h"

namespace sublet::cli {
namespace {

constexpr std::size_t kConnectionsMax = 512;
constexpr int kTenantPort = 8443;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

bool WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t sent = send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    data.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// Copies both ways until both sides have ended.
void Relay(int a, int b) {
  pollfd sides[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
  char buffer[65536];
  int open_sides = 2;
  while (open_sides > 0) {
    if (poll(sides, 2, -1) < 0) {
      return;
    }
    for (int i = 0; i < 2; ++i) {
      if ((sides[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) {
        continue;
      }
      const int to = sides[1 - i].fd >= 0 ? sides[1 - i].fd : (i == 0 ? b : a);
      const ssize_t got = recv(sides[i].fd, buffer, sizeof(buffer), 0);
      if (got > 0 && WriteAll(to, {buffer, static_cast<std::size_t>(got)})) {
        continue;
      }
      shutdown(to, SHUT_WR);
      sides[i].fd = -1;  // poll skips it
      --open_sides;
      if (got < 0) {
        return;
      }
    }
  }
}

int Dial(const std::string& address, std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) {
    return -1;
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

class Endpoint {
 public:
  Endpoint(EndpointState state, HostSession host)
      : state_(std::move(state)), host_(std::move(host)) {}

  int Run() {
    const Descriptor listener(Listen());
    if (listener.get() < 0) {
      return Fail(ServiceUnavailable("cannot listen on 127.0.0.1:" + std::to_string(state_.port)));
    }
    state_.pid = getpid();
    if (const auto saved = SaveEndpoint(state_); !saved.ok()) {
      return Fail(saved.error());
    }
    while (StillWanted()) {
      pollfd waiting{listener.get(), POLLIN, 0};
      if (poll(&waiting, 1, 30000) <= 0) {
        continue;
      }
      const int fd = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {
        continue;
      }
      workers_.remove_if([](const std::unique_ptr<Worker>& worker) { return worker->done.load(); });
      if (workers_.size() >= kConnectionsMax) {
        close(fd);
        continue;
      }
      auto worker = std::make_unique<Worker>();
      worker->thread = std::jthread([this, fd, raw = worker.get()] {
        Serve(fd);
        raw->done.store(true);
      });
      workers_.push_back(std::move(worker));
    }
    // Connections that are still open end with the process.
    _exit(0);
  }

 private:
  int Listen() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(state_.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(fd, 128) != 0) {
      close(fd);
      return -1;
    }
    return fd;
  }

  // The state file is the order to run: gone or somebody else's means the end.
  bool StillWanted() const {
    const auto now = LoadEndpoint(state_.context);
    return now.ok() && now->pid == state_.pid && now->port == state_.port;
  }

  void Serve(int fd) {
    const Descriptor user(fd);
    if (host_.embedded) {
      const Descriptor tenant(DialTenant());
      if (tenant.get() >= 0) {
        Relay(user.get(), tenant.get());
      }
      return;
    }
    Forward(user.get());
  }

  // Straight to the tenant's pod: this machine routes to its own pods.
  int DialTenant() {
    auto pod =
        host_.client.Get({{"", "v1", "pods"}, state_.host_namespace, state_.tenant + "-0", ""});
    return pod.ok() ? Dial(std::string(kube::FindString(*pod, {"status", "podIP"})), kTenantPort)
                    : -1;
  }

  // One WebSocket per connection: channel 0 carries the bytes, channel 1 errors; the first message
  // of each channel is the port.
  void Forward(int user) {
    const std::string target = "/api/v1/namespaces/" + state_.host_namespace + "/pods/" +
                               state_.tenant +
                               "-0/portforward?ports=" + std::to_string(kTenantPort);
    auto socket = client::WebSocket::Open(host_.client.transport(), target, "v4.channel.k8s.io");
    if (!socket.ok()) {
      return;
    }
    client::WebSocket& remote = **socket;
    std::thread sender([&remote, user] {
      std::string message(1 + 32768, '\0');
      for (;;) {
        const ssize_t got = recv(user, message.data() + 1, message.size() - 1, 0);
        if (got <= 0 || !remote.Send({message.data(), 1 + static_cast<std::size_t>(got)}).ok()) {
          break;
        }
      }
      remote.Close();
    });
    bool port_seen[2] = {false, false};
    for (;;) {
      auto message = remote.Receive();
      if (!message.ok() || !*message || (*message)->empty()) {
        break;
      }
      const auto channel = static_cast<unsigned char>((**message)[0]);
      if (channel > 1) {
        break;
      }
      if (!port_seen[channel]) {
        port_seen[channel] = true;
        continue;
      }
      if (channel == 1 || !WriteAll(user, std::string_view(**message).substr(1))) {
        break;
      }
    }
    shutdown(user, SHUT_RDWR);
    sender.join();
  }

  struct Worker {
    std::atomic<bool> done{false};
    std::jthread thread;
  };

  EndpointState state_;
  HostSession host_;
  std::list<std::unique_ptr<Worker>> workers_;
};

}  // namespace

int RunEndpoint(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "sublet endpoint: started by sublet connect; it takes a context name\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  auto state = LoadEndpoint(argv[1]);
  if (!state.ok()) {
    return Fail(state.error());
  }
  HostFlags flags;
  flags.context = state->parent;
  auto host = OpenHost(flags);
  if (!host.ok()) {
    return Fail(host.error());
  }
  return Endpoint(std::move(*state), std::move(*host)).Run();
}

}  // namespace sublet::cli
