#include "apiserver/http/connection.h"

#include <sys/socket.h>

#include <charconv>
#include <cstring>

#include "apiserver/http/gzip.h"
#include "apiserver/status_response.h"
#include "base/check.h"

namespace sublet::apiserver {
namespace {

constexpr std::size_t kPlainBytesMax = 128 * 1024;  // more than the largest head
constexpr std::size_t kOutputBytes = 128 * 1024;  // gathered before a send
constexpr std::size_t kRecordBytes = 16 * 1024;   // the most a TLS record takes
constexpr std::size_t kPullBytes = 64 * 1024;
constexpr std::size_t kLingerBytesMax = 16u << 20;
constexpr std::chrono::seconds kLingerTimeout(2);

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

std::string_view ReasonPhrase(int code) {
  switch (code) {
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 413: return "Request Entity Too Large";
    case 415: return "Unsupported Media Type";
    case 422: return "Unprocessable Entity";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

void AppendNumber(std::string& out, std::uint64_t number, int base = 10) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof text, number, base).ptr;
  out.append(text, end);
}

bool HasHeader(const Response& response, std::string_view name) {
  for (const auto& header : response.headers) {
    if (header.first == name) {
      return true;
    }
  }
  return false;
}

}  // namespace

Connection::Connection(std::shared_ptr<IoThread> io, boost::asio::ip::tcp::socket socket,
                       std::string remote_address)
    : io_(std::move(io)),
      shared_(*io_->shared()),
      socket_(std::move(socket)),
      remote_address_(std::move(remote_address)),
      tls_(std::make_unique<TlsSession>(*shared_.tls.load())),
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
    answer->head = StatusResponse(
        Status(Reason::kRequestEntityTooLarge,
               "Request entity too large: limit is " +
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

void Connection::Begin(std::unique_ptr<Answer> answer) {
  if (answer->upgrade.run) {
    BeginUpgrade(std::move(answer));
    return;
  }
  if (shared_.draining.load(std::memory_order_relaxed)) {
    keep_alive_ = false;
  }
  Response& head = answer->head;
  const bool no_body = is_head_ || head.code == 204 || head.code == 304 || head.code < 200;
  if (accepts_gzip_ && !answer->stream && !no_body && head.body.size() > kGzipBytesMin &&
      !HasHeader(head, "Content-Encoding")) {
    head.body = Gzip(head.body);
    head.headers.emplace_back("Content-Encoding", "gzip");
    head.headers.emplace_back("Vary", "Accept-Encoding");
  }
  const std::size_t body_bytes = head.body.size();
  const bool is_stream = answer->stream != nullptr;
  chunked_ = is_stream && !is_http_1_0_;
  if (is_stream && is_http_1_0_) {
    keep_alive_ = false;
  }
  Body all;
  all.Append(MakeHead(head, head.code != 204 && head.code != 304, body_bytes, is_stream));
  pieces_ = all.TakePieces();
  if (!no_body) {
    auto body = head.body.TakePieces();
    pieces_.insert(pieces_.end(), std::make_move_iterator(body.begin()),
                   std::make_move_iterator(body.end()));
  }
  piece_ = piece_offset_ = 0;
  stream_ended_ = false;
  Touch(shared_.options.stall_timeout);
  state_ = State::kAnswering;
  if (is_stream && !no_body) {
    state_ = State::kStreaming;
    stream_ = std::move(answer->stream);
    stream_->Start([self = shared_from_this()] { self->DeliverWake(); });
  }
  Pump();
}

void Connection::BeginUpgrade(std::unique_ptr<Answer> answer) {
  if (!shared_.tunnels.Reserve()) {
    auto refusal = std::make_unique<Answer>();
    refusal->head = StatusResponse(
        TooManyRequests("too many open exec, attach and port-forward connections", 1));
    Begin(std::move(refusal));
    return;
  }
  upgrading_ = true;
  upgrade_ = std::move(answer->upgrade);
  Body all;
  all.Append(MakeHead(answer->head, false, 0, false));
  pieces_ = all.TakePieces();
  piece_ = piece_offset_ = 0;
  state_ = State::kAnswering;
  Touch(shared_.options.stall_timeout);
  Pump();
}

void Connection::Detach() {
  upgrading_ = false;
  state_ = State::kShut;
  boost::system::error_code error;
  const int fd = socket_.release(error);
  if (error) {
    shared_.tunnels.Release();
  } else {
    shared_.tunnels.Run(fd, std::move(tls_), std::move(plain_), std::move(upgrade_));
  }
  shared_.connections.fetch_sub(1, std::memory_order_relaxed);
  io_->Remove(this);
}

std::string Connection::MakeHead(const Response& head, bool has_body, std::size_t body_bytes,
                                 bool is_stream) {
  std::string text;
  text.reserve(512);
  text.append("HTTP/1.1 ");
  AppendNumber(text, static_cast<std::uint64_t>(head.code));
  text.append(" ").append(ReasonPhrase(head.code)).append("\r\n");
  for (const auto& [name, value] : head.headers) {
    text.append(name).append(": ").append(value).append("\r\n");
  }
  if (!head.content_type.empty() && has_body) {
    text.append("Content-Type: ").append(head.content_type).append("\r\n");
  }
  text.append("Date: ").append(io_->HttpDate()).append("\r\n");
  if (is_stream && chunked_) {
    text.append("Transfer-Encoding: chunked\r\n");
  } else if (!is_stream && has_body) {
    text.append("Content-Length: ");
    AppendNumber(text, body_bytes);
    text.append("\r\n");
  }
  if (!keep_alive_ && !upgrading_) {
    text.append("Connection: close\r\n");
  } else if (is_http_1_0_) {
    text.append("Connection: keep-alive\r\n");
  }
  text.append("\r\n");
  return text;
}

void Connection::Pump() {
  for (;;) {
    switch (SendOutput()) {
      case Sent::kBlocked:
        WaitWritable();
        return;
      case Sent::kFailed:
        Shut();
        return;
      case Sent::kAll:
        break;
    }
    if (piece_ == pieces_.size()) {
      pieces_.clear();
      piece_ = piece_offset_ = 0;
      if (state_ == State::kStreaming && !stream_ended_) {
        PullStream();
        if (pieces_.empty()) {
          deadline_ = MonotonicTime::max();
          return;
        }
        Touch(shared_.options.stall_timeout);
        continue;
      }
      if (state_ == State::kAnswering || state_ == State::kStreaming) {
        FinishAnswer();
      }
      return;
    }
    if (!FillOutput()) {
      Shut();
      return;
    }
  }
}

bool Connection::FillOutput() {
  std::string& out = tls_->out();
  if (out.capacity() < io_->spare_output().capacity()) {
    out.swap(io_->spare_output());
  }
  char* const record = io_->plain_buffer().data();
  std::size_t filled = 0;
  while (piece_ < pieces_.size() && out.size() < kOutputBytes) {
    const auto view = pieces_[piece_].bytes.substr(piece_offset_);
    const std::size_t bytes = std::min(view.size(), kRecordBytes - filled);
    if (filled == 0 && bytes == kRecordBytes) {
      if (!tls_->Write(view.substr(0, bytes))) {
        return false;
      }
    } else {
      std::memcpy(record + filled, view.data(), bytes);
      filled += bytes;
    }
    piece_offset_ += bytes;
    if (piece_offset_ == pieces_[piece_].bytes.size()) {
      pieces_[piece_].owner.reset();
      ++piece_;
      piece_offset_ = 0;
    }
    if (filled == kRecordBytes) {
      if (!tls_->Write({record, filled})) {
        return false;
      }
      filled = 0;
    }
  }
  return filled == 0 || tls_->Write({record, filled});
}

void Connection::PullStream() {
  static constexpr std::string_view kLastChunk = "0\r\n\r\n";
  std::vector<Body::Piece> pulled;
  const bool ending = shared_.draining.load(std::memory_order_relaxed);
  const auto state = ending ? ByteStream::State::kEnd : stream_->Pull(pulled, kPullBytes);
  std::size_t bytes = 0;
  for (const auto& piece : pulled) {
    bytes += piece.bytes.size();
  }
  if (bytes > 0) {
    if (chunked_) {
      std::string size;
      AppendNumber(size, bytes, 16);
      size.append("\r\n");
      auto owned = std::make_shared<const std::string>(std::move(size));
      const std::string_view view = *owned;
      pieces_.reserve(pulled.size() + 3);
      pieces_.push_back({view, std::move(owned)});
    }
    for (auto& piece : pulled) {
      if (!piece.bytes.empty()) {
        pieces_.push_back(std::move(piece));
      }
    }
    if (chunked_) {
      pieces_.push_back({"\r\n", nullptr});
    }
  }
  if (state == ByteStream::State::kEnd) {
    stream_ended_ = true;
    stream_.reset();
    keep_alive_ = keep_alive_ && !ending;
    // A body that ends with the connection needs a piece too, or Pump would take it for waiting.
    pieces_.push_back({chunked_ ? kLastChunk : std::string_view(), nullptr});
  }
}

Connection::Sent Connection::SendOutput() {
  std::string& out = tls_->out();
  if (out.empty()) {
    return Sent::kAll;
  }
  while (out_sent_ < out.size()) {
    const ssize_t sent = ::send(socket_.native_handle(), out.data() + out_sent_,
                                out.size() - out_sent_, MSG_NOSIGNAL);
    if (sent > 0) {
      out_sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      Touch(shared_.options.stall_timeout);
      return Sent::kBlocked;
    } else if (errno != EINTR) {
      return Sent::kFailed;
    }
  }
  out.clear();
  out_sent_ = 0;
  if (out.capacity() > io_->spare_output().capacity()) {
    out.swap(io_->spare_output());
  }
  if (out.capacity() > 1024) {
    out = std::string();
  }
  return Sent::kAll;
}

void Connection::FinishAnswer() {
  stream_.reset();
  if (upgrading_) {
    Detach();
    return;
  }
  if (!keep_alive_) {
    Linger();
    return;
  }
  state_ = State::kRequest;
  Touch(shared_.options.idle_timeout);
  if (!in_process_ && !plain_.empty()) {
    Process();
  }
  // Input that waited behind the bound of plain_ is already here: no readiness will announce it.
  if (state_ == State::kRequest && !in_process_ && tls_->has_pending() && Decrypt()) {
    tls_->KeepRest();
    Process();
  }
  if (state_ != State::kShut && plain_.size() < kPlainBytesMax) {
    WaitReadable();
  }
}

void Connection::Linger() {
  tls_->Close();
  const bool must_linger = lingered_bytes_ > 0;
  if (SendOutput() != Sent::kAll || !must_linger) {
    Shut();
    return;
  }
  ::shutdown(socket_.native_handle(), SHUT_WR);
  state_ = State::kLingering;
  plain_ = std::string();
  Touch(kLingerTimeout);
  WaitReadable();
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
