#include "apiserver/http/tunnel_pool.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace sublet::apiserver {
namespace {

// The client's side of an upgraded connection: TLS over a blocking-by-poll socket. One thread may
// read while another writes; the TLS session itself is entered under the mutex, never while
// waiting for the network.
class TlsRawConnection final : public RawConnection {
 public:
  TlsRawConnection(int fd, std::unique_ptr<TlsSession> tls, std::string early)
      : fd_(fd), tls_(std::move(tls)), early_(std::move(early)) {}
  ~TlsRawConnection() override { ::close(fd_); }

  Result<std::size_t> Read(char* data, std::size_t bytes_max) override;
  Result<void> Write(std::string_view data) override;
  void CloseWrite() override;
  void Close() override { ::shutdown(fd_, SHUT_RDWR); }

 private:
  static constexpr std::size_t kReadBytes = 16 * 1024;
  static constexpr std::size_t kWriteBytes = 64 * 1024;

  bool WaitFor(short events) const;
  Result<void> SendOut();

  const int fd_;
  Mutex mutex_;
  std::unique_ptr<TlsSession> tls_ SUBLET_GUARDED_BY(mutex_);
  std::string early_ SUBLET_GUARDED_BY(mutex_);
  Mutex send_mutex_;         // taken before mutex_: keeps records in order on the socket
  bool peer_ended_ = false;  // reader only
};

bool TlsRawConnection::WaitFor(short events) const {
  pollfd wait{fd_, events, 0};
  for (;;) {
    const int ready = ::poll(&wait, 1, -1);
    if (ready > 0) {
      return true;
    }
    if (ready < 0 && errno != EINTR) {
      return false;
    }
  }
}

Result<std::size_t> TlsRawConnection::Read(char* data, std::size_t bytes_max) {
  if (bytes_max == 0 || peer_ended_) {
    return std::size_t{0};
  }
  char received[kReadBytes];
  std::size_t received_bytes = 0;
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!early_.empty()) {
        const std::size_t bytes = std::min(bytes_max, early_.size());
        std::memcpy(data, early_.data(), bytes);
        early_.erase(0, bytes);
        return bytes;
      }
      std::size_t bytes = 0;
      tls_->Feed({received, received_bytes});
      received_bytes = 0;
      const auto outcome = tls_->Read(data, bytes_max, &bytes);
      tls_->KeepRest();
      if (outcome == TlsSession::Outcome::kOk) {
        return bytes;
      }
      if (outcome == TlsSession::Outcome::kClosed) {
        peer_ended_ = true;
        return std::size_t{0};
      }
      if (outcome == TlsSession::Outcome::kFailed) {
        return ServiceUnavailable("the client's TLS connection broke");
      }
    }
    if (!WaitFor(POLLIN)) {
      return ServiceUnavailable("the client's connection was lost");
    }
    const ssize_t got = ::recv(fd_, received, sizeof received, MSG_DONTWAIT);
    if (got == 0) {
      peer_ended_ = true;
      return std::size_t{0};
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return ServiceUnavailable("the client's connection was lost");
    }
    received_bytes = got > 0 ? static_cast<std::size_t>(got) : 0;
  }
}

Result<void> TlsRawConnection::SendOut() {
  std::string out;
  {
    MutexLock lock(mutex_);
    out.swap(tls_->out());
  }
  std::string_view left = out;
  while (!left.empty()) {
    const ssize_t sent = ::send(fd_, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      left.remove_prefix(static_cast<std::size_t>(sent));
    } else if ((errno != EAGAIN && errno != EINTR) || !WaitFor(POLLOUT)) {
      return ServiceUnavailable("the client's connection was lost");
    }
  }
  return {};
}

Result<void> TlsRawConnection::Write(std::string_view data) {
  MutexLock send_lock(send_mutex_);
  while (!data.empty()) {
    const auto part = data.substr(0, kWriteBytes);
    data.remove_prefix(part.size());
    {
      MutexLock lock(mutex_);
      if (!tls_->Write(part)) {
        return ServiceUnavailable("the client's TLS connection broke");
      }
    }
    SUBLET_RETURN_IF_ERROR(SendOut());
  }
  return {};
}

void TlsRawConnection::CloseWrite() {
  MutexLock send_lock(send_mutex_);
  {
    MutexLock lock(mutex_);
    tls_->Close();
  }
  if (SendOut().ok()) {
    ::shutdown(fd_, SHUT_WR);
  }
}

}  // namespace

struct TunnelPool::Tunnel {
  std::unique_ptr<TlsRawConnection> connection;
  std::thread thread;
  std::atomic<bool> done{false};
};

bool TunnelPool::Reserve() {
  Reap();
  MutexLock lock(mutex_);
  if (stopped_ || tunnels_.size() + reserved_ >= tunnels_max_) {
    return false;
  }
  ++reserved_;
  return true;
}

void TunnelPool::Release() {
  MutexLock lock(mutex_);
  --reserved_;
}

void TunnelPool::Run(int fd, std::unique_ptr<TlsSession> tls, std::string early, Upgrade upgrade) {
  auto tunnel = std::make_shared<Tunnel>();
  tunnel->connection = std::make_unique<TlsRawConnection>(fd, std::move(tls), std::move(early));
  MutexLock lock(mutex_);
  --reserved_;
  if (stopped_) {
    return;
  }
  tunnel->thread = std::thread([raw = tunnel.get(), upgrade = std::move(upgrade)] {
    pthread_setname_np(pthread_self(), "tunnel");
    upgrade.run(*raw->connection);
    raw->connection->CloseWrite();
    raw->connection->Close();
    raw->done.store(true, std::memory_order_release);
  });
  tunnels_.push_back(std::move(tunnel));
}

void TunnelPool::Reap() {
  std::list<std::shared_ptr<Tunnel>> finished;
  {
    MutexLock lock(mutex_);
    for (auto it = tunnels_.begin(); it != tunnels_.end();) {
      const auto current = it++;
      if ((*current)->done.load(std::memory_order_acquire)) {
        finished.splice(finished.end(), tunnels_, current);
      }
    }
  }
  for (const auto& tunnel : finished) {
    tunnel->thread.join();
  }
}

std::size_t TunnelPool::size() const {
  MutexLock lock(mutex_);
  return tunnels_.size();
}

void TunnelPool::Stop() {
  std::list<std::shared_ptr<Tunnel>> tunnels;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    tunnels.swap(tunnels_);
  }
  for (const auto& tunnel : tunnels) {
    tunnel->connection->Close();
  }
  for (const auto& tunnel : tunnels) {
    tunnel->thread.join();
  }
}

}  // namespace sublet::apiserver
