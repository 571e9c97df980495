#include "apiserver/handlers/watch_socket.h"

#include <openssl/sha.h>
#include <pthread.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/base64.h"
#include "base/mutex.h"

namespace sublet::apiserver {
namespace {

constexpr int kText = 1;
constexpr int kClose = 8;
constexpr int kPong = 10;
constexpr std::size_t kReadBytes = 4096;
constexpr std::size_t kPullBytes = 64 * 1024;
constexpr std::size_t kPongsMax = 16;  // waiting ones; further pings are not answered
// A token may come as a protocol's name; it is never the protocol that is chosen.
constexpr std::string_view kBearerProtocol = "base64url.bearer.authorization.k8s.io.";

std::string ChooseProtocol(std::string_view offered) {
  while (!offered.empty()) {
    const std::size_t comma = std::min(offered.find(','), offered.size());
    std::string_view one = offered.substr(0, comma);
    offered.remove_prefix(std::min(comma + 1, offered.size()));
    while (!one.empty() && one.front() == ' ') {
      one.remove_prefix(1);
    }
    while (!one.empty() && one.back() == ' ') {
      one.remove_suffix(1);
    }
    if (!one.empty() && !one.starts_with(kBearerProtocol)) {
      return std::string(one);
    }
  }
  return "";
}

// What the two threads of one socket tell each other.
struct Shared {
  Mutex mutex;
  CondVar changed;
  bool woken SUBLET_GUARDED_BY(mutex) = false;
  bool ended SUBLET_GUARDED_BY(mutex) = false;
  std::vector<std::string> pongs SUBLET_GUARDED_BY(mutex);

  void Wake() {
    {
      MutexLock lock(mutex);
      woken = true;
    }
    changed.NotifyOne();
  }
};

void ReadClient(RawConnection& connection, Shared& shared) {
  std::array<char, kReadBytes> chunk;
  ClientFrames frames;
  for (bool open = true; open;) {
    const auto got = connection.Read(chunk.data(), chunk.size());
    open = got.ok() && *got > 0;
    if (open) {
      frames.Feed({chunk.data(), *got});
    }
    while (open) {
      auto control = frames.Next();
      if (!control.ok() || (*control && (*control)->kind == ClientFrames::Kind::kClose)) {
        open = false;
      } else if (!*control) {
        break;
      } else {
        MutexLock lock(shared.mutex);
        if (shared.pongs.size() < kPongsMax) {
          shared.pongs.push_back(std::move((*control)->payload));
        }
      }
    }
    MutexLock lock(shared.mutex);
    shared.ended = !open;
    shared.changed.NotifyOne();
  }
}

// The lines of `text` as frames; what follows the last line end stays in `text`.
std::string TakeFrames(std::string& text) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    out += EncodeServerFrame(kText, std::string_view(text).substr(begin, end + 1 - begin));
  }
  text.erase(0, begin);
  return out;
}

// Sends what there is until the stream ends or the client does.
void WriteEvents(RawConnection& connection, ByteStream& stream, Shared& shared) {
  std::string text;
  std::vector<Body::Piece> pieces;
  for (;;) {
    std::vector<std::string> pongs;
    {
      MutexLock lock(shared.mutex);
      if (shared.ended) {
        return;
      }
      shared.woken = false;
      pongs.swap(shared.pongs);
    }
    std::string out;
    for (const std::string& payload : pongs) {
      out += EncodeServerFrame(kPong, payload);
    }
    pieces.clear();
    const auto state = stream.Pull(pieces, kPullBytes);
    for (const auto& piece : pieces) {
      text += piece.bytes;
    }
    out += TakeFrames(text);
    if (state == ByteStream::State::kEnd) {
      out += EncodeServerFrame(kClose, std::string_view("\x03\xe8", 2));
    }
    if ((!out.empty() && !connection.Write(out).ok()) || state == ByteStream::State::kEnd) {
      return;
    }
    if (state == ByteStream::State::kWait) {
      MutexLock lock(shared.mutex);
      while (!shared.woken && !shared.ended && shared.pongs.empty()) {
        shared.changed.Wait(shared.mutex);
      }
    }
  }
}

}  // namespace

