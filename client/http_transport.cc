#include "client/http_transport.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/base64.h"
#include "client/http_response_parser.h"
#include "client/readable_poller.h"
#include "client/tls_socket.h"
#include "kube/status_json.h"

namespace sublet::client {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kFrameBytesMax = 64u << 20;
constexpr std::chrono::seconds kTokenFileAge{60};
constexpr std::chrono::seconds kCredentialRetry{10};
constexpr std::chrono::seconds kExpiryMargin{30};

bool IsWatch(std::string_view target) {
  return target.find("?watch=") != std::string_view::npos ||
         target.find("&watch=") != std::string_view::npos;
}

// What a request needs to be sent now: who we are, and the TLS configuration that goes with it.
struct Identity {
  std::string authorization;
  std::shared_ptr<TlsContext> tls;
  std::uint64_t generation = 0;  // connections of an older one are not reused
};

// The present credential, renewed as its source says. Threads: any.
class IdentityKeeper {
 public:
  IdentityKeeper(const HttpTransportOptions& options, bool tls)
      : options_(options), tls_(tls), credential_(options.credential) {}

  // Makes the TLS configuration of the first identity. Errors: BadRequest.
  Result<void> Init() {
    MutexLock lock(mutex_);
    return Rebuild();
  }

  Result<Identity> Get() {
    MutexLock lock(mutex_);
    const MonotonicTime now = std::chrono::steady_clock::now();
    if (!options_.token_file.empty() && now >= token_read_ + kTokenFileAge) {
      ReadTokenFile(now);
    }
    if (options_.get_credential &&
        (!asked_ || SystemClock().Now() + kExpiryMargin >= credential_.expires)) {
      SUBLET_RETURN_IF_ERROR(Renew(now));
    }
    return identity_;
  }

  // After a 401: true when there may be a better credential now.
  bool Refused(std::uint64_t generation) {
    MutexLock lock(mutex_);
    if (generation != identity_.generation) {
      return true;
    }
    const MonotonicTime now = std::chrono::steady_clock::now();
    if (!options_.token_file.empty()) {
      const std::string before = identity_.authorization;
      ReadTokenFile(now);
      return identity_.authorization != before;
    }
    if (options_.get_credential && now >= renewed_ + kCredentialRetry) {
      return Renew(now).ok();
    }
    return false;
  }

 private:
  void ReadTokenFile(MonotonicTime now) SUBLET_REQUIRES(mutex_) {
    std::ifstream file(options_.token_file);
    std::string token;
    std::getline(file, token);
    // A file that is being replaced keeps the old token.
    if (!token.empty()) {
      token_read_ = now;
      SetAuthorization("Bearer " + token);
    }
  }
  Result<void> Renew(MonotonicTime now) SUBLET_REQUIRES(mutex_) {
    renewed_ = now;
    SUBLET_TRY(credential_, options_.get_credential());
    asked_ = true;
    return Rebuild();
  }
  Result<void> Rebuild() SUBLET_REQUIRES(mutex_) {
    if (tls_) {
      SUBLET_TRY(identity_.tls, TlsContext::Make(options_.ca_pem, options_.insecure,
                                                 credential_.certificate_pem, credential_.key_pem));
    }
    ++identity_.generation;
    if (!credential_.bearer_token.empty()) {
      SetAuthorization("Bearer " + credential_.bearer_token);
    } else if (!options_.basic_user.empty()) {
      SetAuthorization("Basic " +
                       EncodeBase64(options_.basic_user + ":" + options_.basic_password));
    }
    return Ok();
  }
  void SetAuthorization(std::string value) SUBLET_REQUIRES(mutex_) {
    identity_.authorization = std::move(value);
  }

