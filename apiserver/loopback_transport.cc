#include "apiserver/loopback_transport.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <thread>

#include "apiserver/auth/authenticator.h"
#include "base/mutex.h"
#include "kube/status_json.h"

namespace sublet::apiserver {
namespace {

std::string LowerCase(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

client::HttpResponse HeadOf(Response& response) {
  client::HttpResponse out;
  out.code = response.code;
  out.headers = std::move(response.headers);
  out.headers.emplace_back("Content-Type", response.content_type);
  return out;
}

// What wakes a reader; outlives the stream for the sake of late wake-ups.
struct Wakeup {
  Mutex mutex;
  CondVar changed;
  bool woken SUBLET_GUARDED_BY(mutex) = false;
  bool closed SUBLET_GUARDED_BY(mutex) = false;
  bool armed SUBLET_GUARDED_BY(mutex) = false;  // Next returned Timeout: `ready` is owed
  std::function<void()> ready SUBLET_GUARDED_BY(mutex);

  void Wake(bool close) {
    std::function<void()> call;
    {
      MutexLock lock(mutex);
      woken = true;
      closed = closed || close;
      if (armed) {
        armed = false;
        call = ready;
      }
    }
    changed.NotifyAll();
    if (call) {
      call();
    }
  }
};

class LoopbackStream final : public client::Stream {
 public:
  LoopbackStream(std::unique_ptr<ByteStream> stream, bool by_line)
      : by_line_(by_line), wakeup_(std::make_shared<Wakeup>()), stream_(std::move(stream)) {
    stream_->Start([wakeup = wakeup_] { wakeup->Wake(false); });
  }
  ~LoopbackStream() override { stream_.reset(); }

  Result<std::optional<client::Chunk>> Next(Deadline deadline) override;
  std::shared_ptr<const kube::Json> TakeTree() override { return std::move(tree_); }
  void Close() override { wakeup_->Wake(true); }
  bool NotifyWhenReady(std::function<void()> ready) override {
    MutexLock lock(wakeup_->mutex);
    wakeup_->ready = std::move(ready);
    return true;
  }

 private:
  static constexpr std::size_t kPullBytes = 256 * 1024;

  ByteStream::State Pull();
  void AddLines(const Body::Piece& piece);
  // False at the deadline.
  bool WaitForWake(Deadline deadline);

  const bool by_line_;
  const std::shared_ptr<Wakeup> wakeup_;
  std::unique_ptr<ByteStream> stream_;  // null after its end
  struct Frame {
    client::Chunk bytes;
    std::shared_ptr<const kube::Json> tree;
  };
  std::deque<Frame> frames_;
  std::string partial_;  // a line whose end has not come yet
  std::shared_ptr<const kube::Json> partial_tree_;
  std::shared_ptr<const kube::Json> tree_;  // of the frame that was read last
};

void LoopbackStream::AddLines(const Body::Piece& piece) {
  std::string_view bytes = piece.bytes;
  if (piece.decoded != nullptr) {
    partial_tree_ = std::static_pointer_cast<const kube::Json>(piece.decoded);
  }
  for (;;) {
    const auto end = bytes.find('\n');
    if (end == std::string_view::npos) {
      partial_.append(bytes);
      return;
    }
    partial_.append(bytes.substr(0, end));
    if (!partial_.empty()) {
      frames_.push_back(
          {std::make_shared<const std::string>(std::move(partial_)), std::move(partial_tree_)});
    }
    partial_.clear();
    partial_tree_ = nullptr;
    bytes.remove_prefix(end + 1);
  }
}

ByteStream::State LoopbackStream::Pull() {
  std::vector<Body::Piece> pieces;
  const auto state = stream_->Pull(pieces, kPullBytes);
  if (by_line_) {
    for (const auto& piece : pieces) {
      AddLines(piece);
    }
    return state;
  }
  std::string chunk;
  for (const auto& piece : pieces) {
    chunk.append(piece.bytes);
  }
  if (!chunk.empty()) {
    frames_.push_back({std::make_shared<const std::string>(std::move(chunk)), nullptr});
  }
  return state;
}

bool LoopbackStream::WaitForWake(Deadline deadline) {
  MutexLock lock(wakeup_->mutex);
  while (!wakeup_->woken) {
    if (deadline == Deadline::max()) {
      wakeup_->changed.Wait(wakeup_->mutex);
    } else if (std::chrono::steady_clock::now() >= deadline ||
               !wakeup_->changed.WaitUntil(wakeup_->mutex, deadline)) {
      if (!wakeup_->woken) {
        wakeup_->armed = static_cast<bool>(wakeup_->ready);
        return false;
      }
    }
  }
  return true;
}

Result<std::optional<client::Chunk>> LoopbackStream::Next(Deadline deadline) {
  for (;;) {
    bool closed = false;
    {
      MutexLock lock(wakeup_->mutex);
      wakeup_->woken = false;
      closed = wakeup_->closed;
    }
    if (closed) {
      return std::optional<client::Chunk>();
    }
    if (!frames_.empty()) {
      Frame frame = std::move(frames_.front());
      frames_.pop_front();
      tree_ = std::move(frame.tree);
      return std::optional<client::Chunk>(std::move(frame.bytes));
    }
    if (!stream_) {
      return std::optional<client::Chunk>();
    }
    const auto state = Pull();
    if (state == ByteStream::State::kEnd) {
      stream_.reset();
    } else if (frames_.empty() && state == ByteStream::State::kWait && !WaitForWake(deadline)) {
      return Timeout("nothing arrived in time");
    }
  }
}

// One end of a socket pair: what the upgraded handler talks to, and what its client does.
class PairEnd final : public RawConnection {
 public:
  explicit PairEnd(int fd) : fd_(fd) {}
  ~PairEnd() override { ::close(fd_); }
  Result<std::size_t> Read(char* data, std::size_t bytes_max) override {
    for (;;) {
      const ssize_t got = ::recv(fd_, data, bytes_max, 0);
      if (got >= 0) {
        return static_cast<std::size_t>(got);
      }
      if (errno != EINTR) {
        return ServiceUnavailable("the tunnel was cut");
      }
    }
  }
  Result<void> Write(std::string_view data) override {
    while (!data.empty()) {
      const ssize_t sent = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) {
        return ServiceUnavailable("the tunnel was cut");
      }
      data.remove_prefix(sent > 0 ? static_cast<std::size_t>(sent) : 0);
    }
    return {};
  }
  void CloseWrite() override { ::shutdown(fd_, SHUT_WR); }
  void Close() override { ::shutdown(fd_, SHUT_RDWR); }

 private:
  const int fd_;
};

class LoopbackTunnel final : public client::Tunnel {
 public:
  LoopbackTunnel(client::HttpResponse response, Upgrade upgrade, int server_fd, int client_fd)
      : response_(std::move(response)), client_(client_fd), server_(server_fd) {
    thread_ = std::thread([this, run = std::move(upgrade.run)] {
      pthread_setname_np(pthread_self(), "tunnel");
      run(server_);
      server_.Close();
    });
  }
  ~LoopbackTunnel() override {
    Close();
    thread_.join();
  }
  Result<std::size_t> Read(char* data, std::size_t bytes_max) override {
    return client_.Read(data, bytes_max);
  }
  Result<void> Write(std::string_view data) override { return client_.Write(data); }
  void CloseWrite() override { client_.CloseWrite(); }
  void Close() override { client_.Close(); }
  const client::HttpResponse& response() const override { return response_; }

