// HttpResponseParser: HTTP/1.1 response bytes to head and body, in pieces as they arrive. No I/O:
// client/http_transport.cc feeds it. Outside bytes: fuzzed by http_response_parser_fuzz.cc.
// Threads: confined to its connection.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "client/transport.h"

namespace sublet::client {

class HttpResponseParser {
 public:
  // `has_body` is false for the answer to HEAD.
  explicit HttpResponseParser(bool has_body = true) : has_body_(has_body) {}

  // Takes bytes; decoded body bytes are appended to *body. Returns how many of `data` belong to
  // this response (fewer only when it is complete; the rest is the next one's, or the tunnel's
  // after 101). Errors: ServiceUnavailable (not HTTP/1.x, a head above 256 KiB, a malformed chunk).
  Result<std::size_t> Feed(std::string_view data, std::string* body);
  // The peer closed the connection. Errors: ServiceUnavailable when the response is cut short.
  Result<void> FeedEnd();

  bool head_done() const { return state_ != State::kHead; }
  bool complete() const { return state_ == State::kComplete; }
  // Whether the connection can carry another request afterwards.
  bool keep_alive() const { return keep_alive_; }
  int code() const { return code_; }
  Headers& headers() { return headers_; }

 private:
  enum class State {
    kHead,
    kLength,
    kUntilEnd,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailer,
    kComplete
  };
  // Bytes used from `data`, or an error.
  Result<std::size_t> FeedHead(std::string_view data);
  Result<void> ParseHead();
  Result<void> ParseHeaderLine(std::string_view line);
  Result<void> ChooseBody();
  Result<std::size_t> FeedLine(std::string_view data);
  Result<void> ChunkLine();

  const bool has_body_;
  State state_ = State::kHead;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool has_length_ = false;
  int code_ = 0;
  std::uint64_t left_ = 0;  // of the body or of the chunk
  std::string line_;        // an unfinished head, chunk size or trailer line
  Headers headers_;
};

}  // namespace sublet::client
