#include "apiserver/tunnel/pump.h"

#include <pthread.h>

#include <thread>

namespace sublet::apiserver {
namespace {

constexpr std::size_t kBufferBytes = 32 * 1024;

template <typename From, typename To>
void Copy(From& from, To& to) {
  const auto buffer = std::make_unique<char[]>(kBufferBytes);
  for (;;) {
    const auto got = from.Read(buffer.get(), kBufferBytes);
    if (!got.ok() || *got == 0 || !to.Write({buffer.get(), *got}).ok()) {
      return;
    }
  }
}

class LogStream final : public ByteStream {
 public:
  explicit LogStream(std::unique_ptr<client::Stream> stream) : stream_(std::move(stream)) {}

  State Pull(std::vector<Body::Piece>& out, std::size_t bytes_max) override {
    std::size_t bytes = 0;
    while (bytes < bytes_max) {
      auto next = stream_->Next(Deadline::min());
      if (!next.ok()) {
        return next.error().Is(Reason::kTimeout) ? State::kWait : State::kEnd;
      }
      if (!*next) {
        return State::kEnd;
      }
      client::Chunk chunk = std::move(**next);
      bytes += chunk->size();
      const std::string_view view = *chunk;
      out.push_back({view, std::move(chunk)});
    }
    return State::kMore;
  }
  void Start(std::function<void()> wake) override { stream_->NotifyWhenReady(std::move(wake)); }

 private:
  const std::unique_ptr<client::Stream> stream_;
};

}  // namespace

// As upstream, the end of one direction ends both: exec's status travels before the kubelet closes,
// and a client that closes wants nothing more.
void Pump(RawConnection& connection, client::Tunnel& tunnel) {
  std::thread back([&] {
    pthread_setname_np(pthread_self(), "tunnel-back");
    Copy(tunnel, connection);
    connection.CloseWrite();
    connection.Close();
  });
  Copy(connection, tunnel);
  tunnel.CloseWrite();
  tunnel.Close();
  back.join();
}

std::unique_ptr<ByteStream> MakeLogStream(std::unique_ptr<client::Stream> stream) {
  return std::make_unique<LogStream>(std::move(stream));
}

}  // namespace sublet::apiserver
