// The ceiling: a TLS server that answers fixed bytes and does nothing else, so that a row says how
// much of what this machine, this client and TLS allow is reached. One thread, one epoll.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "e2e/bench/endpoint.h"
#include "e2e/bench/http_reader.h"
#include "e2e/bench/rows.h"

namespace sublet::bench {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    Fail("cannot read " + path);
  }
  return text.str();
}

std::string GzipOf(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Answer(const char* first_line, const std::string& body, const char* extra = "") {
  return std::string("HTTP/1.1 ") + first_line + "\r\nContent-Type: application/json\r\n" + extra +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class FixedServer {
 public:
  FixedServer(const std::string& object, const std::string& list)
      : context_(MakeServerContext()),
        object_(Answer("200 OK", object)),
        created_(Answer("201 Created", object)),
        list_(Answer("200 OK", list)),
        list_gzip_(Answer("200 OK", GzipOf(list), "Content-Encoding: gzip\r\n")) {
    const std::string line = "{\"type\":\"MODIFIED\",\"object\":" + object + "}\n";
    char size[16];
    std::snprintf(size, sizeof size, "%zx\r\n", line.size());
    event_ = size + line + "\r\n";
  }

  [[noreturn]] void Run(int port) {
    listen_ = ListenLocal(&port);
    std::printf("%d\n", port);
    std::fflush(stdout);
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    Add(listen_, nullptr);
    epoll_event events[256];
    for (;;) {
      const int count = ::epoll_wait(epoll_, events, 256, -1);
      for (int i = 0; i < count; ++i) {
        if (events[i].data.ptr == nullptr) {
          Accept();
        } else {
          Handle(static_cast<Peer*>(events[i].data.ptr), events[i].events);
        }
      }
    }
  }

 private:
  struct Peer {
    Peer(ssl_ctx_st* context, int fd) : endpoint(context, fd, true) {}
    Endpoint endpoint;
    HttpReader reader;
    bool watches = false;
    bool writable_wanted = false;
  };

  void Add(int fd, Peer* peer) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = peer;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
  void Accept() {
    for (;;) {
      const int fd = ::accept4(listen_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        return;
      }
      auto peer = std::make_unique<Peer>(context_.get(), fd);
      peer->reader.on_end = [this, raw = peer.get()] { OnRequest(raw); };
      Add(fd, peer.get());
      peers_[peer.get()] = std::move(peer);
    }
  }
  void Flush(Peer* peer) {
    const bool blocked = peer->endpoint.Flush() == Endpoint::Outcome::kBlocked;
    if (blocked != peer->writable_wanted) {
      peer->writable_wanted = blocked;
      epoll_event event{};
      event.events = EPOLLIN | (blocked ? EPOLLOUT : 0u);
      event.data.ptr = peer;
      ::epoll_ctl(epoll_, EPOLL_CTL_MOD, peer->endpoint.fd(), &event);
    }
  }
  void Handle(Peer* peer, std::uint32_t what) {
    if ((what & EPOLLOUT) != 0) {
      Flush(peer);
    }
    if (!peer->endpoint.ready()) {
      const auto outcome = peer->endpoint.Handshake();
      if (outcome == Endpoint::Outcome::kBlocked) {
        return;
      }
      if (outcome == Endpoint::Outcome::kClosed) {
        peers_.erase(peer);
        return;
      }
    }
    if (peer->endpoint.Read([&](std::string_view data) { peer->reader.Feed(data); }) ==
        Endpoint::Outcome::kClosed) {
      peers_.erase(peer);
    }
  }
  void OnRequest(Peer* peer) {
    const std::string_view head = peer->reader.head();
    const std::string_view line = head.substr(0, head.find("\r\n"));
    if (line.starts_with("GET ") && line.find("watch=") != std::string_view::npos) {
      peer->watches = true;
      peer->endpoint.Write(
          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: "
          "chunked\r\n\r\n");
    } else if (line.starts_with("GET ")) {
      const bool is_list = line.find("limit=500") != std::string_view::npos;
      const bool gzip = head.find("Accept-Encoding: gzip") != std::string_view::npos;
      peer->endpoint.Write(!is_list ? object_ : gzip ? list_gzip_ : list_);
    } else {
      for (const auto& one : peers_) {
        if (one.first->watches) {
          one.first->endpoint.Write(event_);
          Flush(one.first);
        }
      }
      peer->endpoint.Write(line.starts_with("POST ") ? created_ : object_);
    }
    Flush(peer);
  }

  const TlsContextPtr context_;
  const std::string object_;
  const std::string created_;
  const std::string list_;
  const std::string list_gzip_;
  std::string event_;
  int listen_ = -1;
  int epoll_ = -1;
  std::unordered_map<Peer*, std::unique_ptr<Peer>> peers_;
};

}  // namespace

void ServeFixed(int port, const std::string& object_path, const std::string& list_path) {
  FixedServer server(ReadFile(object_path), ReadFile(list_path));
  server.Run(port);
}

}  // namespace sublet::bench
