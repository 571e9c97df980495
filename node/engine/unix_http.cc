#include "node/engine/unix_http.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "node/engine/poll_timeout.h"

namespace sublet::node {
namespace {

constexpr std::size_t kHeadBytesMax = 64u << 10;
constexpr std::size_t kBodyBytesMax = 64u << 20;

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return out;
}

// One connection. The socket is non-blocking; every wait is a poll with the deadline and the
// canceller.
class Connection {
 public:
  Connection(int fd, Canceller* cancel) : fd_(fd), cancel_(cancel) {}
  // A second reason to give up.
  void AlsoCancelledBy(Canceller* cancel) { other_cancel_ = cancel; }
  ~Connection() { ::close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  static Result<std::unique_ptr<Connection>> Dial(const std::string& path, Deadline deadline,
                                                  Canceller* cancel) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
      return BadRequest("engine socket path is too long: " + path);
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
      return ServiceUnavailable(std::string("socket: ") + std::strerror(errno));
    }
    auto connection = std::make_unique<Connection>(fd, cancel);
    while (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno != EAGAIN) {
        return ServiceUnavailable("container engine at " + path + ": " + std::strerror(errno));
      }
      // The listen queue is full; there is nothing to poll on, so wait a moment on the canceller.
      if (std::chrono::steady_clock::now() >= deadline) {
        return Timeout("container engine at " + path + " does not accept connections");
      }
      pollfd p{cancel != nullptr ? cancel->fd() : -1, POLLIN, 0};
      if (::poll(&p, 1, 10) > 0) {
        return Timeout("cancelled");
      }
    }
    return connection;
  }

  Result<void> Wait(short events, Deadline deadline) {
    std::array<pollfd, 3> fds{
        pollfd{fd_, events, 0}, pollfd{cancel_ != nullptr ? cancel_->fd() : -1, POLLIN, 0},
        pollfd{other_cancel_ != nullptr ? other_cancel_->fd() : -1, POLLIN, 0}};
    for (;;) {
      const int n = ::poll(fds.data(), fds.size(), PollTimeout(deadline));
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n == 0) {
        return Timeout("the container engine did not answer in time");
      }
      if (fds[1].revents != 0 || fds[2].revents != 0) {
        return Timeout("cancelled");
      }
      return {};
    }
  }

  Result<void> WriteAll(std::string_view data, Deadline deadline) {
    while (!data.empty()) {
      const ssize_t n = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (n > 0) {
        data.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        SUBLET_RETURN_IF_ERROR(Wait(POLLOUT, deadline));
      } else if (errno != EINTR) {
        return ServiceUnavailable(std::string("container engine: ") + std::strerror(errno));
      }
    }
    return {};
  }

  // 0 at the end of the stream.
  Result<std::size_t> ReadSome(char* data, std::size_t bytes_max, Deadline deadline) {
    for (;;) {
      const ssize_t n = ::recv(fd_, data, bytes_max, 0);
      if (n >= 0) {
        return static_cast<std::size_t>(n);
      }
      if (errno == EAGAIN) {
        SUBLET_RETURN_IF_ERROR(Wait(POLLIN, deadline));
      } else if (errno == ECONNRESET) {
        return ServiceUnavailable("container engine: connection reset");
      } else if (errno != EINTR) {
        return ServiceUnavailable(std::string("container engine: ") + std::strerror(errno));
      }
    }
  }

  // Reads the head; what came behind it is left in buffer().
  Result<EngineResponse> ReadHead(Deadline deadline) {
    for (;;) {
      const auto end = buffer_.find("\r\n\r\n");
      if (end != std::string::npos) {
        auto head = ParseResponseHead(std::string_view(buffer_).substr(0, end));
        buffer_.erase(0, end + 4);
        return head;
      }
      if (buffer_.size() > kHeadBytesMax) {
        return BadRequest("container engine: response head too large");
      }
      char chunk[16384];
      SUBLET_TRY(const std::size_t n, ReadSome(chunk, sizeof(chunk), deadline));
      if (n == 0) {
        return ServiceUnavailable("container engine closed the connection");
      }
      buffer_.append(chunk, n);
    }
  }

  std::string& buffer() { return buffer_; }
  int fd() const { return fd_; }

 private:
  int fd_;
  Canceller* cancel_;
  Canceller* other_cancel_ = nullptr;
  std::string buffer_;
};

class BodyStream final : public EngineStream {
 public:
  BodyStream(std::unique_ptr<Connection> connection, const EngineResponse& head)
      : connection_(std::move(connection)) {
    chunked_ = Lower(head.Header("transfer-encoding")) == "chunked";
    const std::string_view length = head.Header("content-length");
    if (!chunked_ && !length.empty()) {
      bounded_ = true;
      left_ = std::strtoull(std::string(length).c_str(), nullptr, 10);
    }
    if (head.code == 204 || head.code == 304) {
      bounded_ = true;
      left_ = 0;
    }
  }

