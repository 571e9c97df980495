#include "apiserver/http/listener.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <ctime>

#include "apiserver/http/connection.h"
#include "base/log.h"

namespace sublet::apiserver {

thread_local const IoThread* IoThread::current_ = nullptr;

IoThread::IoThread(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)),
      work_(boost::asio::make_work_guard(context_)),
      tick_(context_),
      read_buffer_(64 * 1024),
      plain_buffer_(16 * 1024) {}

IoThread::~IoThread() { Stop(); }

void IoThread::Start(int index) {
  thread_ = std::thread([this, index] {
    pthread_setname_np(pthread_self(), ("http-" + std::to_string(index)).c_str());
    current_ = this;
    context_.run();
    current_ = nullptr;
  });
}

void IoThread::Deliver(Message message) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    if (closed_) {
      return;  // the message dies outside the lock, with the caller's frame
    }
    wake = inbox_.empty();
    inbox_.push_back(std::move(message));
  }
  if (wake) {
    boost::asio::post(context_, [this] { RunInbox(); });
  }
}

void IoThread::RunInbox() {
  std::vector<Message> messages;
  {
    MutexLock lock(mutex_);
    messages.swap(inbox_);
  }
  for (Message& message : messages) {
    if (message.answer) {
      message.connection->OnAnswer(message.request, std::move(message.answer));
    } else {
      message.connection->OnWake();
    }
  }
}

void IoThread::Adopt(boost::asio::ip::tcp::socket socket, std::string remote_address) {
  boost::asio::post(
      context_, [this, held = std::make_shared<boost::asio::ip::tcp::socket>(std::move(socket)),
                 remote = std::move(remote_address)]() mutable {
        if (ended_) {
          shared_->connections.fetch_sub(1, std::memory_order_relaxed);
          return;
        }
        auto connection =
            std::make_shared<Connection>(shared_from_this(), std::move(*held), std::move(remote));
        connections_.emplace(connection.get(), connection);
        connection->Start();
      });
}

void IoThread::Remove(Connection* connection) { connections_.erase(connection); }

void IoThread::Drain() {
  boost::asio::post(context_, [this] {
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto connection = (it++)->second;
      connection->Drain();
    }
  });
}

void IoThread::Stop() {
  if (!thread_.joinable()) {
    return;
  }
  boost::asio::post(context_, [this] {
    ended_ = true;
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto connection = (it++)->second;
      connection->Shut();
    }
    tick_.cancel();
    work_.reset();
  });
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  thread_.join();
  std::vector<Message> dropped;
  MutexLock lock(mutex_);
  dropped.swap(inbox_);
}

void IoThread::ArmTick() {
  if (tick_armed_ || ended_) {
    return;
  }
  tick_armed_ = true;
  tick_.expires_after(std::chrono::seconds(1));
  tick_.async_wait([this](const boost::system::error_code& error) {
    tick_armed_ = false;
    if (!error) {
      OnTick();
    }
  });
}

// No tick runs while only idle streams are open: a sleeping server costs nothing.
void IoThread::OnTick() {
  const auto now = std::chrono::steady_clock::now();
  bool more = false;
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto connection = (it++)->second;
    connection->OnTick(now);
    more = more || connection->HasDeadline();
  }
  if (more) {
    ArmTick();
  }
}

std::string_view IoThread::HttpDate() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    std::tm parts{};
    gmtime_r(&now, &parts);
    date_bytes_ = std::strftime(date_.data(), date_.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  }
  return {date_.data(), date_bytes_};
}

namespace {

using boost::asio::ip::tcp;

class TcpListener final : public Listener {
 public:
  TcpListener(const ListenerOptions& options, Handler& handler)
      : shared_(std::make_shared<Shared>(options, handler)) {
    for (int i = 0; i < std::max(1, options.io_threads); ++i) {
      threads_.push_back(std::make_shared<IoThread>(shared_));
    }
    acceptor_ = std::make_unique<tcp::acceptor>(threads_[0]->context());
  }
  ~TcpListener() override { Stop(std::chrono::milliseconds(0)); }

  Result<void> Bind();
  std::uint16_t port() const override { return port_; }
  void Start() override;
  Result<void> SetTls(const TlsMaterial& material) override;
  void Stop(std::chrono::milliseconds drain) override;
  ListenerStats stats() const override {
    return {shared_->connections.load(), shared_->accepted.load(), shared_->refused.load(),
            shared_->tunnels.size()};
  }

 private:
  void Accept();
  void OnAccept(const boost::system::error_code& error, tcp::socket socket);

