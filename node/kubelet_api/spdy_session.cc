// Streams and sessions of SPDY (spdy.h).
#include <algorithm>

#include "node/kubelet_api/spdy.h"

namespace sublet::node {
namespace {

constexpr std::size_t kWriteBytesMax = 64u << 10;
constexpr std::uint32_t kRefusedStream = 3;
constexpr std::uint32_t kCancel = 5;

}  // namespace

std::string SpdyStream::Header(const std::string& lower_case_name) const {
  const auto it = headers_.find(lower_case_name);
  return it == headers_.end() ? "" : it->second;
}

std::string SpdyStream::Read() {
  std::string out;
  {
    MutexLock lock(mutex_);
    while (queue_.empty() && !fin_ && !dead_) {
      changed_.Wait(mutex_);
    }
    out.swap(queue_);
  }
  changed_.NotifyAll();
  return out;
}

void SpdyStream::Push(std::string data, bool fin) {
  {
    MutexLock lock(mutex_);
    while (queue_.size() >= kQueueBytesMax && !dead_) {
      changed_.Wait(mutex_);
    }
    if (!dead_ && !fin_) {
      queue_ += data;
    }
    fin_ = fin_ || fin;
  }
  changed_.NotifyAll();
}

void SpdyStream::Kill() {
  {
    MutexLock lock(mutex_);
    dead_ = true;
  }
  changed_.NotifyAll();
}

bool SpdyStream::Write(std::string_view data) {
  while (!data.empty()) {
    {
      MutexLock lock(mutex_);
      if (dead_ || closed_) {
        return false;
      }
    }
    const std::string_view piece = data.substr(0, kWriteBytesMax);
    if (!session_.Send(SpdyWriter::Data(id_, piece, false))) {
      return false;
    }
    data.remove_prefix(piece.size());
  }
  return true;
}

void SpdyStream::Close() {
  {
    MutexLock lock(mutex_);
    if (dead_ || closed_) {
      return;
    }
    closed_ = true;
  }
  session_.Send(SpdyWriter::Data(id_, {}, true));
}

void SpdyStream::Reset() {
  Kill();
  session_.Send(SpdyWriter::Reset(id_, kCancel));
}

SpdySession::SpdySession(Duplex& connection, std::string early) : connection_(connection) {
  reader_.Feed(early);
}

SpdySession::~SpdySession() = default;

bool SpdySession::Send(const std::string& frame) { return connection_.Write(frame).ok(); }

void SpdySession::Shutdown() { connection_.Shutdown(); }

std::shared_ptr<SpdyStream> SpdySession::FindStream(std::uint32_t id) {
  MutexLock lock(mutex_);
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : it->second;
}

void SpdySession::Handle(SpdyFrame frame, const OnStream& on_stream) {
  switch (frame.kind) {
    case SpdyFrame::Kind::kSynStream: {
      auto stream = std::make_shared<SpdyStream>(*this, frame.stream, std::move(frame.headers));
      std::string reply;
      {
        MutexLock lock(mutex_);
        std::erase_if(streams_, [](const auto& item) {
          MutexLock stream_lock(item.second->mutex_);
          return item.second->dead_ || (item.second->fin_ && item.second->closed_);
        });
        if (streams_.size() < kStreamsMax && streams_.emplace(frame.stream, stream).second) {
          // Sent under the lock: the order of compressed blocks must be that of compression.
          Send(writer_.SynReply(frame.stream, {}));
          reply = "accepted";
        }
      }
      if (frame.fin) {
        stream->Push({}, true);
      }
      if (reply.empty() || !on_stream(stream)) {
        Send(SpdyWriter::Reset(frame.stream, kRefusedStream));
        stream->Kill();
      }
      break;
    }
    case SpdyFrame::Kind::kData:
      if (auto stream = FindStream(frame.stream)) {
        stream->Push(std::move(frame.data), frame.fin);
      }
      break;
    case SpdyFrame::Kind::kReset:
      if (auto stream = FindStream(frame.stream)) {
        stream->Kill();
        MutexLock lock(mutex_);
        streams_.erase(frame.stream);
      }
      break;
    case SpdyFrame::Kind::kPing:
      // Odd numbers are the client's own; even ones would be answers to pings we never send.
      if ((frame.stream & 1) != 0) {
        Send(SpdyWriter::Ping(frame.stream));
      }
      break;
    default: break;
  }
}

Result<void> SpdySession::Run(const OnStream& on_stream) {
  const auto read = [&]() -> Result<void> {
    for (;;) {
      SUBLET_TRY(auto frame, reader_.Next());
      if (frame) {
        if (frame->kind == SpdyFrame::Kind::kGoAway) {
          return {};
        }
        Handle(std::move(*frame), on_stream);
        continue;
      }
      char chunk[32768];
      SUBLET_TRY(const std::size_t n,
                 connection_.Read(chunk, sizeof(chunk), After(std::chrono::hours(4))));
      if (n == 0) {
        return {};
      }
      reader_.Feed(std::string_view(chunk, n));
    }
  };
  const auto result = read();
  std::map<std::uint32_t, std::shared_ptr<SpdyStream>> streams;
  {
    MutexLock lock(mutex_);
    streams.swap(streams_);
  }
  for (const auto& [id, stream] : streams) {
    stream->Kill();
  }
  return result;
}

}  // namespace sublet::node