bool WantsWebSocket(const Request& request) {
  const auto upgrade = request.Header("upgrade");
  return upgrade.size() == 9 && strncasecmp(upgrade.data(), "websocket", 9) == 0;
}

Result<Response> AcceptWebSocket(const Request& request) {
  const std::string key(request.Header("sec-websocket-key"));
  if (key.empty()) {
    return BadRequest("a WebSocket handshake needs Sec-WebSocket-Key");
  }
  if (request.Header("sec-websocket-version") != "13") {
    return BadRequest("the WebSocket version is 13");
  }
  const std::string joined = key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  std::array<unsigned char, SHA_DIGEST_LENGTH> hash;
  SHA1(reinterpret_cast<const unsigned char*>(joined.data()), joined.size(), hash.data());
  Response head;
  head.code = 101;
  head.content_type = "";
  head.headers = {{"Connection", "Upgrade"},
                  {"Upgrade", "websocket"},
                  {"Sec-WebSocket-Accept",
                   EncodeBase64({reinterpret_cast<const char*>(hash.data()), hash.size()})}};
  if (auto protocol = ChooseProtocol(request.Header("sec-websocket-protocol")); !protocol.empty()) {
    head.headers.emplace_back("Sec-WebSocket-Protocol", std::move(protocol));
  }
  return head;
}

std::string EncodeServerFrame(int opcode, std::string_view payload) {
  std::string frame;
  frame.reserve(payload.size() + 10);
  frame += static_cast<char>(0x80 | opcode);
  const auto put = [&frame](std::uint64_t value, int bytes) {
    for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) {
      frame += static_cast<char>(value >> shift & 0xff);
    }
  };
  if (payload.size() < 126) {
    frame += static_cast<char>(payload.size());
  } else if (payload.size() < 65536) {
    frame += static_cast<char>(126);
    put(payload.size(), 2);
  } else {
    frame += static_cast<char>(127);
    put(payload.size(), 8);
  }
  return frame += payload;
}

Result<std::optional<ClientFrames::Control>> ClientFrames::Next() {
  for (;;) {
    const auto skipped = std::min<std::uint64_t>(skip_, buffer_.size());
    buffer_.erase(0, skipped);
    skip_ -= skipped;
    if (skip_ > 0 || buffer_.size() < 2) {
      return std::optional<Control>();
    }
    const auto first = static_cast<unsigned char>(buffer_[0]);
    const auto second = static_cast<unsigned char>(buffer_[1]);
    const int opcode = first & 0x0f;
    std::uint64_t length = second & 0x7f;
    const bool is_control = opcode >= kClose;
    if ((first & 0x70) != 0 || (second & 0x80) == 0 || opcode > kPong ||
        (is_control && (length > 125 || (first & 0x80) == 0))) {
      return BadRequest("the client sent a broken WebSocket frame");
    }
    const std::size_t extra = length < 126 ? 0 : length == 126 ? 2 : 8;
    const std::size_t head = 2 + extra + 4;  // with the mask
    if (buffer_.size() < head + (is_control ? length : 0)) {
      return std::optional<Control>();
    }
    if (!is_control) {
      for (std::size_t i = 0; i < extra; ++i) {
        length = (i == 0 ? 0 : length << 8) | static_cast<unsigned char>(buffer_[2 + i]);
      }
      buffer_.erase(0, head);
      skip_ = length;
      continue;
    }
    Control control{opcode == kClose ? Kind::kClose : Kind::kPing, buffer_.substr(head, length)};
    for (std::size_t i = 0; i < control.payload.size(); ++i) {
      control.payload[i] ^= buffer_[2 + i % 4];
    }
    buffer_.erase(0, head + length);
    if (opcode != kPong) {
      return std::optional<Control>(std::move(control));
    }
  }
}

void RunWatchSocket(RawConnection& connection, ByteStream& stream) {
  // The stream may wake after this returns, until it is destroyed.
  const auto shared = std::make_shared<Shared>();
  stream.Start([shared] { shared->Wake(); });
  std::thread reader([&] {
    pthread_setname_np(pthread_self(), "watch-socket");
    ReadClient(connection, *shared);
  });
  WriteEvents(connection, stream, *shared);
  connection.CloseWrite();
  connection.Close();
  reader.join();
}

}  // namespace sublet::apiserver
