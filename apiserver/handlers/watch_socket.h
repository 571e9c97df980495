// A watch over a WebSocket (GET with "Upgrade: websocket"): each event is one text message. For
// clients that cannot read an endless answer, browsers foremost. Differs: an Origin is neither
// asked for nor judged; who may watch is what authentication says. Threads: Run on a tunnel thread,
// which starts one more ("watch-socket") that reads the client's frames. Source: RFC 6455;
// k8s.io/apiserver pkg/endpoints/handlers/watch.go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "apiserver/request.h"
#include "apiserver/response.h"
#include "base/result.h"

namespace sublet::apiserver {

bool WantsWebSocket(const Request& request);

// The 101 answer to the client's handshake. Errors: BadRequest (no key, another version than 13).
Result<Response> AcceptWebSocket(const Request& request);

// Sends every line of `stream` as one text message until the stream ends, the client closes or the
// connection breaks; pings are answered. Blocks.
void RunWatchSocket(RawConnection& connection, ByteStream& stream);

// One unmasked server frame. opcode 1 = text, 8 = close, 10 = pong.
std::string EncodeServerFrame(int opcode, std::string_view payload);

// Takes a client's frames out of its bytes. What a client says is dropped but for pings and closes.
// One thread; what the fuzz target drives.
class ClientFrames {
 public:
  enum class Kind : std::uint8_t { kPing, kClose };
  struct Control {
    Kind kind;
    std::string payload;  // at most 125 bytes
  };
  // Takes `bytes`; buffers one control frame at most, data is skipped as it comes.
  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next ping or close; nullopt when more bytes are needed.
  // Errors: BadRequest (a frame without a mask, reserved bits, a broken control frame).
  Result<std::optional<Control>> Next();

 private:
  std::string buffer_;
  std::uint64_t skip_ = 0;  // bytes of a data frame that are still to come
};

}  // namespace sublet::apiserver
