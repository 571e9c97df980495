#include "node/engine/stream_frames.h"

#include <algorithm>

namespace sublet::node {

void StreamFrames::Feed(std::string_view bytes) {
  buffer_.erase(0, at_);
  at_ = 0;
  buffer_.append(bytes);
}

Result<std::optional<StreamSession::Chunk>> StreamFrames::Next() {
  for (;;) {
    if (payload_left_ > 0) {
      const std::size_t n = std::min<std::uint64_t>(payload_left_, buffer_.size() - at_);
      if (n == 0) {
        return std::optional<StreamSession::Chunk>();
      }
      StreamSession::Chunk chunk;
      chunk.stream = stream_;
      chunk.data = std::string_view(buffer_).substr(at_, n);
      at_ += n;
      payload_left_ -= n;
      return std::optional<StreamSession::Chunk>(chunk);
    }
    if (buffer_.size() - at_ < 8) {
      return std::optional<StreamSession::Chunk>();
    }
    const auto byte = [&](std::size_t i) {
      return static_cast<std::uint64_t>(static_cast<unsigned char>(buffer_[at_ + i]));
    };
    if (byte(0) > 2) {
      return BadRequest("container engine: unknown stream in its output");
    }
    // Stream 0 is the echo of stdin that some engines send: it belongs to the output.
    stream_ = byte(0) == 2 ? StreamId::kStderr : StreamId::kStdout;
    payload_left_ = byte(4) << 24 | byte(5) << 16 | byte(6) << 8 | byte(7);
    at_ += 8;
  }
}

}  // namespace sublet::node
