// WebSocket: the client side of one WebSocket over a Tunnel, as much of RFC 6455 as Kubernetes'
// channel protocols need: binary messages, ping, close. The server side is the node agent's.
// Threads: one sender and one receiver at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "client/transport.h"

namespace sublet::client {

// Cuts server frames out of a byte stream. Pure; what a fuzz target drives.
class WebSocketFrames {
 public:
  struct Message {
    enum class Kind : std::uint8_t { kBinary, kPing, kPong, kClose };
    Kind kind = Kind::kBinary;
    std::string data;
  };
  static constexpr std::size_t kMessageBytesMax = 4u << 20;

  void Append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message; nullopt = more bytes are needed.
  // Errors: BadRequest (masked frame, reserved bits, too long, bad fragment order).
  Result<std::optional<Message>> Next();

 private:
  std::string buffer_;
  std::string fragments_;
  bool in_fragments_ = false;
};

// One masked client frame. opcode 2 = binary, 8 = close, 10 = pong.
std::string EncodeClientFrame(int opcode, std::string_view data, std::uint32_t mask);

class WebSocket {
 public:
  // Opens `target` with these subprotocols offered. Errors: the server's Status,
  // ServiceUnavailable.
  static Result<std::unique_ptr<WebSocket>> Open(Transport& transport, const std::string& target,
                                                 const std::string& subprotocols);

  // The next binary message; nullopt = closed. Pings are answered here.
  Result<std::optional<std::string>> Receive();
  Result<void> Send(std::string_view data) SUBLET_EXCLUDES(mutex_);
  // Ends both directions; a waiting Receive returns.
  void Close() SUBLET_EXCLUDES(mutex_);
  // The subprotocol the server chose.
  std::string_view protocol() const;

 private:
  explicit WebSocket(std::unique_ptr<Tunnel> tunnel) : tunnel_(std::move(tunnel)) {}
  Result<void> SendFrame(int opcode, std::string_view data) SUBLET_EXCLUDES(mutex_);

  const std::unique_ptr<Tunnel> tunnel_;
  WebSocketFrames frames_;  // the receiver's
  Mutex mutex_;             // orders frames of sender and pong
};

}  // namespace sublet::client