  const HttpTransportOptions& options_;
  const bool tls_;
  Mutex mutex_;
  Credential credential_ SUBLET_GUARDED_BY(mutex_);
  Identity identity_ SUBLET_GUARDED_BY(mutex_);
  bool asked_ SUBLET_GUARDED_BY(mutex_) = false;
  MonotonicTime token_read_ SUBLET_GUARDED_BY(mutex_) =
      MonotonicTime::min() + std::chrono::hours(1);
  MonotonicTime renewed_ SUBLET_GUARDED_BY(mutex_) = MonotonicTime::min() + std::chrono::hours(1);
};

struct Idle {
  std::unique_ptr<TlsSocket> socket;
  std::uint64_t generation = 0;
};

// A response whose head has been read: the connection, the parser and body bytes already there.
struct Opened {
  std::unique_ptr<TlsSocket> socket;
  std::unique_ptr<HttpResponseParser> parser;
  std::string body;
  std::string rest;  // bytes behind the response: a tunnel's first
  std::uint64_t generation = 0;
};

class HttpStream final : public Stream {
 public:
  HttpStream(Opened opened, bool lines, std::shared_ptr<ReadablePoller> poller)
      : socket_(std::move(opened.socket)),
        parser_(std::move(opened.parser)),
        buffer_(std::move(opened.body)),
        lines_(lines),
        poller_(std::move(poller)) {}

  ~HttpStream() override {
    if (poll_id_ != 0) {
      poller_->Remove(poll_id_);
    }
  }

  bool NotifyWhenReady(std::function<void()> ready) override {
    poll_id_ = poller_->Add(socket_->fd(), std::move(ready));
    return true;
  }

  Result<std::optional<Chunk>> Next(Deadline deadline) override {
    for (;;) {
      if (auto frame = TakeFrame()) {
        return std::optional<Chunk>(std::move(frame));
      }
      if (closed_.load(std::memory_order_acquire) || parser_->complete()) {
        return std::optional<Chunk>();
      }
      if (buffer_.size() > kFrameBytesMax) {
        return ServiceUnavailable("a watch event above 64 MiB");
      }
      auto filled = Fill(deadline);
      if (!filled.ok()) {
        if (closed_.load(std::memory_order_acquire)) {
          return std::optional<Chunk>();
        }
        if (filled.error().Is(Reason::kTimeout) && poll_id_ != 0) {
          poller_->Arm(poll_id_);
        }
        return std::move(filled).error();
      }
    }
  }

  void Close() override {
    closed_.store(true, std::memory_order_release);
    socket_->Shutdown();
  }

 private:
  Result<void> Fill(Deadline deadline) {
    char bytes[kReadBytes];
    SUBLET_TRY(const std::size_t count, socket_->Read(bytes, sizeof bytes, deadline));
    if (count == 0) {
      return parser_->FeedEnd();
    }
    return Feed({bytes, count});
  }
  Result<void> Feed(std::string_view bytes) {
    SUBLET_TRY(const std::size_t used, parser_->Feed(bytes, &buffer_));
    static_cast<void>(used);  // whatever follows a stream's end is not ours
    return Ok();
  }
  // nullptr: no whole frame yet.
  Chunk TakeFrame() {
    if (!lines_) {
      if (buffer_.empty()) {
        return nullptr;
      }
      auto all = std::make_shared<const std::string>(std::move(buffer_));
      buffer_.clear();
      return all;
    }
    const std::size_t end = buffer_.find('\n', std::max(start_, scanned_));
    if (end == std::string::npos) {
      buffer_.erase(0, start_);
      start_ = 0;
      scanned_ = buffer_.size();
      return nullptr;
    }
    auto line = std::make_shared<const std::string>(buffer_, start_, end - start_);
    start_ = end + 1;
    scanned_ = start_;
    return line;
  }

  const std::unique_ptr<TlsSocket> socket_;
  const std::unique_ptr<HttpResponseParser> parser_;
  std::string buffer_;
  std::size_t start_ = 0;    // of the next frame in buffer_
  std::size_t scanned_ = 0;  // no newline before here
  const bool lines_;
  const std::shared_ptr<ReadablePoller> poller_;
  std::uint64_t poll_id_ = 0;
  std::atomic<bool> closed_{false};
};

class HttpTunnel final : public Tunnel {
 public:
  explicit HttpTunnel(Opened opened)
      : socket_(std::move(opened.socket)), rest_(std::move(opened.rest)) {
    response_.code = opened.parser->code();
    response_.headers = std::move(opened.parser->headers());
  }
  Result<std::size_t> Read(char* data, std::size_t bytes_max) override {
    if (!rest_.empty()) {
      const std::size_t count = std::min(bytes_max, rest_.size());
      rest_.copy(data, count);
      rest_.erase(0, count);
      return count;
    }
    return socket_->Read(data, bytes_max, Deadline::max());
  }
  Result<void> Write(std::string_view data) override {
    return socket_->WriteAll(data, Deadline::max());
  }
  void CloseWrite() override { socket_->CloseWrite(); }
  void Close() override { socket_->Shutdown(); }
  const HttpResponse& response() const override { return response_; }

