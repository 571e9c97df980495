// Response and Responder: how a handler answers. A handler may answer at once, from another thread
// after a commit, with a stream (watch, logs), or by switching to a tunnel (exec).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sublet::apiserver {

// A body gathered from owned text and from buffers that storage published (not copied here; the
// transport gathers them into its records).
class Body {
 public:
  Body() = default;
  explicit Body(std::string text) { Append(std::move(text)); }

  struct Piece {
    std::string_view bytes;
    std::shared_ptr<const void> owner;
    // The kube::Json that `bytes` encode, where a watch of this process gets both; else null.
    std::shared_ptr<const void> decoded{};
  };
  explicit Body(std::vector<Piece> pieces);

  void Append(std::string text);
  // `owner` keeps `bytes` alive until the body is sent.
  void AppendShared(std::shared_ptr<const void> owner, std::string_view bytes);

  const std::vector<Piece>& pieces() const { return pieces_; }
  // The pieces, moved out; the body is then empty.
  std::vector<Piece> TakePieces() {
    size_ = 0;
    return std::exchange(pieces_, {});
  }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::string Flatten() const;

 private:
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

struct Response {
  int code = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  Body body;
};

// The source of a streaming response. The transport pulls; it owns the stream and destroys it when
// the client goes away or the server stops.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  enum class State { kMore, kWait, kEnd };
  // Appends what is ready to `out` (at most about `bytes_max`, at least one whole frame). kWait:
  // nothing more now, `wake` (see Start) will be called. kEnd: the response ends cleanly.
  // Threads: the transport's thread of this connection; must not block.
  virtual State Pull(std::vector<Body::Piece>& out, std::size_t bytes_max) = 0;
  // Called once before the first Pull. `wake` may be called from any thread, any number of times,
  // until the stream is destroyed.
  virtual void Start(std::function<void()> wake) = 0;
};

// A raw connection for after "101 Switching Protocols" (exec, attach, port-forward, proxied
// upgrades): bytes both ways, blocking, driven by threads of the tunnel pool.
class RawConnection {
 public:
  virtual ~RawConnection() = default;
  virtual Result<std::size_t> Read(char* data, std::size_t bytes_max) = 0;  // 0 = peer ended
  virtual Result<void> Write(std::string_view data) = 0;
  virtual void CloseWrite() = 0;
  virtual void Close() = 0;
};

// The other end of an upgraded connection, as client/transport.h's Tunnel provides it.
struct Upgrade {
  // Runs on a tunnel thread with the client's connection; returns when both sides are done.
  std::function<void(RawConnection&)> run;
};

// One answer to one request. Exactly one of the calls is made, from any thread; when a Responder is
// destroyed unused it answers 500 by itself, so that no client hangs.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void Send(Response response) = 0;
  virtual void SendStream(Response head, std::unique_ptr<ByteStream> stream) = 0;
  virtual void SendUpgrade(Response head, Upgrade upgrade) = 0;
  // By when an answer must have been given; past it the transport answers 504 itself and drops what
  // comes later. Called by the pipeline before the handler runs.
  virtual void AnswerBy(Deadline) {}
};
using ResponderPtr = std::unique_ptr<Responder>;

}  // namespace sublet::apiserver