 private:
  const client::HttpResponse response_;
  PairEnd client_;
  PairEnd server_;
  std::thread thread_;
};

}  // namespace

struct LoopbackTransport::Answer {
  Response head;
  std::unique_ptr<ByteStream> stream;
  Upgrade upgrade;
};

// Where the one answer is put, from any thread, and waited for. A caller that gave up leaves it to
// the responder.
class LoopbackTransport::Mailbox {
 public:
  void Put(std::unique_ptr<Answer> answer) {
    {
      MutexLock lock(mutex_);
      answer_ = std::move(answer);
    }
    arrived_.NotifyAll();
  }
  std::unique_ptr<Answer> WaitUntil(Deadline deadline) {
    MutexLock lock(mutex_);
    while (!answer_) {
      if (deadline == Deadline::max()) {
        arrived_.Wait(mutex_);
      } else if (!arrived_.WaitUntil(mutex_, deadline) && !answer_) {
        return nullptr;
      }
    }
    return std::move(answer_);
  }

 private:
  Mutex mutex_;
  CondVar arrived_;
  std::unique_ptr<Answer> answer_ SUBLET_GUARDED_BY(mutex_);
};

class LoopbackTransport::LoopbackResponder final : public Responder {
 public:
  explicit LoopbackResponder(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}
  ~LoopbackResponder() override {
    if (mailbox_) {
      Response response;
      response.code = 500;
      response.body = Body("the request was dropped without an answer");
      Send(std::move(response));
    }
  }
  void Send(Response response) override { Put({std::move(response), nullptr, {}}); }
  void SendStream(Response head, std::unique_ptr<ByteStream> stream) override {
    Put({std::move(head), std::move(stream), {}});
  }
  void SendUpgrade(Response head, Upgrade upgrade) override {
    Put({std::move(head), nullptr, std::move(upgrade)});
  }

