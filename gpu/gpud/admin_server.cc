#include "gpu/gpud/admin_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sublet::gpu {
namespace {

constexpr std::size_t kRequestMax = 4096;
constexpr std::size_t kAnswerMax = std::size_t{16} << 20;

bool Address(const std::string& path, struct sockaddr_un* address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof address->sun_path) {
    return false;
  }
  std::memcpy(address->sun_path, path.c_str(), path.size());
  return true;
}

void SetTimeouts(int fd) {
  const struct timeval two_seconds = {2, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &two_seconds, sizeof two_seconds);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &two_seconds, sizeof two_seconds);
}

bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace

std::string_view AdminPath(std::string_view request) {
  if (!request.starts_with("GET /")) {
    return "";
  }
  request.remove_prefix(4);
  const std::size_t end = request.find_first_of(" \r\n");
  return end == std::string_view::npos ? "" : request.substr(0, end);
}

AdminServer::AdminServer(std::string path, AdminHandler handler)
    : path_(std::move(path)), handler_(std::move(handler)) {}

AdminServer::~AdminServer() { Stop(); }

Result<void> AdminServer::Start() {
  struct sockaddr_un address {};
  if (!Address(path_, &address)) {
    return BadRequest("socket path too long: " + path_);
  }
  unlink(path_.c_str());
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  stop_event_ = eventfd(0, EFD_CLOEXEC);
  const mode_t old = umask(0177);
  const bool good =
      listener_ >= 0 && stop_event_ >= 0 &&
      bind(listener_, reinterpret_cast<struct sockaddr*>(&address), sizeof address) == 0 &&
      listen(listener_, 16) == 0;
  const int error = errno;
  umask(old);
  if (!good) {
    return InternalError("cannot listen at " + path_ + ": " + std::strerror(error));
  }
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "gpud-admin");
  return Ok();
}

void AdminServer::Stop() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    if (write(stop_event_, &one, sizeof one) == static_cast<ssize_t>(sizeof one)) {
      thread_.join();
    }
    unlink(path_.c_str());
  }
  for (int* fd : {&listener_, &stop_event_}) {
    if (*fd >= 0) {
      close(*fd);
      *fd = -1;
    }
  }
}

void AdminServer::Run() {
  for (;;) {
    struct pollfd waiting[2] = {{listener_, POLLIN, 0}, {stop_event_, POLLIN, 0}};
    poll(waiting, 2, -1);
    if (waiting[1].revents != 0) {
      return;
    }
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      SetTimeouts(fd);
      Serve(fd);
      close(fd);
    }
  }
}

void AdminServer::Serve(int fd) {
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos && request.size() < kRequestMax) {
    char block[1024];
    const ssize_t got = recv(fd, block, sizeof block, 0);
    if (got <= 0) {
      break;
    }
    request.append(block, static_cast<std::size_t>(got));
  }
  const std::string_view path = AdminPath(request);
  const AdminAnswer answer =
      path.empty() ? AdminAnswer{.code = 400, .body = "only GET\n"} : handler_(path);
  SendAll(fd, "HTTP/1.0 " + std::to_string(answer.code) + (answer.code == 200 ? " OK" : " Error") +
                  "\r\nContent-Type: " + answer.type + "\r\nContent-Length: " +
                  std::to_string(answer.body.size()) + "\r\n\r\n" + answer.body);
}

Result<std::string> AdminGet(const std::string& socket_path, const std::string& path) {
  struct sockaddr_un address {};
  if (!Address(socket_path, &address)) {
    return BadRequest("socket path too long: " + socket_path);
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    if (fd >= 0) {
      close(fd);
    }
    return ServiceUnavailable("gpud does not answer at " + socket_path + ": " +
                              std::strerror(error));
  }
  SetTimeouts(fd);
  SendAll(fd, "GET " + path + " HTTP/1.0\r\n\r\n");
  std::string answer;
  char block[8192];
  for (ssize_t got = 0;
       answer.size() < kAnswerMax && (got = recv(fd, block, sizeof block, 0)) > 0;) {
    answer.append(block, static_cast<std::size_t>(got));
  }
  close(fd);
  const std::size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.0 200") || end == std::string::npos) {
    return InternalError("gpud answered: " + answer.substr(0, answer.find('\r')));
  }
  return answer.substr(end + 4);
}

}  // namespace sublet::gpu
