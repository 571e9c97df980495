// The answering half of a Connection: from an Answer to bytes on the socket, and what comes after.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "apiserver/http/connection.h"
#include "apiserver/http/response_head.h"
#include "apiserver/status_response.h"

namespace sublet::apiserver {
namespace {

constexpr std::size_t kOutputBytes = 128 * 1024;  // gathered before a send
constexpr std::size_t kRecordBytes = 16 * 1024;   // the most a TLS record takes
constexpr std::size_t kPullBytes = 64 * 1024;
constexpr std::chrono::seconds kLingerTimeout(2);

}  // namespace

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
    head.body = shared_.gzip.Compress(head.body);
    head.headers.emplace_back("Content-Encoding", "gzip");
    head.headers.emplace_back("Vary", "Accept-Encoding");
  }
  const std::size_t body_bytes = head.body.size();
  const bool is_stream = answer->stream != nullptr;
  chunked_ = is_stream && !is_http_1_0_;
  if (is_stream && is_http_1_0_) {
    keep_alive_ = false;
  }
  head_text_ = MakeHead(head, head.code != 204 && head.code != 304, body_bytes, is_stream);
  pieces_.clear();
  if (!no_body) {
    pieces_ = head.body.TakePieces();
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
  head_text_ = MakeHead(answer->head, false, 0, false);
  pieces_.clear();
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
  return EncodeHead(head,
                    {.has_body = has_body,
                     .body_bytes = body_bytes,
                     .is_stream = is_stream,
                     .chunked = chunked_,
                     .keep_alive = keep_alive_,
                     .is_upgrade = upgrading_,
                     .is_http_1_0 = is_http_1_0_},
                    io_->HttpDate());
}

void Connection::Pump() {
  for (;;) {
    switch (SendOutput()) {
      case Sent::kBlocked: WaitWritable(); return;
      case Sent::kFailed: Shut(); return;
      case Sent::kAll: break;
    }
    if (head_text_.empty() && piece_ == pieces_.size()) {
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
  if (head_text_.size() > kRecordBytes) {
    if (!tls_->Write(head_text_)) {
      return false;
    }
  } else {
    std::memcpy(record, head_text_.data(), head_text_.size());
    filled = head_text_.size();
  }
  head_text_.clear();
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

}  // namespace sublet::apiserver
