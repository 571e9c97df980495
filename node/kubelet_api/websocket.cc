#include "node/kubelet_api/websocket.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

namespace sublet::node {
namespace {

constexpr std::size_t kTunnelMessageBytesMax = 4u << 20;

bool ContainsToken(std::string_view list, std::string_view wanted) {
  for (const std::string& item : SplitList(list)) {
    if (item.size() == wanted.size() &&
        std::equal(item.begin(), item.end(), wanted.begin(), [](char a, char b) {
          return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
        })) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool IsWebSocketUpgrade(const KubeletRequest& request) {
  return ContainsToken(request.Header("connection"), "upgrade") &&
         ContainsToken(request.Header("upgrade"), "websocket") &&
         !request.Header("sec-websocket-key").empty();
}

std::string MakeWebSocketAccept(const KubeletRequest& request, std::string_view protocol) {
  const std::string text =
      std::string(request.Header("sec-websocket-key")) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha1(), nullptr);
  char encoded[64];
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded), digest, static_cast<int>(size));
  std::string out =
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Accept: " +
      std::string(encoded) + "\r\n";
  if (!protocol.empty()) {
    out += "Sec-WebSocket-Protocol: " + std::string(protocol) + "\r\n";
  }
  return out + "\r\n";
}

std::string MakeWebSocketFrame(WebSocketOp op, std::string_view payload) {
  std::string out;
  out.reserve(payload.size() + 10);
  out += static_cast<char>(0x80 | static_cast<int>(op));
  if (payload.size() < 126) {
    out += static_cast<char>(payload.size());
  } else if (payload.size() < 65536) {
    out += static_cast<char>(126);
    out += static_cast<char>(payload.size() >> 8);
    out += static_cast<char>(payload.size() & 255);
  } else {
    out += static_cast<char>(127);
    for (int shift = 56; shift >= 0; shift -= 8) {
      out += static_cast<char>(static_cast<std::uint64_t>(payload.size()) >> shift & 255);
    }
  }
  out += payload;
  return out;
}

Result<std::optional<WebSocketMessage>> WebSocketReader::Next() {
  for (;;) {
    if (buffer_.size() < 2) {
      return std::optional<WebSocketMessage>();
    }
    const auto byte = [&](std::size_t i) {
      return static_cast<std::uint64_t>(static_cast<unsigned char>(buffer_[i]));
    };
    const bool final = (byte(0) & 0x80) != 0;
    const auto op = static_cast<WebSocketOp>(byte(0) & 15);
    const bool control = (byte(0) & 8) != 0;
    if ((byte(0) & 0x70) != 0 || (byte(1) & 0x80) == 0 || (byte(0) & 15) > 10 ||
        ((byte(0) & 15) > 2 && (byte(0) & 15) < 8)) {
      return BadRequest("malformed WebSocket frame");
    }
    std::uint64_t size = byte(1) & 127;
    std::size_t at = 2;
    if (size >= 126) {
      const std::size_t extra = size == 126 ? 2 : 8;
      if (buffer_.size() < at + extra) {
        return std::optional<WebSocketMessage>();
      }
      size = 0;
      for (std::size_t i = 0; i < extra; ++i) {
        size = size << 8 | byte(at + i);
      }
      at += extra;
    }
    if (control && (size > 125 || !final)) {
      return BadRequest("malformed WebSocket control frame");
    }
    if (size > bytes_max_ || fragments_.size() + size > bytes_max_) {
      return Status(Reason::kRequestEntityTooLarge, "WebSocket message too large");
    }
    if (buffer_.size() < at + 4 + size) {
      return std::optional<WebSocketMessage>();
    }
    std::string payload = buffer_.substr(at + 4, size);
    for (std::size_t i = 0; i < payload.size(); ++i) {
      payload[i] = static_cast<char>(payload[i] ^ buffer_[at + (i & 3)]);
    }
    buffer_.erase(0, at + 4 + size);
    if (control) {
      return std::optional<WebSocketMessage>(WebSocketMessage{op, std::move(payload)});
    }
    if ((op == WebSocketOp::kContinuation) != fragmented_.has_value()) {
      return BadRequest("WebSocket fragments out of order");
    }
    if (op != WebSocketOp::kContinuation) {
      fragmented_ = op;
    }
    fragments_ += payload;
    if (final) {
      WebSocketMessage message{*fragmented_, std::move(fragments_)};
      fragmented_.reset();
      fragments_.clear();
      return std::optional<WebSocketMessage>(std::move(message));
    }
  }
}

void ReadWebSocketMessages(Duplex& connection, std::string_view early,
                           std::size_t message_bytes_max,
                           const std::function<void(const std::string& payload)>& take) {
  WebSocketReader reader(message_bytes_max);
  reader.Feed(early);
  for (;;) {
    const auto message = reader.Next();
    if (!message.ok()) {
      return;
    }
    if (!*message) {
      char chunk[32768];
      const auto n = connection.Read(chunk, sizeof(chunk), After(std::chrono::hours(4)));
      if (!n.ok() || *n == 0) {
        return;
      }
      reader.Feed(std::string_view(chunk, *n));
      continue;
    }
    if ((*message)->op == WebSocketOp::kClose) {
      return;
    }
    if ((*message)->op == WebSocketOp::kPing) {
      static_cast<void>(
          connection.Write(MakeWebSocketFrame(WebSocketOp::kPong, (*message)->payload)).ok());
    } else if ((*message)->op != WebSocketOp::kPong && !(*message)->payload.empty()) {
      take((*message)->payload);
    }
  }
}

WebSocketDuplex::WebSocketDuplex(Duplex& connection, std::string early)
    : connection_(connection), reader_(kTunnelMessageBytesMax) {
  reader_.Feed(early);
}

Result<std::size_t> WebSocketDuplex::Read(char* data, std::size_t bytes_max, Deadline deadline) {
  for (;;) {
    if (pending_at_ < pending_.size()) {
      const std::size_t n = std::min(bytes_max, pending_.size() - pending_at_);
      std::memcpy(data, pending_.data() + pending_at_, n);
      pending_at_ += n;
      return n;
    }
    SUBLET_TRY(auto message, reader_.Next());
    if (message) {
      if (message->op == WebSocketOp::kClose) {
        return std::size_t{0};
      }
      if (message->op == WebSocketOp::kPing) {
        SUBLET_RETURN_IF_ERROR(
            connection_.Write(MakeWebSocketFrame(WebSocketOp::kPong, message->payload)));
      } else if (message->op != WebSocketOp::kPong) {
        pending_ = std::move(message->payload);
        pending_at_ = 0;
      }
      continue;
    }
    char chunk[32768];
    SUBLET_TRY(const std::size_t n, connection_.Read(chunk, sizeof(chunk), deadline));
    if (n == 0) {
      return n;
    }
    reader_.Feed(std::string_view(chunk, n));
  }
}

Result<void> WebSocketDuplex::Write(std::string_view data) {
  return connection_.Write(MakeWebSocketFrame(WebSocketOp::kBinary, data));
}

void WebSocketDuplex::Shutdown() {
  static_cast<void>(
      connection_.Write(MakeWebSocketFrame(WebSocketOp::kClose, std::string("\x03\xe8", 2))).ok());
  connection_.Shutdown();
}

}  // namespace sublet::node
