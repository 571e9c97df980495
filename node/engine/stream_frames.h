// StreamFrames: takes apart the multiplexed output of exec and attach. A frame is 8 bytes of head
// (stream number, three zeros, length big-endian) and its payload. A TTY's output has no frames.
// Source: Docker Engine API, "Attach to a container", stream format. Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "node/engine/engine.h"

namespace sublet::node {

class StreamFrames {
 public:
  // Adds received bytes; at most 64 KiB at a time, taken out with Next before more is added.
  void Feed(std::string_view bytes);
  // The next piece of payload (a frame may come in several pieces), nullopt when more bytes are
  // needed. The view is valid until the next Feed. Errors: BadRequest (unknown stream number).
  Result<std::optional<StreamSession::Chunk>> Next();

 private:
  std::string buffer_;
  std::size_t at_ = 0;
  std::uint64_t payload_left_ = 0;
  StreamId stream_ = StreamId::kStdout;
};

}  // namespace sublet::node
