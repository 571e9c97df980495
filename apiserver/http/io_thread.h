// IoThread: one event loop with the connections that live on it, and the inbox through which other
// threads hand answers to them. Private to http/; the only header here that includes Asio.
//
// Invariants
//  1. A connection is created, used and closed on its loop's thread only.
//  2. Others reach it through Deliver; after the loop has ended Deliver drops what it gets.
//  3. Connections hold their loop, so a late answer finds memory, never a dangling pointer.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "apiserver/http/gzip.h"
#include "apiserver/http/listener.h"
#include "apiserver/http/tunnel_pool.h"
#include "base/mutex.h"
#include "base/shared_slot.h"

namespace sublet::apiserver {

class Connection;

// What a Responder was told.
struct Answer {
  Response head;
  std::unique_ptr<ByteStream> stream;
  Upgrade upgrade;
};

// What all connections of a listener share.
struct Shared {
  Shared(const ListenerOptions& o, Handler& h) : options(o), handler(h), tunnels(o.tunnels_max) {}

  const ListenerOptions options;
  Handler& handler;
  SharedSlot<TlsContext> tls;
  std::atomic<bool> draining{false};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> refused{0};
  TunnelPool tunnels;
  GzipCache gzip;
};

class IoThread : public std::enable_shared_from_this<IoThread> {
 public:
  struct Message {
    std::shared_ptr<Connection> connection;
    std::uint64_t request = 0;       // which of the connection's requests it answers
    std::unique_ptr<Answer> answer;  // null: the stream has more
  };

  explicit IoThread(std::shared_ptr<Shared> shared);
  ~IoThread();

  void Start(int index);
  // Any thread. Drops the message once the loop has ended.
  void Deliver(Message message) SUBLET_EXCLUDES(mutex_);
  // Any thread: takes over a fresh socket.
  void Adopt(boost::asio::ip::tcp::socket socket, std::string remote_address);
  // Any thread: idle connections close, the others after their answer.
  void Drain();
  // Cuts what is left and joins. After it Deliver drops.
  void Stop() SUBLET_EXCLUDES(mutex_);

  // Loop thread only from here on.
  bool IsCurrent() const { return current_ == this; }
  void Remove(Connection* connection);
  // Makes sure that deadlines are looked at within a second.
  void ArmTick();
  std::string_view HttpDate();
  boost::asio::io_context& context() { return context_; }
  std::vector<char>& read_buffer() { return read_buffer_; }
  std::vector<char>& plain_buffer() { return plain_buffer_; }
  // A warm output buffer, lent to one connection at a time so that big answers do not allocate.
  std::string& spare_output() { return spare_output_; }
  const std::shared_ptr<Shared>& shared() const { return shared_; }

 private:
  void RunInbox() SUBLET_EXCLUDES(mutex_);
  void OnTick();

  static thread_local const IoThread* current_;

  const std::shared_ptr<Shared> shared_;
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer tick_;
  bool tick_armed_ = false;
  bool ended_ = false;
  std::vector<char> read_buffer_;
  std::vector<char> plain_buffer_;
  std::string spare_output_;
  std::time_t date_second_ = 0;
  std::array<char, 64> date_{};
  std::size_t date_bytes_ = 0;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;

  mutable Mutex mutex_;
  std::vector<Message> inbox_ SUBLET_GUARDED_BY(mutex_);
  bool closed_ SUBLET_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sublet::apiserver
