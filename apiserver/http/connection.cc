#include "apiserver/http/connection.h"

#include <sys/socket.h>

#include "apiserver/http/response_head.h"
#include "apiserver/status_response.h"
#include "base/check.h"

namespace sublet::apiserver {
namespace {

constexpr std::size_t kLingerBytesMax = 16u << 20;

class HttpResponder final : public Responder {
 public:
  HttpResponder(std::shared_ptr<Connection> connection, std::uint64_t request)
      : connection_(std::move(connection)), request_(request) {}
  ~HttpResponder() override {
    if (connection_) {
      Send(StatusResponse(InternalError("the request was dropped without an answer")));
    }
  }
  void Send(Response response) override {
    auto answer = std::make_unique<Answer>();
    answer->head = std::move(response);
    Deliver(std::move(answer));
  }
  void SendStream(Response head, std::unique_ptr<ByteStream> stream) override {
    auto answer = std::make_unique<Answer>();
    answer->head = std::move(head);
    answer->stream = std::move(stream);
    Deliver(std::move(answer));
  }
  void SendUpgrade(Response head, Upgrade upgrade) override {
    auto answer = std::make_unique<Answer>();
    answer->head = std::move(head);
    answer->upgrade = std::move(upgrade);
    Deliver(std::move(answer));
  }
  void AnswerBy(Deadline deadline) override { connection_->SetAnswerDeadline(deadline); }

 private:
  void Deliver(std::unique_ptr<Answer> answer) {
    SUBLET_CHECK(connection_ != nullptr);
    auto connection = std::move(connection_);
    connection->DeliverAnswer(request_, std::move(answer));
  }

  std::shared_ptr<Connection> connection_;
  const std::uint64_t request_;
};

}  // namespace

Connection::Connection(std::shared_ptr<IoThread> io, boost::asio::ip::tcp::socket socket,
                       std::string remote_address)
    : io_(std::move(io)),
      shared_(*io_->shared()),
      socket_(std::move(socket)),
      remote_address_(std::move(remote_address)),
      tls_(std::make_unique<TlsSession>(*shared_.tls.Load())),
      parser_(shared_.options.parser) {}

Connection::~Connection() = default;

void Connection::Start() {
  boost::system::error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  Touch(shared_.options.handshake_timeout);
  WaitReadable();
}

void Connection::Touch(std::chrono::milliseconds timeout) {
  deadline_ = std::chrono::steady_clock::now() + timeout;
  io_->ArmTick();
}

void Connection::WaitReadable() {
  if (reading_ || state_ == State::kShut) {
    return;
  }
  reading_ = true;
  socket_.async_wait(boost::asio::socket_base::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->reading_ = false;
                       if (!error && self->state_ != State::kShut) {
                         self->OnReadable();
                       }
                     });
}

void Connection::WaitWritable() {
  if (writing_ || state_ == State::kShut) {
    return;
  }
  writing_ = true;
  socket_.async_wait(boost::asio::socket_base::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->writing_ = false;
                       if (!error && self->state_ != State::kShut) {
                         self->Pump();
                       }
                     });
}

void Connection::OnReadable() {
  auto& buffer = io_->read_buffer();
  const ssize_t got = ::recv(socket_.native_handle(), buffer.data(), buffer.size(), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    Shut();
    return;
  }
  if (got < 0) {
    WaitReadable();
    return;
  }
  tls_->Feed({buffer.data(), static_cast<std::size_t>(got)});
  if (state_ == State::kHandshake) {
    const auto outcome = tls_->Handshake();
    const bool sent = SendOutput() != Sent::kFailed;
    if (!sent || outcome == TlsSession::Outcome::kFailed ||
        outcome == TlsSession::Outcome::kClosed) {
      Shut();
      return;
    }
    if (outcome == TlsSession::Outcome::kOk) {
      state_ = State::kRequest;
      peer_ = tls_->Peer();
      Touch(shared_.options.head_timeout);
    }
    if (!tls_->out().empty()) {
      WaitWritable();
    }
  }
  if (state_ != State::kHandshake && !Decrypt()) {
    return;
  }
  tls_->KeepRest();
  Process();
  if (plain_.size() < kPlainBytesMax) {
    WaitReadable();
  }
}

bool Connection::Decrypt() {
  auto& buffer = io_->plain_buffer();
  while (plain_.size() < kPlainBytesMax) {
    std::size_t bytes = 0;
    const auto outcome = tls_->Read(buffer.data(), buffer.size(), &bytes);
    if (outcome == TlsSession::Outcome::kWantInput) {
      return true;
    }
    if (outcome == TlsSession::Outcome::kOk) {
      if (state_ != State::kLingering) {
        plain_.append(buffer.data(), bytes);
      } else if ((lingered_bytes_ += bytes) > kLingerBytesMax) {
        Shut();
        return false;
      }
      continue;
    }
    // The client ended its side. What it asked before is still answered; a stream has no reader.
    if (outcome == TlsSession::Outcome::kClosed &&
        (state_ == State::kHandling || state_ == State::kAnswering || !plain_.empty())) {
      keep_alive_ = false;
      return true;
    }
    Shut();
    return false;
  }
  return true;
}

