// SPDY/3.1 on the server's side, as kubectl's exec, attach and port-forward (and upstream's API
// server) speak it: streams opened by the client, headers compressed with the protocol's
// dictionary. Flow control windows are not enforced in either direction, as in moby/spdystream,
// which is what is at the other end; TCP's own back-pressure holds instead.
//
//   SpdyReader   bytes -> frames (pure; fuzzed)
//   SpdySession  reads a Duplex, hands out streams, answers pings
//
// Source: SPDY Protocol Draft 3.1 (chromium.org), k8s.io/apimachinery util/httpstream/spdy.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "node/kubelet_api/duplex.h"

struct z_stream_s;

namespace sublet::node {

using SpdyHeaders = std::map<std::string, std::string>;  // names as sent (lower case)

struct SpdyFrame {
  enum class Kind : std::uint8_t {
    kData,
    kSynStream,
    kSynReply,
    kReset,
    kSettings,
    kPing,
    kGoAway,
    kHeaders,
    kWindowUpdate,
    kOther
  };
  Kind kind = Kind::kOther;
  std::uint32_t stream = 0;  // or a ping's number
  bool fin = false;
  std::string data;
  SpdyHeaders headers;
};

class SpdyReader {
 public:
  SpdyReader();
  ~SpdyReader();
  SpdyReader(const SpdyReader&) = delete;
  SpdyReader& operator=(const SpdyReader&) = delete;

  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next frame, or nullopt when more bytes are needed. Errors: BadRequest (not SPDY/3, bad
  // header block), RequestEntityTooLarge (frame above 16 MiB, headers above 64 KiB).
  Result<std::optional<SpdyFrame>> Next();

 private:
  Result<SpdyHeaders> Inflate(std::string_view block);
  std::string buffer_;
  std::unique_ptr<z_stream_s> inflate_;
};

// Frames to be sent. Not shared between threads: header compression has one state per connection.
class SpdyWriter {
 public:
  SpdyWriter();
  ~SpdyWriter();
  SpdyWriter(const SpdyWriter&) = delete;
  SpdyWriter& operator=(const SpdyWriter&) = delete;

  std::string SynReply(std::uint32_t stream, const SpdyHeaders& headers);
  // As a client does (for tests).
  std::string SynStream(std::uint32_t stream, const SpdyHeaders& headers, bool fin);
  static std::string Data(std::uint32_t stream, std::string_view data, bool fin);
  static std::string Reset(std::uint32_t stream, std::uint32_t status);
  static std::string Ping(std::uint32_t number);
  static std::string GoAway(std::uint32_t last_stream);

 private:
  std::string Deflate(const SpdyHeaders& headers);
  std::unique_ptr<z_stream_s> deflate_;
};

class SpdySession;

// One stream that the client opened. Threads: Read by one thread, Write and Close by another.
class SpdyStream {
 public:
  SpdyStream(SpdySession& session, std::uint32_t id, SpdyHeaders headers)
      : session_(session), id_(id), headers_(std::move(headers)) {}

  std::uint32_t id() const { return id_; }
  // "" when absent; names are lower-cased.
  std::string Header(const std::string& lower_case_name) const;

  // Blocks for data; "" at the end of the client's side (or of the session).
  std::string Read() SUBLET_EXCLUDES(mutex_);
  // False when the stream or session has ended.
  bool Write(std::string_view data);
  // Ends our side.
  void Close();
  // Ends both sides at once.
  void Reset();
  // What the client still sends is of no use: Read returns "" from now on.
  void Abandon() { Kill(); }
  // Reset, or its session is over (and not merely ended by the client).
  bool dead() SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return dead_;
  }

 private:
  friend class SpdySession;
  // Blocks while kQueueBytesMax wait to be read, unless the stream is dead.
  void Push(std::string data, bool fin) SUBLET_EXCLUDES(mutex_);
  void Kill() SUBLET_EXCLUDES(mutex_);

  static constexpr std::size_t kQueueBytesMax = 1u << 20;
  SpdySession& session_;
  const std::uint32_t id_;
  const SpdyHeaders headers_;
  Mutex mutex_;
  CondVar changed_;
  std::string queue_ SUBLET_GUARDED_BY(mutex_);
  bool fin_ SUBLET_GUARDED_BY(mutex_) = false;     // the client has ended its side
  bool dead_ SUBLET_GUARDED_BY(mutex_) = false;    // reset, or the session is over
  bool closed_ SUBLET_GUARDED_BY(mutex_) = false;  // our side
};

class SpdySession {
 public:
  // Returns false to refuse the stream (it is reset). Called on the reading thread.
  using OnStream = std::function<bool(std::shared_ptr<SpdyStream> stream)>;

  // `connection` outlives the session; `early` are bytes that were read behind the request's head.
  SpdySession(Duplex& connection, std::string early);
  ~SpdySession();

  // Reads until the connection ends, then kills all streams. Errors end it as well (they are
  // returned for the log).
  Result<void> Run(const OnStream& on_stream);
  // Makes Run return. Threads: any.
  void Shutdown();

 private:
  friend class SpdyStream;
  bool Send(const std::string& frame);
  void Handle(SpdyFrame frame, const OnStream& on_stream);
  std::shared_ptr<SpdyStream> FindStream(std::uint32_t id) SUBLET_EXCLUDES(mutex_);

  static constexpr std::size_t kStreamsMax = 2000;
  Duplex& connection_;
  SpdyReader reader_;
  Mutex mutex_;
  SpdyWriter writer_ SUBLET_GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::shared_ptr<SpdyStream>> streams_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::node
