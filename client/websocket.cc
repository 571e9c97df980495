#include "client/websocket.h"

#include <array>

#include "base/base64.h"
#include "base/random.h"

namespace sublet::client {
namespace {

constexpr int kContinuation = 0;
constexpr int kText = 1;
constexpr int kBinary = 2;
constexpr int kClose = 8;
constexpr int kPing = 9;
constexpr int kPong = 10;

std::uint64_t BigEndian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes) {
    value = value << 8 | static_cast<unsigned char>(c);
  }
  return value;
}

}  // namespace

Result<std::optional<WebSocketFrames::Message>> WebSocketFrames::Next() {
  for (;;) {
    if (buffer_.size() < 2) {
      return std::optional<Message>();
    }
    const auto first = static_cast<unsigned char>(buffer_[0]);
    const auto second = static_cast<unsigned char>(buffer_[1]);
    if ((first & 0x70) != 0 || (second & 0x80) != 0) {
      return BadRequest("the server sent a WebSocket frame with reserved bits or a mask");
    }
    const int opcode = first & 0x0f;
    const bool final = (first & 0x80) != 0;
    std::size_t header = 2;
    std::uint64_t length = second & 0x7f;
    if (length >= 126) {
      const std::size_t extra = length == 126 ? 2 : 8;
      if (buffer_.size() < 2 + extra) {
        return std::optional<Message>();
      }
      length = BigEndian(std::string_view(buffer_).substr(2, extra));
      header += extra;
    }
    if (length > kMessageBytesMax || fragments_.size() + length > kMessageBytesMax) {
      return BadRequest("the server sent a WebSocket message of more than 4 MiB");
    }
    if (buffer_.size() < header + length) {
      return std::optional<Message>();
    }
    std::string data = buffer_.substr(header, length);
    buffer_.erase(0, header + length);
    if (opcode >= kClose) {
      if (!final || length > 125 || opcode > kPong) {
        return BadRequest("the server sent a broken WebSocket control frame");
      }
      return std::optional<Message>(Message{opcode == kClose  ? Message::Kind::kClose
                                            : opcode == kPing ? Message::Kind::kPing
                                                              : Message::Kind::kPong,
                                            std::move(data)});
    }
    const bool starts = opcode == kText || opcode == kBinary;
    if ((!starts && opcode != kContinuation) || starts == in_fragments_) {
      return BadRequest("the server sent WebSocket fragments out of order");
    }
    fragments_ += data;
    in_fragments_ = !final;
    if (final) {
      std::string whole = std::move(fragments_);
      fragments_.clear();
      return std::optional<Message>(Message{Message::Kind::kBinary, std::move(whole)});
    }
  }
}

std::string EncodeClientFrame(int opcode, std::string_view data, std::uint32_t mask) {
  std::string frame;
  frame.reserve(data.size() + 14);
  frame += static_cast<char>(0x80 | opcode);
  const auto put = [&frame](std::uint64_t value, int bytes) {
    for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) {
      frame += static_cast<char>(value >> shift & 0xff);
    }
  };
  if (data.size() < 126) {
    frame += static_cast<char>(0x80 | data.size());
  } else if (data.size() < 65536) {
    frame += static_cast<char>(0x80 | 126);
    put(data.size(), 2);
  } else {
    frame += static_cast<char>(0x80 | 127);
    put(data.size(), 8);
  }
  const std::array<char, 4> key = {static_cast<char>(mask >> 24), static_cast<char>(mask >> 16),
                                   static_cast<char>(mask >> 8), static_cast<char>(mask)};
  frame.append(key.data(), key.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    frame += static_cast<char>(data[i] ^ key[i % 4]);
  }
  return frame;
}

Result<std::unique_ptr<WebSocket>> WebSocket::Open(Transport& transport, const std::string& target,
                                                   const std::string& subprotocols) {
  std::string nonce(16, '\0');
  FillRandom(nonce.data(), nonce.size());
  HttpRequest request;
  request.target = target;
  request.headers = {{"Connection", "Upgrade"},
                     {"Upgrade", "websocket"},
                     {"Sec-WebSocket-Version", "13"},
                     {"Sec-WebSocket-Key", EncodeBase64(nonce)},
                     {"Sec-WebSocket-Protocol", subprotocols}};
  SUBLET_TRY(auto tunnel, transport.OpenTunnel(request));
  return std::unique_ptr<WebSocket>(new WebSocket(std::move(tunnel)));
}

std::string_view WebSocket::protocol() const {
  return tunnel_->response().Header("Sec-WebSocket-Protocol");
}

Result<std::optional<std::string>> WebSocket::Receive() {
  std::array<char, 32768> chunk;
  for (;;) {
    SUBLET_TRY(auto message, frames_.Next());
    if (message) {
      switch (message->kind) {
        case WebSocketFrames::Message::Kind::kBinary:
          return std::optional<std::string>(std::move(message->data));
        case WebSocketFrames::Message::Kind::kPing:
          SUBLET_RETURN_IF_ERROR(SendFrame(kPong, message->data));
          break;
        case WebSocketFrames::Message::Kind::kPong: break;
        case WebSocketFrames::Message::Kind::kClose: return std::optional<std::string>();
      }
      continue;
    }
    SUBLET_TRY(const std::size_t got, tunnel_->Read(chunk.data(), chunk.size()));
    if (got == 0) {
      return std::optional<std::string>();
    }
    frames_.Append({chunk.data(), got});
  }
}

Result<void> WebSocket::SendFrame(int opcode, std::string_view data) {
  const std::string frame =
      EncodeClientFrame(opcode, data, static_cast<std::uint32_t>(RandomUint64()));
  MutexLock lock(mutex_);
  return tunnel_->Write(frame);
}

Result<void> WebSocket::Send(std::string_view data) { return SendFrame(kBinary, data); }

void WebSocket::Close() {
  (void)SendFrame(kClose, std::string("\x03\xe8", 2));
  tunnel_->Close();
}

}  // namespace sublet::client
