// The frames of a client that watches over a WebSocket, in pieces of any size.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "apiserver/handlers/watch_socket.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using sublet::apiserver::ClientFrames;
  if (size == 0) {
    return 0;
  }
  const std::size_t step = data[0] + 1u;
  ClientFrames frames;
  for (std::size_t at = 1; at < size; at += step) {
    frames.Feed({reinterpret_cast<const char*>(data) + at, std::min(step, size - at)});
    for (;;) {
      const auto control = frames.Next();
      if (!control.ok()) {
        return 0;
      }
      if (!*control) {
        break;
      }
      if ((*control)->payload.size() > 125) {
        __builtin_trap();
      }
    }
  }
  return 0;
}