 private:
  const std::unique_ptr<TlsSocket> socket_;
  std::string rest_;  // the reader's
  HttpResponse response_;
};

class HttpTransport final : public Transport {
 public:
  HttpTransport(HttpTransportOptions options, Endpoint endpoint)
      : options_(std::move(options)),
        endpoint_(std::move(endpoint)),
        identity_(options_, endpoint_.tls) {}
  Result<void> Init() { return identity_.Init(); }

  Result<HttpResponse> RoundTrip(const HttpRequest& request) override {
    for (int attempt = 0;; ++attempt) {
      SUBLET_TRY(Opened opened, OpenRequest(request));
      const std::uint64_t generation = opened.generation;
      SUBLET_TRY(HttpResponse response, ReadAll(std::move(opened), request));
      if (response.code != 401 || attempt > 0 || !identity_.Refused(generation)) {
        return response;
      }
    }
  }

  Result<std::unique_ptr<Stream>> OpenStream(const HttpRequest& request) override {
    for (int attempt = 0;; ++attempt) {
      SUBLET_TRY(Opened opened, OpenRequest(request));
      if (opened.parser->code() >= 200 && opened.parser->code() < 300) {
        return std::unique_ptr<Stream>(
            std::make_unique<HttpStream>(std::move(opened), IsWatch(request.target), Poller()));
      }
      const std::uint64_t generation = opened.generation;
      SUBLET_TRY(const HttpResponse response, ReadAll(std::move(opened), request));
      if (response.code != 401 || attempt > 0 || !identity_.Refused(generation)) {
        return kube::StatusFromBody(response.body, response.code);
      }
    }
  }

  Result<std::unique_ptr<Tunnel>> OpenTunnel(const HttpRequest& request) override {
    SUBLET_TRY(Opened opened, OpenRequest(request));
    if (opened.parser->code() != 101) {
      SUBLET_TRY(const HttpResponse response, ReadAll(std::move(opened), request));
      return kube::StatusFromBody(response.body, response.code);
    }
    return std::unique_ptr<Tunnel>(std::make_unique<HttpTunnel>(std::move(opened)));
  }

 private:
  std::string Encode(const HttpRequest& request, const Identity& identity) const {
    std::string out;
    out.reserve(512 + request.body.size());
    out.append(request.method).append(" ").append(endpoint_.prefix).append(request.target);
    out.append(" HTTP/1.1\r\nHost: ");
    if (endpoint_.is_unix) {
      out += "localhost";
    } else {
      const bool v6 = endpoint_.host.find(':') != std::string::npos;
      out.append(v6 ? "[" : "")
          .append(endpoint_.host)
          .append(v6 ? "]:" : ":")
          .append(endpoint_.port);
    }
    out += "\r\n";
    for (const auto& [name, value] : request.headers) {
      out.append(name).append(": ").append(value).append("\r\n");
    }
    if (!identity.authorization.empty()) {
      out.append("Authorization: ").append(identity.authorization).append("\r\n");
    }
    if (!request.body.empty() || request.method == "POST" || request.method == "PUT" ||
        request.method == "PATCH") {
      out.append("Content-Length: ").append(std::to_string(request.body.size())).append("\r\n");
    }
    return out.append("\r\n").append(request.body);
  }

  std::unique_ptr<TlsSocket> TakeIdle(std::uint64_t generation) {
    for (;;) {
      Idle idle;
      {
        MutexLock lock(mutex_);
        if (idle_.empty()) {
          return nullptr;
        }
        idle = std::move(idle_.back());
        idle_.pop_back();
      }
      if (idle.generation == generation && !idle.socket->IsStale()) {
        return std::move(idle.socket);
      }
    }
  }