  const std::shared_ptr<Shared> shared_;
  std::vector<std::shared_ptr<IoThread>> threads_;
  std::unique_ptr<tcp::acceptor> acceptor_;  // lives on threads_[0]
  std::unique_ptr<boost::asio::steady_timer> retry_;
  std::size_t next_thread_ = 0;
  std::uint16_t port_ = 0;
  bool started_ = false;
  bool stopped_ = false;
};

Result<void> TcpListener::Bind() {
  const ListenerOptions& options = shared_->options;
  SUBLET_RETURN_IF_ERROR(SetTls(options.tls));
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(options.address, error);
  if (error) {
    return BadRequest("not an IP address to listen on: \"" + options.address + "\"");
  }
  const tcp::endpoint endpoint(address, options.port);
  acceptor_->open(endpoint.protocol(), error);
  if (!error) {
    acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
  }
  if (!error) {
    if (options.free_bind && address.is_v4()) {
      const int on = 1;
      setsockopt(acceptor_->native_handle(), IPPROTO_IP, IP_FREEBIND, &on, sizeof(on));
    }
    acceptor_->bind(endpoint, error);
  }
  if (!error) {
    acceptor_->listen(4096, error);
  }
  if (error) {
    const std::string where = options.address + ":" + std::to_string(options.port);
    if (error == boost::asio::error::address_in_use) {
      return Status(Reason::kConflict, "cannot listen on " + where + ": another process does");
    }
    if (error == boost::asio::error::access_denied) {
      return Status(Reason::kForbidden, "cannot listen on " + where + ": " + error.message());
    }
    return BadRequest("cannot listen on " + where + ": " + error.message());
  }
  port_ = acceptor_->local_endpoint(error).port();
  return {};
}

void TcpListener::Start() {
  started_ = true;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    threads_[i]->Start(static_cast<int>(i));
  }
  boost::asio::post(threads_[0]->context(), [this] { Accept(); });
}

void TcpListener::Accept() {
  IoThread& thread = *threads_[next_thread_];
  acceptor_->async_accept(thread.context(),
                          [this](const boost::system::error_code& error, tcp::socket socket) {
                            OnAccept(error, std::move(socket));
                          });
}

void TcpListener::OnAccept(const boost::system::error_code& error, tcp::socket socket) {
  if (error == boost::asio::error::operation_aborted || !acceptor_->is_open()) {
    return;
  }
  if (error) {
    // Out of descriptors or memory: waiting is all that helps; clients wait in the backlog.
    log::Warn("cannot take a connection", {{"error", error.message()}});
    retry_ = std::make_unique<boost::asio::steady_timer>(threads_[0]->context(),
                                                         std::chrono::milliseconds(50));
    retry_->async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) {
        Accept();
      }
    });
    return;
  }
  IoThread& thread = *threads_[next_thread_];
  next_thread_ = (next_thread_ + 1) % threads_.size();
  if (shared_->connections.fetch_add(1) >= shared_->options.connections_max) {
    shared_->connections.fetch_sub(1);
    shared_->refused.fetch_add(1);
  } else {
    shared_->accepted.fetch_add(1);
    boost::system::error_code gone;
    const auto remote = socket.remote_endpoint(gone);
    thread.Adopt(
        std::move(socket),
        gone ? "unknown" : remote.address().to_string() + ":" + std::to_string(remote.port()));
  }
  Accept();
}

Result<void> TcpListener::SetTls(const TlsMaterial& material) {
  SUBLET_TRY(auto context, TlsContext::Make(material));
  shared_->tls.Store(std::move(context));
  return {};
}

void TcpListener::Stop(std::chrono::milliseconds drain) {
  if (stopped_) {
    return;
  }
  stopped_ = true;
  if (!started_) {
    return;
  }
  shared_->draining.store(true);
  boost::asio::post(threads_[0]->context(), [this] {
    boost::system::error_code ignored;
    acceptor_->close(ignored);
    retry_.reset();
  });
  for (const auto& thread : threads_) {
    thread->Drain();
  }
  const auto deadline = After(drain);
  while (shared_->connections.load() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  shared_->tunnels.Stop();
  for (const auto& thread : threads_) {
    thread->Stop();
  }
}

}  // namespace

Result<std::unique_ptr<Listener>> OpenListener(const ListenerOptions& options, Handler& handler) {
  auto listener = std::make_unique<TcpListener>(options, handler);
  SUBLET_RETURN_IF_ERROR(listener->Bind());
  return std::unique_ptr<Listener>(std::move(listener));
}

std::uint64_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return 0;
  }
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
      getrlimit(RLIMIT_NOFILE, &limit);
    }
  }
  return limit.rlim_cur;
}

}  // namespace sublet::apiserver
