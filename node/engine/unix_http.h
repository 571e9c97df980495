// HTTP/1.1 over a Unix socket, blocking: how the node agent talks to the container engine. Three
// shapes: Call (answer as a whole), OpenStream (a body that keeps coming) and OpenHijack (raw bytes
// both ways, as exec and attach use). Used by node/engine/docker_engine.cc only.
// Threads: every object belongs to one thread at a time, except Cancel() and Hijack (one reader and
// one writer); UnixHttp itself may be shared.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sublet::node {

struct EngineResponse {
  int code = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names lower-cased
  std::string body;
  std::string_view Header(std::string_view lower_case_name) const;
};

// The head of a response: status line and header fields, without the body.
// Errors: BadRequest (not HTTP/1.x). `text` ends before the empty line.
Result<EngineResponse> ParseResponseHead(std::string_view text);

// Undoes chunked transfer coding on bytes as they come.
class ChunkDecoder {
 public:
  // Appends the decoded bytes of `input` to `out`. Errors: BadRequest (malformed chunk size or
  // trailer). Bytes after the last chunk are ignored.
  Result<void> Feed(std::string_view input, std::string* out);
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State : std::uint8_t { kSize, kExtension, kData, kDataEnd, kTrailer, kDone };
  State state_ = State::kSize;
  std::uint64_t left_ = 0;
  int digits_ = 0;
  std::size_t trailer_line_ = 0;
};

struct EngineRequest {
  std::string method = "GET";
  std::string target;  // path and query, percent-encoded
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  // When >= 0: the body is this file from its current offset to its end (images).
  int body_fd = -1;
  Deadline deadline = Deadline::max();
};

// Ends a call from another thread: the waiting call returns Timeout. Lifetime: outlives the call.
class Canceller {
 public:
  ~Canceller();
  Canceller();
  Canceller(const Canceller&) = delete;
  Canceller& operator=(const Canceller&) = delete;
  void Cancel();
  bool cancelled() const { return cancelled_.load(); }
  int fd() const { return fd_; }  // readable once cancelled

 private:
  int fd_;
  std::atomic<bool> cancelled_{false};
};

// A response body that keeps coming.
class EngineStream {
 public:
  virtual ~EngineStream() = default;
  // Appends at least one byte to `out`; false at the end of the body. Errors: Timeout (deadline or
  // cancelled), ServiceUnavailable (the engine went away in mid-body).
  virtual Result<bool> Read(std::string* out, Deadline deadline) = 0;
};

// Raw bytes both ways after the engine switched protocols.
class Hijack {
 public:
  virtual ~Hijack() = default;
  // Reads up to `bytes_max`; 0 at the end. Errors: Timeout, ServiceUnavailable.
  virtual Result<std::size_t> Read(char* data, std::size_t bytes_max, Deadline deadline) = 0;
  virtual Result<void> Write(std::string_view data) = 0;
  virtual void CloseWrite() = 0;
  // Makes a waiting Read or Write return an error. Threads: any.
  virtual void Cancel() = 0;
};

class UnixHttp {
 public:
  explicit UnixHttp(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  // Errors: ServiceUnavailable (no engine behind the socket, connection cut), Timeout,
  // RequestEntityTooLarge (answer above 64 MiB). HTTP error codes are answers, not errors.
  Result<EngineResponse> Call(const EngineRequest& request, Canceller* cancel = nullptr) const;
  // The body of a 2xx answer as a stream; other codes come back with their body in `head`.
  // `cancel` (optional) must outlive the stream.
  Result<std::unique_ptr<EngineStream>> OpenStream(const EngineRequest& request,
                                                   EngineResponse* head,
                                                   Canceller* cancel = nullptr) const;
  // A switched connection; null (with the answer in `head`) when the engine did not switch.
  // `cancel` (optional, outlives the connection) ends its waits as Hijack::Cancel does.
  Result<std::unique_ptr<Hijack>> OpenHijack(const EngineRequest& request, EngineResponse* head,
                                             Canceller* cancel = nullptr) const;

  const std::string& socket_path() const { return socket_path_; }

 private:
  std::string socket_path_;
};

}  // namespace sublet::node