void Connection::Process() {
  if (in_process_) {
    return;
  }
  in_process_ = true;
  while (state_ == State::kRequest && !plain_.empty()) {
    const bool fresh = parser_.idle();
    std::size_t consumed = 0;
    const auto parsed = parser_.Parse(plain_, &consumed);
    plain_.erase(0, consumed);
    if (parsed == RequestParser::State::kDone) {
      Dispatch(parser_.Take());
      if (early_answer_) {
        Begin(std::move(early_answer_));
      }
    } else if (parsed == RequestParser::State::kError) {
      FailRequest(parser_.error_code(), parser_.error_text());
    } else if (parsed == RequestParser::State::kSendContinue) {
      tls_->Write("HTTP/1.1 100 Continue\r\n\r\n");
      Touch(shared_.options.body_timeout);
      Pump();
    } else {
      if (fresh) {
        Touch(parser_.idle() ? shared_.options.head_timeout : shared_.options.body_timeout);
      }
      break;
    }
  }
  if (plain_.empty() && plain_.capacity() > 4096) {
    plain_ = std::string();
  }
  in_process_ = false;
}

void Connection::Dispatch(ParsedRequest parsed) {
  auto request = std::make_unique<Request>();
  request->method = std::move(parsed.method);
  request->path = parsed.raw_path.find('%') == std::string::npos ? parsed.raw_path
                                                                 : DecodePath(parsed.raw_path);
  request->raw_path = std::move(parsed.raw_path);
  request->query = ParseQuery(parsed.raw_query);
  request->raw_query = std::move(parsed.raw_query);
  request->headers = std::move(parsed.headers);
  request->body = std::move(parsed.body);
  request->remote_address = remote_address_;
  request->tls_common_name = peer_.common_name;
  request->tls_organizations = peer_.organizations;
  request->tls_fingerprint = peer_.fingerprint;
  request->tls_certificate_rejected = peer_.rejected;
  request->received = std::chrono::system_clock::now();

  keep_alive_ = parsed.keep_alive && keep_alive_;
  accepts_gzip_ = parsed.accepts_gzip;
  is_head_ = request->method == "HEAD";
  is_http_1_0_ = parsed.http_1_0;
  state_ = State::kHandling;
  deadline_ = MonotonicTime::max();
  SetAnswerDeadline(MonotonicTime::max());
  ++request_;
  shared_.handler.Handle(std::move(request),
                         std::make_unique<HttpResponder>(shared_from_this(), request_));
  if (answer_deadline_.load(std::memory_order_relaxed) !=
      MonotonicTime::max().time_since_epoch().count()) {
    io_->ArmTick();
  }
}

// What the parser refused never reaches the pipeline; the client may still be sending, so its bytes
// are read for a moment after the answer, or it would see a reset instead of it.
void Connection::FailRequest(int code, const std::string& text) {
  keep_alive_ = false;
  is_head_ = false;
  auto answer = std::make_unique<Answer>();
  if (code == 413) {
    answer->head = StatusResponse(Status(
        Reason::kRequestEntityTooLarge, "Request entity too large: limit is " +
                                            std::to_string(shared_.options.parser.body_bytes_max)));
  } else {
    answer->head.code = code;
    answer->head.content_type = "text/plain; charset=utf-8";
    answer->head.body = Body(std::to_string(code) + " " + std::string(ReasonPhrase(code)) +
                             (text.empty() ? "" : ": " + text));
  }
  ++request_;
  lingered_bytes_ = 1;
  Begin(std::move(answer));
}

void Connection::DeliverAnswer(std::uint64_t request, std::unique_ptr<Answer> answer) {
  if (io_->IsCurrent()) {
    OnAnswer(request, std::move(answer));
  } else {
    io_->Deliver({shared_from_this(), request, std::move(answer)});
  }
}

void Connection::DeliverWake() {
  if (!wake_pending_.exchange(true, std::memory_order_acq_rel)) {
    io_->Deliver({shared_from_this(), 0, nullptr});
  }
}

void Connection::OnAnswer(std::uint64_t request, std::unique_ptr<Answer> answer) {
  if (state_ != State::kHandling || request != request_ || early_answer_) {
    return;
  }
  if (in_process_) {
    early_answer_ = std::move(answer);
  } else {
    Begin(std::move(answer));
  }
}

void Connection::OnWake() {
  wake_pending_.store(false, std::memory_order_release);
  if (state_ == State::kStreaming && !writing_) {
    Pump();
  }
}

void Connection::OnTick(MonotonicTime now) {
  if (state_ == State::kHandling &&
      now.time_since_epoch().count() >= answer_deadline_.load(std::memory_order_relaxed)) {
    auto answer = std::make_unique<Answer>();
    answer->head =
        StatusResponse(Timeout("Timeout: request did not complete within the allotted timeout"));
    OnAnswer(request_, std::move(answer));
    return;
  }
  if (now < deadline_) {
    return;
  }
  if (state_ == State::kRequest && !(parser_.idle() && plain_.empty())) {
    FailRequest(408, "the request did not arrive in time");
    return;
  }
  Shut();
}

bool Connection::HasDeadline() const {
  return deadline_ != MonotonicTime::max() ||
         (state_ == State::kHandling && answer_deadline_.load(std::memory_order_relaxed) !=
                                            MonotonicTime::max().time_since_epoch().count());
}

void Connection::Drain() {
  keep_alive_ = false;
  if (state_ == State::kHandshake ||
      (state_ == State::kRequest && parser_.idle() && plain_.empty())) {
    tls_->Close();
    SendOutput();
    Shut();
  } else if (state_ == State::kStreaming && !writing_) {
    Pump();
  }
}

void Connection::Shut() {
  if (state_ == State::kShut) {
    return;
  }
  if (upgrading_) {
    upgrading_ = false;
    shared_.tunnels.Release();
  }
  state_ = State::kShut;
  stream_.reset();
  pieces_.clear();
  early_answer_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
  shared_.connections.fetch_sub(1, std::memory_order_relaxed);
  io_->Remove(this);
}

}  // namespace sublet::apiserver
