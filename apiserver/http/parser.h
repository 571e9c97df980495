// RequestParser: HTTP/1.1 requests out of a byte stream, strict where leniency has been abused
// (request smuggling): both Content-Length and Transfer-Encoding, folded headers, bare line feeds,
// blanks before the colon and unknown transfer codings are refused.
// Used by http/connection.cc. Threads: one at a time. Source: RFC 9112.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sublet::apiserver {

struct ParserLimits {
  std::size_t head_bytes_max = 64 * 1024;
  std::size_t headers_max = 128;
  std::size_t body_bytes_max = 3u << 20;
};

struct ParsedRequest {
  std::string method;
  std::string raw_path;                                      // as sent, without the query
  std::string raw_query;                                     // without '?'
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  bool keep_alive = true;
  bool http_1_0 = false;
  bool accepts_gzip = false;
  bool is_upgrade = false;  // Connection: Upgrade
};

class RequestParser {
 public:
  enum class State : std::uint8_t {
    kNeedMore,      // all of the input that can be used was used
    kSendContinue,  // the client waits for "100 Continue"; call Parse again afterwards
    kDone,          // request() is whole
    kError,         // error_code() says what to answer; the connection cannot be used further
  };

  explicit RequestParser(const ParserLimits& limits) : limits_(limits) {}

  // Reads from the front of `data` and sets `consumed`: the caller drops that many bytes and gives
  // the rest again, with more behind it. After kDone call Take.
  State Parse(std::string_view data, std::size_t* consumed);
  // The finished request; the parser starts over.
  ParsedRequest Take();

  // True between requests: nothing of a next one has been consumed.
  bool idle() const { return stage_ == Stage::kHead; }
  int error_code() const { return error_code_; }  // 400, 413, 431, 501, 505
  const std::string& error_text() const { return error_text_; }

 private:
  enum class Stage : std::uint8_t {
    kHead,
    kBody,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailer,
    kDone,
    kFailed
  };

  State Fail(int code, std::string_view text);
  bool ParseHead(std::string_view head);
  bool ParseRequestLine(std::string_view line);
  bool ParseHeaderLine(std::string_view line);
  bool ApplyHeader(const std::string& name, std::string_view value);
  bool FinishHead();
  // One step inside the body; returns false when it needs more input.
  bool StepBody(std::string_view* data);
  bool TakeLine(std::string_view* data, std::string_view* line);
  bool StepChunkSize(std::string_view* data);

  const ParserLimits limits_;
  Stage stage_ = Stage::kHead;
  std::size_t scanned_ = 0;  // of the head, without finding its end
  std::size_t skipped_ = 0;  // bytes of empty lines before it
  std::uint64_t body_left_ = 0;
  std::size_t trailer_bytes_ = 0;
  bool has_length_ = false;
  bool is_chunked_ = false;
  bool expects_continue_ = false;
  bool has_host_ = false;
  int error_code_ = 0;
  std::string error_text_;
  ParsedRequest request_;
};

}  // namespace sublet::apiserver