 private:
  void Put(Answer answer) {
    auto mailbox = std::move(mailbox_);
    mailbox->Put(std::make_unique<Answer>(std::move(answer)));
  }
  std::shared_ptr<Mailbox> mailbox_;
};

Result<std::unique_ptr<LoopbackTransport::Answer>> LoopbackTransport::Call(
    const client::HttpRequest& asked) {
  auto request = std::make_unique<Request>();
  const auto question = asked.target.find('?');
  request->method = asked.method;
  request->raw_path = asked.target.substr(0, question);
  request->path = DecodePath(request->raw_path);
  if (question != std::string::npos) {
    request->raw_query = asked.target.substr(question + 1);
    request->query = ParseQuery(request->raw_query);
  }
  for (const auto& [name, value] : asked.headers) {
    request->headers.emplace_back(LowerCase(name), value);
  }
  request->body = asked.body;
  request->remote_address = "loopback";
  request->loopback = true;
  request->deadline = asked.deadline;
  request->received = std::chrono::system_clock::now();
  request->user = user_;
  auto mailbox = std::make_shared<Mailbox>();
  server_.Handle(std::move(request), std::make_unique<LoopbackResponder>(mailbox));
  auto answer = mailbox->WaitUntil(asked.deadline);
  if (!answer) {
    return Timeout("the API server did not answer in time");
  }
  return answer;
}

Result<client::HttpResponse> LoopbackTransport::RoundTrip(const client::HttpRequest& request) {
  SUBLET_TRY(auto answer, Call(request));
  client::HttpResponse response = HeadOf(answer->head);
  response.body = answer->head.body.Flatten();
  if (answer->stream) {
    LoopbackStream stream(std::move(answer->stream), false);
    for (;;) {
      SUBLET_TRY(const auto chunk, stream.Next(request.deadline));
      if (!chunk) {
        break;
      }
      response.body.append(**chunk);
    }
  }
  return response;
}

Result<std::unique_ptr<client::Stream>> LoopbackTransport::OpenStream(
    const client::HttpRequest& request) {
  SUBLET_TRY(auto answer, Call(request));
  if (answer->head.code < 200 || answer->head.code > 299) {
    return kube::StatusFromBody(answer->head.body.Flatten(), answer->head.code);
  }
  if (!answer->stream) {
    return InternalError("the API server answered " + request.target + " without a stream");
  }
  const bool by_line = answer->head.content_type.starts_with("application/json");
  return std::unique_ptr<client::Stream>(
      std::make_unique<LoopbackStream>(std::move(answer->stream), by_line));
}

Result<std::unique_ptr<client::Tunnel>> LoopbackTransport::OpenTunnel(
    const client::HttpRequest& request) {
  SUBLET_TRY(auto answer, Call(request));
  if (!answer->upgrade.run) {
    return kube::StatusFromBody(answer->head.body.Flatten(), answer->head.code);
  }
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return ServiceUnavailable("no file descriptors are left for a tunnel");
  }
  return std::unique_ptr<client::Tunnel>(std::make_unique<LoopbackTunnel>(
      HeadOf(answer->head), std::move(answer->upgrade), fds[0], fds[1]));
}

std::shared_ptr<client::Transport> MakeLoopback(Handler& server, std::string user_name) {
  User user;
  user.name = std::move(user_name);
  user.groups = {std::string(kMastersGroup)};
  return std::make_shared<LoopbackTransport>(server, std::move(user));
}

}  // namespace sublet::apiserver
