// HttpReader: finds the end of each HTTP/1.1 response (or request) in a stream of bytes and hands
// on its body without keeping it. Trusts its peer: it serves the load tool only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sublet::bench {

class HttpReader {
 public:
  // `on_body` gets the body piece by piece, chunk framing removed; `on_end` follows the last.
  std::function<void(std::string_view)> on_body;
  std::function<void()> on_end;

  void Feed(std::string_view data);

  // Valid within on_body and on_end.
  const std::string& head() const { return head_; }
  int code() const { return code_; }
  // The number after a header's colon, 0 when it is absent. `name` as "\r\nContent-Length:".
  static std::uint64_t HeaderNumber(std::string_view head, std::string_view name);

 private:
  enum class Stage : std::uint8_t { kHead, kBody, kChunkSize, kChunkEnd };
  void TakeHead(std::string_view* data);
  void TakeChunkSize(std::string_view* data);
  void End();

  Stage stage_ = Stage::kHead;
  std::string head_;
  std::string line_;
  int code_ = 0;
  bool chunked_ = false;
  std::uint64_t left_ = 0;
  bool last_chunk_ = false;
};

}  // namespace sublet::bench