  Result<bool> Read(std::string* out, Deadline deadline) override {
    const std::size_t before = out->size();
    for (;;) {
      if ((bounded_ && left_ == 0) || (chunked_ && decoder_.done())) {
        return out->size() > before;
      }
      std::string& buffer = connection_->buffer();
      if (buffer.empty()) {
        buffer.resize(32768);
        auto n = connection_->ReadSome(buffer.data(), buffer.size(), deadline);
        buffer.resize(n.ok() ? *n : 0);
        if (!n.ok()) {
          return std::move(n).error();
        }
        if (*n == 0) {
          if (bounded_ || chunked_) {
            return ServiceUnavailable("container engine closed the connection in mid-body");
          }
          return false;
        }
      }
      SUBLET_RETURN_IF_ERROR(Take(&buffer, out));
      if (out->size() > before) {
        return true;
      }
    }
  }

 private:
  Result<void> Take(std::string* buffer, std::string* out) {
    if (chunked_) {
      SUBLET_RETURN_IF_ERROR(decoder_.Feed(*buffer, out));
    } else if (bounded_) {
      const std::size_t n = std::min<std::uint64_t>(left_, buffer->size());
      out->append(*buffer, 0, n);
      left_ -= n;
    } else {
      out->append(*buffer);
    }
    buffer->clear();
    return {};
  }

  std::unique_ptr<Connection> connection_;
  ChunkDecoder decoder_;
  bool chunked_ = false;
  bool bounded_ = false;
  std::uint64_t left_ = 0;
};

class RawHijack final : public Hijack {
 public:
  explicit RawHijack(std::unique_ptr<Connection> connection, std::unique_ptr<Canceller> cancel)
      : cancel_(std::move(cancel)), connection_(std::move(connection)) {}

  Result<std::size_t> Read(char* data, std::size_t bytes_max, Deadline deadline) override {
    std::string& buffer = connection_->buffer();
    if (!buffer.empty()) {
      const std::size_t n = std::min(bytes_max, buffer.size());
      std::memcpy(data, buffer.data(), n);
      buffer.erase(0, n);
      return n;
    }
    return connection_->ReadSome(data, bytes_max, deadline);
  }
  Result<void> Write(std::string_view data) override {
    return connection_->WriteAll(data, Deadline::max());
  }
  void CloseWrite() override { ::shutdown(connection_->fd(), SHUT_WR); }
  void Cancel() override { cancel_->Cancel(); }

 private:
  std::unique_ptr<Canceller> cancel_;
  std::unique_ptr<Connection> connection_;
};

Result<void> SendFile(Connection& connection, int file, Deadline deadline) {
  std::string chunk(256 << 10, '\0');
  for (;;) {
    const ssize_t n = ::read(file, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return InternalError(std::string("reading the upload: ") + std::strerror(errno));
    }
    if (n == 0) {
      return {};
    }
    SUBLET_RETURN_IF_ERROR(
        connection.WriteAll(std::string_view(chunk.data(), static_cast<std::size_t>(n)), deadline));
  }
}

Result<void> SendRequest(Connection& connection, const EngineRequest& request, bool upgrade) {
  std::string head = request.method + " " + request.target + " HTTP/1.1\r\nHost: engine\r\n";
  if (upgrade) {
    head += "Connection: Upgrade\r\nUpgrade: tcp\r\n";
  } else {
    head += "Connection: close\r\n";
  }
  for (const auto& [name, value] : request.headers) {
    head += name + ": " + value + "\r\n";
  }
  std::uint64_t length = request.body.size();
  if (request.body_fd >= 0) {
    struct stat info {};
    const off_t at = ::lseek(request.body_fd, 0, SEEK_CUR);
    if (::fstat(request.body_fd, &info) != 0 || at < 0) {
      return InternalError("the upload is not a file");
    }
    length = static_cast<std::uint64_t>(info.st_size - at);
  }
  if (length > 0) {
    head += "Content-Type: " + request.content_type + "\r\n";
  }
  head += "Content-Length: " + std::to_string(length) + "\r\n\r\n";
  SUBLET_RETURN_IF_ERROR(connection.WriteAll(head + request.body, request.deadline));
  if (request.body_fd >= 0) {
    return SendFile(connection, request.body_fd, request.deadline);
  }
  return {};
}

Result<std::string> ReadBody(std::unique_ptr<Connection> connection, const EngineResponse& head,
                             Deadline deadline) {
  BodyStream stream(std::move(connection), head);
  std::string body;
  for (;;) {
    SUBLET_TRY(const bool more, stream.Read(&body, deadline));
    if (!more) {
      return body;
    }
    if (body.size() > kBodyBytesMax) {
      return Status(Reason::kRequestEntityTooLarge, "container engine: answer too large");
    }
  }
}

}  // namespace

std::string_view EngineResponse::Header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) {
      return value;
    }
  }
  return {};
}

