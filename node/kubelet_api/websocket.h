// WebSocket on the server's side: the handshake's answer, a frame reader and a frame writer.
// Threads: the reader belongs to one thread. Source: RFC 6455.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "node/kubelet_api/duplex.h"
#include "node/kubelet_api/http_request.h"

namespace sublet::node {

bool IsWebSocketUpgrade(const KubeletRequest& request);
// The 101 answer. `protocol` "" = none is named.
std::string MakeWebSocketAccept(const KubeletRequest& request, std::string_view protocol);

enum class WebSocketOp : std::uint8_t {
  kContinuation = 0,
  kText = 1,
  kBinary = 2,
  kClose = 8,
  kPing = 9,
  kPong = 10
};
std::string MakeWebSocketFrame(WebSocketOp op, std::string_view payload);

struct WebSocketMessage {
  WebSocketOp op = WebSocketOp::kBinary;
  std::string payload;
};

// Takes whole messages out of the bytes of a client.
class WebSocketReader {
 public:
  explicit WebSocketReader(std::size_t message_bytes_max) : bytes_max_(message_bytes_max) {}
  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next message (fragments put together; pings, pongs and closes between them come at once),
  // or nullopt when more bytes are needed. Errors: BadRequest (protocol broken),
  // RequestEntityTooLarge.
  Result<std::optional<WebSocketMessage>> Next();

 private:
  const std::size_t bytes_max_;
  std::string buffer_;
  std::string fragments_;
  std::optional<WebSocketOp> fragmented_;
};

// Reads messages until the peer closes, breaks the protocol or is quiet for four hours: pings are
// answered, `take` gets the payload of every other message that has one. `early` are bytes that
// were read behind the request's head.
void ReadWebSocketMessages(Duplex& connection, std::string_view early,
                           std::size_t message_bytes_max,
                           const std::function<void(const std::string& payload)>& take);

// A Duplex whose bytes travel in binary messages (the SPDY tunnel of port-forward). Answers pings.
class WebSocketDuplex final : public Duplex {
 public:
  // `early` are bytes that were read behind the request's head. `connection` outlives this.
  WebSocketDuplex(Duplex& connection, std::string early);
  Result<std::size_t> Read(char* data, std::size_t bytes_max, Deadline deadline) override;
  Result<void> Write(std::string_view data) override;
  void Shutdown() override;

 private:
  Duplex& connection_;
  WebSocketReader reader_;
  std::string pending_;
  std::size_t pending_at_ = 0;
};

}  // namespace sublet::node
