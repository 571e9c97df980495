// Connection: one TLS client. A state machine on its IoThread: handshake, read a request, hand it
// to the handler, write the answer, again. Private to http/. Receiving and the deadlines are in
// connection.cc, answering is in connection_answer.cc.
#pragma once

#include "apiserver/http/io_thread.h"

namespace sublet::apiserver {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<IoThread> io, boost::asio::ip::tcp::socket socket,
             std::string remote_address);
  ~Connection();

  void Start();
  // An answer arrived for request number `request`; late ones are dropped.
  void OnAnswer(std::uint64_t request, std::unique_ptr<Answer> answer);
  // The stream has more.
  void OnWake();
  // Once a second: enforces the deadline of the current state.
  void OnTick(MonotonicTime now);
  // False while only something from outside can happen to it: no tick is needed.
  bool HasDeadline() const;
  void Drain();
  void Shut();

  // Any thread.
  void DeliverAnswer(std::uint64_t request, std::unique_ptr<Answer> answer);
  void DeliverWake();
  void SetAnswerDeadline(Deadline deadline) {
    answer_deadline_.store(deadline.time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kPlainBytesMax = 128 * 1024;  // more than the largest head
  enum class State : std::uint8_t {
    kHandshake,
    kRequest,
    kHandling,
    kAnswering,
    kStreaming,
    kLingering,
    kShut
  };

  // connection.cc
  void WaitReadable();
  void WaitWritable();
  void OnReadable();
  // Decrypts what was fed into plain_, up to its bound.
  bool Decrypt();
  // Takes requests out of plain_ until one is in work or more input is needed.
  void Process();
  void Dispatch(ParsedRequest parsed);
  void FailRequest(int code, const std::string& text);

  // connection_answer.cc
  void Begin(std::unique_ptr<Answer> answer);
  void BeginUpgrade(std::unique_ptr<Answer> answer);
  void Detach();
  std::string MakeHead(const Response& head, bool has_body, std::size_t body_bytes, bool is_stream);
  // Encrypts and sends until the answer is done, the socket is full or the stream waits.
  void Pump();
  bool FillOutput();
  void PullStream();
  enum class Sent : std::uint8_t { kAll, kBlocked, kFailed };
  Sent SendOutput();
  void FinishAnswer();
  void Linger();
  void Touch(std::chrono::milliseconds timeout);

  const std::shared_ptr<IoThread> io_;
  Shared& shared_;
  boost::asio::ip::tcp::socket socket_;
  const std::string remote_address_;
  std::unique_ptr<TlsSession> tls_;
  PeerIdentity peer_;
  RequestParser parser_;
  std::string plain_;
  State state_ = State::kHandshake;
  bool reading_ = false;  // an async_wait for input runs
  bool writing_ = false;  // an async_wait for output runs
  bool keep_alive_ = true;
  bool accepts_gzip_ = false;
  bool is_head_ = false;
  bool is_http_1_0_ = false;
  bool chunked_ = false;
  bool in_process_ = false;
  bool upgrading_ = false;
  std::uint64_t request_ = 0;
  MonotonicTime deadline_;
  std::size_t lingered_bytes_ = 0;

  // The answer being written.
  std::unique_ptr<Answer> early_answer_;  // given while Process was on the stack
  std::string head_text_;                 // goes before the pieces
  std::vector<Body::Piece> pieces_;
  std::size_t piece_ = 0;
  std::size_t piece_offset_ = 0;
  bool stream_ended_ = false;
  Upgrade upgrade_;
  std::unique_ptr<ByteStream> stream_;
  std::size_t out_sent_ = 0;

  std::atomic<bool> wake_pending_{false};
  std::atomic<MonotonicTime::rep> answer_deadline_{MonotonicTime::max().time_since_epoch().count()};
};

}  // namespace sublet::apiserver