Result<EngineResponse> ParseResponseHead(std::string_view text) {
  EngineResponse response;
  std::size_t at = text.find("\r\n");
  const std::string_view line = text.substr(0, at);
  if (line.size() < 12 || line.substr(0, 7) != "HTTP/1." || line[8] != ' ') {
    return BadRequest("container engine: not an HTTP/1 answer");
  }
  for (const char c : line.substr(9, 3)) {
    if (c < '0' || c > '9') {
      return BadRequest("container engine: bad status code");
    }
    response.code = response.code * 10 + (c - '0');
  }
  while (at != std::string_view::npos) {
    text.remove_prefix(at + 2);
    at = text.find("\r\n");
    const std::string_view field = text.substr(0, at);
    const auto colon = field.find(':');
    if (colon == std::string_view::npos) {
      continue;
    }
    std::string_view value = field.substr(colon + 1);
    while (!value.empty() && value.front() == ' ') {
      value.remove_prefix(1);
    }
    response.headers.emplace_back(Lower(field.substr(0, colon)), std::string(value));
  }
  return response;
}

Result<void> ChunkDecoder::Feed(std::string_view input, std::string* out) {
  while (!input.empty() && state_ != State::kDone) {
    if (state_ == State::kData) {
      const std::size_t n = std::min<std::uint64_t>(left_, input.size());
      out->append(input.data(), n);
      input.remove_prefix(n);
      left_ -= n;
      if (left_ == 0) {
        state_ = State::kDataEnd;
      }
      continue;
    }
    const char c = input.front();
    input.remove_prefix(1);
    if (state_ == State::kSize && c != '\r' && c != '\n' && c != ';') {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0 || ++digits_ > 15) {
        return BadRequest("container engine: bad chunk size");
      }
      left_ = left_ * 16 + static_cast<std::uint64_t>(digit);
    } else if (state_ == State::kSize && c == ';') {
      state_ = State::kExtension;
    } else if ((state_ == State::kSize || state_ == State::kExtension) && c == '\n') {
      if (digits_ == 0) {
        return BadRequest("container engine: empty chunk size");
      }
      digits_ = 0;
      trailer_line_ = 0;
      state_ = left_ == 0 ? State::kTrailer : State::kData;
    } else if (state_ == State::kDataEnd && c == '\n') {
      state_ = State::kSize;
    } else if (state_ == State::kDataEnd && c != '\r') {
      return BadRequest("container engine: chunk longer than its size");
    } else if (state_ == State::kTrailer && c == '\n') {
      if (trailer_line_ == 0) {
        state_ = State::kDone;
      }
      trailer_line_ = 0;
    } else if (state_ == State::kTrailer && c != '\r') {
      ++trailer_line_;
    }
  }
  return {};
}

Canceller::Canceller() : fd_(::eventfd(0, EFD_CLOEXEC)) { SUBLET_CHECK(fd_ >= 0); }
Canceller::~Canceller() { ::close(fd_); }
void Canceller::Cancel() {
  cancelled_.store(true);
  const std::uint64_t one = 1;
  // The counter can only fail to take the value when it is already huge, and then it is readable.
  [[maybe_unused]] const ssize_t n = ::write(fd_, &one, sizeof(one));
}

Result<EngineResponse> UnixHttp::Call(const EngineRequest& request, Canceller* cancel) const {
  SUBLET_TRY(auto connection, Connection::Dial(socket_path_, request.deadline, cancel));
  SUBLET_RETURN_IF_ERROR(SendRequest(*connection, request, false));
  SUBLET_TRY(EngineResponse head, connection->ReadHead(request.deadline));
  if (request.method != "HEAD") {
    SUBLET_TRY(head.body, ReadBody(std::move(connection), head, request.deadline));
  }
  return head;
}

Result<std::unique_ptr<EngineStream>> UnixHttp::OpenStream(const EngineRequest& request,
                                                           EngineResponse* head,
                                                           Canceller* cancel) const {
  SUBLET_TRY(auto connection, Connection::Dial(socket_path_, request.deadline, cancel));
  SUBLET_RETURN_IF_ERROR(SendRequest(*connection, request, false));
  SUBLET_TRY(*head, connection->ReadHead(request.deadline));
  if (head->code < 200 || head->code > 299) {
    SUBLET_TRY(head->body, ReadBody(std::move(connection), *head, request.deadline));
    return std::unique_ptr<EngineStream>();
  }
  return std::unique_ptr<EngineStream>(std::make_unique<BodyStream>(std::move(connection), *head));
}

Result<std::unique_ptr<Hijack>> UnixHttp::OpenHijack(const EngineRequest& request,
                                                     EngineResponse* head,
                                                     Canceller* other_cancel) const {
  auto cancel = std::make_unique<Canceller>();
  SUBLET_TRY(auto connection, Connection::Dial(socket_path_, request.deadline, cancel.get()));
  connection->AlsoCancelledBy(other_cancel);
  SUBLET_RETURN_IF_ERROR(SendRequest(*connection, request, true));
  SUBLET_TRY(*head, connection->ReadHead(request.deadline));
  // Docker and Podman also answer 200 with a raw body to a client that forgot the upgrade headers.
  if (head->code != 101 && head->code != 200) {
    SUBLET_TRY(head->body, ReadBody(std::move(connection), *head, request.deadline));
    return std::unique_ptr<Hijack>();
  }
  return std::unique_ptr<Hijack>(
      std::make_unique<RawHijack>(std::move(connection), std::move(cancel)));
}

}  // namespace sublet::node
