#include "dns/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <list>
#include <map>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/random.h"

namespace sublet::dns {
namespace {

constexpr std::size_t kForwardsMax = 512;
constexpr std::size_t kTcpMax = 64;
constexpr auto kForwardTime = std::chrono::seconds(3);
constexpr auto kTcpTime = std::chrono::seconds(10);
constexpr std::size_t kDatagramMax = 4096;

sockaddr_in Address(const std::string& text, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const auto colon = text.find(':');
  address.sin_port = htons(colon == std::string::npos
                               ? port
                               : static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1)));
  inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr);
  return address;
}

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// A client that speaks TCP: length-prefixed questions, one after the other.
struct TcpClient {
  Fd fd;
  std::string in;
  std::string out;
  MonotonicTime until;
};

// A question that waits for an upstream resolver.
struct Forward {
  std::uint16_t client_id = 0;
  sockaddr_in client{};
  TcpClient* tcp = nullptr;  // set when it came over TCP
  MonotonicTime until;
};

class ServerLoop final : public Server {
 public:
  ServerLoop(ServerOptions options, const Zone& zone) : options_(std::move(options)), zone_(zone) {}
  ~ServerLoop() override { Stop(); }

  Result<void> Open() {
    upstream_ = Fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    // Port 0 is the kernel's choice for UDP, and another program may hold its number for TCP.
    constexpr int kTries = 16;
    for (int tries = options_.port == 0 ? kTries : 1; !Bind(); --tries) {
      if (tries == 1 || errno != EADDRINUSE) {
        return BindError();
      }
    }
    thread_ = std::thread([this] { Run(); });
    return Ok();
  }

  std::uint16_t port() const override { return port_; }