  void GiveBack(std::unique_ptr<TlsSocket> socket, std::uint64_t generation) {
    MutexLock lock(mutex_);
    // Above the limit the connection is simply closed.
    if (idle_.size() < static_cast<std::size_t>(options_.idle_connections_max)) {
      idle_.push_back({std::move(socket), generation});
    }
  }

  // Sends the request and reads the answer's head.
  Result<Opened> OpenRequest(const HttpRequest& request) {
    SUBLET_TRY(const Identity identity, identity_.Get());
    const std::string bytes = Encode(request, identity);
    const bool repeatable = request.method == "GET" || request.method == "HEAD";
    for (bool reuse = true;; reuse = false) {
      Opened opened;
      opened.generation = identity.generation;
      opened.socket = reuse ? TakeIdle(identity.generation) : nullptr;
      const bool reused = opened.socket != nullptr;
      if (!reused) {
        SUBLET_TRY(opened.socket,
                   TlsSocket::Connect(endpoint_, identity.tls, options_.tls_server_name,
                                      ConnectDeadline(request.deadline)));
      }
      opened.parser = std::make_unique<HttpResponseParser>(request.method != "HEAD");
      auto sent = SendAndReadHead(&opened, bytes, request.deadline);
      if (sent.ok()) {
        return opened;
      }
      // The server may have closed an idle connection as we took it. A write is not repeated: it
      // may have been done.
      if (!(reused && repeatable && sent.error().Is(Reason::kServiceUnavailable))) {
        return std::move(sent).error();
      }
    }
  }

  Deadline ConnectDeadline(Deadline deadline) const {
    return std::min(deadline, After(options_.connect_timeout));
  }

  static Result<void> SendAndReadHead(Opened* opened, const std::string& bytes, Deadline deadline) {
    SUBLET_RETURN_IF_ERROR(opened->socket->WriteAll(bytes, deadline));
    return ReadSome(opened, deadline, [&] { return opened->parser->head_done(); });
  }

  template <typename Done>
  static Result<void> ReadSome(Opened* opened, Deadline deadline, Done done) {
    char buffer[kReadBytes];
    while (!done()) {
      SUBLET_TRY(const std::size_t count, opened->socket->Read(buffer, sizeof buffer, deadline));
      if (count == 0) {
        return opened->parser->FeedEnd();
      }
      SUBLET_TRY(const std::size_t used, opened->parser->Feed({buffer, count}, &opened->body));
      opened->rest.append(buffer + used, count - used);
    }
    return Ok();
  }

  Result<HttpResponse> ReadAll(Opened opened, const HttpRequest& request) {
    SUBLET_RETURN_IF_ERROR(
        ReadSome(&opened, request.deadline, [&] { return opened.parser->complete(); }));
    HttpResponse response;
    response.code = opened.parser->code();
    response.headers = std::move(opened.parser->headers());
    response.body = std::move(opened.body);
    if (opened.parser->keep_alive() && opened.rest.empty() && response.code != 101) {
      GiveBack(std::move(opened.socket), opened.generation);
    }
    return response;
  }

  std::shared_ptr<ReadablePoller> Poller() {
    MutexLock lock(mutex_);
    if (!poller_) {
      poller_ = std::make_shared<ReadablePoller>();
    }
    return poller_;
  }

  const HttpTransportOptions options_;
  const Endpoint endpoint_;
  IdentityKeeper identity_;
  Mutex mutex_;
  std::vector<Idle> idle_ SUBLET_GUARDED_BY(mutex_);
  std::shared_ptr<ReadablePoller> poller_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::shared_ptr<Transport>> MakeHttpTransport(HttpTransportOptions options) {
  SUBLET_TRY(Endpoint endpoint, ParseServer(options.server));
  auto transport = std::make_shared<HttpTransport>(std::move(options), std::move(endpoint));
  SUBLET_RETURN_IF_ERROR(transport->Init());
  return std::shared_ptr<Transport>(std::move(transport));
}

}  // namespace sublet::client
