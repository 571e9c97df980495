// Frames come from whatever answers at the other end.
#include <cstddef>
#include <cstdint>

#include "client/websocket.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sublet::client::WebSocketFrames frames;
  frames.Append({reinterpret_cast<const char*>(data), size});
  for (int i = 0; i < 1000; ++i) {
    auto message = frames.Next();
    if (!message.ok() || !*message) {
      break;
    }
  }
  return 0;
}