  void Stop() override {
    const std::uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  // Both sockets on one port; false: errno says why.
  bool Bind() {
    udp_ = Fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    tcp_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    setsockopt(tcp_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address = Address(options_.address, options_.port);
    socklen_t size = sizeof(address);
    if (bind(udp_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(udp_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        bind(tcp_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(tcp_.get(), 64) != 0) {
      return false;
    }
    port_ = ntohs(address.sin_port);
    return true;
  }

  Status BindError() const {
    const std::string where = options_.address + ":" + std::to_string(options_.port);
    return Status(errno == EACCES ? Reason::kForbidden : Reason::kConflict,
                  "cannot listen for DNS on " + where + ": " + std::strerror(errno));
  }

  void Run() {
    for (;;) {
      std::vector<pollfd> sockets = {{wake_.get(), POLLIN, 0},
                                     {udp_.get(), POLLIN, 0},
                                     {tcp_.get(), POLLIN, 0},
                                     {upstream_.get(), POLLIN, 0}};
      for (const TcpClient& client : clients_) {
        sockets.push_back(
            {client.fd.get(), static_cast<short>(client.out.empty() ? POLLIN : POLLOUT), 0});
      }
      // Without anything to expire the thread sleeps until somebody asks.
      const bool idle = forwards_.empty() && clients_.empty();
      if (poll(sockets.data(), sockets.size(), idle ? -1 : 500) < 0 && errno != EINTR) {
        return;
      }
      if ((sockets[0].revents & POLLIN) != 0) {
        return;
      }
      if ((sockets[1].revents & POLLIN) != 0) {
        ReadUdp();
      }
      if ((sockets[3].revents & POLLIN) != 0) {
        ReadUpstream();
      }
      std::size_t index = 4;
      for (auto client = clients_.begin(); client != clients_.end() && index < sockets.size();
           ++index) {
        const bool alive = sockets[index].revents == 0 || ServeTcp(*client);
        client = alive ? std::next(client) : DropTcp(client);
      }
      if ((sockets[2].revents & POLLIN) != 0) {
        AcceptTcp();
      }
      Expire();
    }
  }

  void ReadUdp() {
    char buffer[kDatagramMax];
    for (int i = 0; i < 64; ++i) {
      sockaddr_in from{};
      socklen_t size = sizeof(from);
      const ssize_t got = recvfrom(udp_.get(), buffer, sizeof(buffer), 0,
                                   reinterpret_cast<sockaddr*>(&from), &size);
      if (got < 0) {
        return;
      }
      const std::string reply = Handle({buffer, static_cast<std::size_t>(got)}, from, nullptr);
      if (!reply.empty()) {
        sendto(udp_.get(), reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
      }
    }
  }

  // The reply, or "" when it comes later or never.
  std::string Handle(std::string_view query, const sockaddr_in& from, TcpClient* tcp) {
    const auto question = ParseQuery(query);
    if (!question.ok()) {
      return BuildError(query, Code::kFormat);
    }
    if (const auto answer = zone_.Ask(*question)) {
      return BuildReply(*question, *answer, tcp != nullptr ? 65535 : question->udp_bytes_max);
    }
    if (options_.upstreams.empty()) {
      return BuildError(query, Code::kRefused);
    }
    return StartForward(query, from, tcp) ? "" : BuildError(query, Code::kFailed);
  }

  bool StartForward(std::string_view query, const sockaddr_in& from, TcpClient* tcp) {
    if (forwards_.size() >= kForwardsMax) {
      return false;
    }
    // An id nobody can guess, so that nobody else can answer.
    std::uint16_t id = 0;
    do {
      FillRandom(&id, sizeof(id));
    } while (forwards_.contains(id));
    std::string copy(query);
    copy[0] = static_cast<char>(id >> 8);
    copy[1] = static_cast<char>(id & 0xff);
    const sockaddr_in to = Address(options_.upstreams[next_++ % options_.upstreams.size()], 53);
    if (sendto(upstream_.get(), copy.data(), copy.size(), 0, reinterpret_cast<const sockaddr*>(&to),
               sizeof(to)) < 0) {
      return false;
    }
    const auto client_id = static_cast<std::uint16_t>(static_cast<unsigned char>(query[0]) << 8 |
                                                      static_cast<unsigned char>(query[1]));
    forwards_[id] = {client_id, from, tcp, std::chrono::steady_clock::now() + kForwardTime};
    return true;
  }

  void ReadUpstream() {
    char buffer[kDatagramMax];
    for (int i = 0; i < 64; ++i) {
      sockaddr_in from{};
      socklen_t size = sizeof(from);
      const ssize_t got = recvfrom(upstream_.get(), buffer, sizeof(buffer), 0,
                                   reinterpret_cast<sockaddr*>(&from), &size);
      if (got < 0) {
        return;
      }
      if (got < 12 || !IsUpstream(from)) {
        continue;
      }
      const auto id = static_cast<std::uint16_t>(static_cast<unsigned char>(buffer[0]) << 8 |
                                                 static_cast<unsigned char>(buffer[1]));
      const auto found = forwards_.find(id);
      if (found == forwards_.end()) {
        continue;
      }
      const Forward forward = found->second;
      forwards_.erase(found);
      std::string reply(buffer, static_cast<std::size_t>(got));
      reply[0] = static_cast<char>(forward.client_id >> 8);
      reply[1] = static_cast<char>(forward.client_id & 0xff);
      if (forward.tcp != nullptr) {
        PutTcp(*forward.tcp, reply);
      } else {
        sendto(udp_.get(), reply.data(), reply.size(), 0,
               reinterpret_cast<const sockaddr*>(&forward.client), sizeof(forward.client));
      }
    }
  }

  bool IsUpstream(const sockaddr_in& from) const {
    for (const std::string& upstream : options_.upstreams) {
      const sockaddr_in known = Address(upstream, 53);
      if (known.sin_addr.s_addr == from.sin_addr.s_addr && known.sin_port == from.sin_port) {
        return true;
      }
    }
    return false;
  }

  void AcceptTcp() {
    const int fd = accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      return;
    }
    if (clients_.size() >= kTcpMax) {
      close(fd);
      return;
    }
    clients_.push_back({Fd(fd), "", "", std::chrono::steady_clock::now() + kTcpTime});
  }

  static void PutTcp(TcpClient& client, const std::string& reply) {
    client.out += static_cast<char>(reply.size() >> 8 & 0xff);
    client.out += static_cast<char>(reply.size() & 0xff);
    client.out += reply;
  }

  // False: the connection is done.
  bool ServeTcp(TcpClient& client) {
    char buffer[kDatagramMax];
    const ssize_t got = recv(client.fd.get(), buffer, sizeof(buffer), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
      return false;
    }
    if (got > 0) {
      client.in.append(buffer, static_cast<std::size_t>(got));
    }
    while (client.in.size() >= 2) {
      const std::size_t length = static_cast<std::size_t>(
          static_cast<unsigned char>(client.in[0]) << 8 | static_cast<unsigned char>(client.in[1]));
      if (length > kDatagramMax) {
        return false;
      }
      if (client.in.size() < 2 + length) {
        break;
      }
      const std::string query = client.in.substr(2, length);
      client.in.erase(0, 2 + length);
      if (const std::string reply = Handle(query, {}, &client); !reply.empty()) {
        PutTcp(client, reply);
      }
    }
    if (!client.out.empty()) {
      const ssize_t sent =
          send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) {
        return false;
      }
      if (sent > 0) {
        client.out.erase(0, static_cast<std::size_t>(sent));
      }
    }
    return true;
  }

  std::list<TcpClient>::iterator DropTcp(std::list<TcpClient>::iterator client) {
    for (auto forward = forwards_.begin(); forward != forwards_.end();) {
      forward = forward->second.tcp == &*client ? forwards_.erase(forward) : std::next(forward);
    }
    return clients_.erase(client);
  }

  void Expire() {
    const auto now = std::chrono::steady_clock::now();
    for (auto forward = forwards_.begin(); forward != forwards_.end();) {
      forward = forward->second.until < now ? forwards_.erase(forward) : std::next(forward);
    }
    for (auto client = clients_.begin(); client != clients_.end();) {
      client = client->until < now ? DropTcp(client) : std::next(client);
    }
  }

  const ServerOptions options_;
  const Zone& zone_;
  Fd udp_, tcp_, upstream_, wake_;
  std::uint16_t port_ = 0;
  std::size_t next_ = 0;  // upstreams in turn
  std::map<std::uint16_t, Forward> forwards_;
  std::list<TcpClient> clients_;
  std::thread thread_;
};

}  // namespace

std::vector<std::string> SystemResolvers(const std::string& own_address) {
  std::vector<std::string> found;
  std::ifstream file("/etc/resolv.conf");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::string value;
    words >> key >> value;
    in_addr parsed{};
    if (key == "nameserver" && value != own_address &&
        inet_pton(AF_INET, value.c_str(), &parsed) == 1) {
      found.push_back(value);
    }
  }
  return found;
}

Result<std::unique_ptr<Server>> Server::Open(const ServerOptions& options, const Zone& zone) {
  auto server = std::make_unique<ServerLoop>(options, zone);
  SUBLET_RETURN_IF_ERROR(server->Open());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace sublet::dns
