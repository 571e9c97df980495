#include "e2e/bench/fleet.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cstdlib>

#include "client/kubeconfig.h"

namespace sublet::bench {
namespace {

constexpr int kHandshakesUnderWay = 16;

}  // namespace

struct Fleet::Line {
  Line(ssl_ctx_st* context, int fd) : endpoint(context, fd, false) {}
  Endpoint endpoint;
  HttpReader reader;
  int index = 0;
  bool writable_wanted = false;
};

Target LoadTarget(const std::string& kubeconfig) {
  const auto connection = client::FindConnection(kubeconfig, "");
  if (!connection.ok()) {
    Fail(connection.error().message());
  }
  const auto& options = connection.value().transport;
  const auto colon = options.server.rfind(':');
  Target target;
  target.port = std::atoi(options.server.c_str() + colon + 1);
  if (target.port == 0 || options.server.find("127.0.0.1") == std::string::npos) {
    Fail("the server must stand on 127.0.0.1 with a port: " + options.server);
  }
  target.certificate = options.credential.certificate_pem;
  target.key = options.credential.key_pem;
  target.token = options.credential.bearer_token;
  return target;
}

std::string Encode(const Target& target, const RequestText& request) {
  std::string text;
  text.reserve(request.body.size() + 512);
  text.append(request.method).append(" ").append(request.path);
  text.append(
      " HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: api_load\r\nAccept: application/json\r\n");
  if (!target.token.empty()) {
    text.append("Authorization: Bearer ").append(target.token).append("\r\n");
  }
  if (request.gzip) {
    text.append("Accept-Encoding: gzip\r\n");
  }
  if (!request.body.empty()) {
    text.append("Content-Type: ").append(request.content_type).append("\r\nContent-Length: ");
    text.append(std::to_string(request.body.size())).append("\r\n");
  }
  text.append("\r\n").append(request.body);
  return text;
}

Fleet::Fleet(Target target, int connections, std::size_t read_ahead)
    : target_(std::move(target)),
      context_(MakeClientContext(target_.certificate, target_.key, read_ahead)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (int i = 0; i < connections; ++i) {
    const int fd = ConnectLocal(target_.port);
    if (fd < 0) {
      Fail("nothing listens on 127.0.0.1:" + std::to_string(target_.port));
    }
    auto line = std::make_unique<Line>(context_.get(), fd);
    line->index = i;
    line->reader.on_end = [this, raw = line.get()] {
      if (on_answer) {
        on_answer(raw->index, raw->reader.code());
      }
    };
    line->reader.on_body = [this, raw = line.get()](std::string_view body) {
      if (on_body) {
        on_body(raw->index, body);
      }
    };
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = line.get();
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    line->endpoint.Handshake();
    lines_.push_back(std::move(line));
    // A few at a time: servers close a connection that waits long for its handshake.
    if (i >= kHandshakesUnderWay) {
      AwaitReady(*lines_[static_cast<std::size_t>(i - kHandshakesUnderWay)]);
    }
  }
  for (const auto& line : lines_) {
    AwaitReady(*line);
  }
}

void Fleet::AwaitReady(const Line& line) {
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (!line.endpoint.ready()) {
    if (Clock::now() > deadline) {
      Fail("a TLS handshake did not end");
    }
    Poll(std::chrono::milliseconds(100));
  }
}

Fleet::~Fleet() { ::close(epoll_); }

void Fleet::Watch(Line& line, bool writable) {
  if (line.writable_wanted == writable) {
    return;
  }
  line.writable_wanted = writable;
  epoll_event event{};
  event.events = EPOLLIN | (writable ? EPOLLOUT : 0u);
  event.data.ptr = &line;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, line.endpoint.fd(), &event);
}

void Fleet::Send(int index, const RequestText& request) {
  Line& line = *lines_[static_cast<std::size_t>(index)];
  line.endpoint.Write(Encode(target_, request));
  Watch(line, line.endpoint.Flush() == Endpoint::Outcome::kBlocked);
}

void Fleet::Poll(std::chrono::milliseconds timeout) {
  epoll_event events[256];
  const int count = ::epoll_wait(epoll_, events, 256, static_cast<int>(timeout.count()));
  for (int i = 0; i < count; ++i) {
    Handle(*static_cast<Line*>(events[i].data.ptr));
  }
}

void Fleet::Handle(Line& line) {
  if (line.writable_wanted) {
    Watch(line, line.endpoint.Flush() == Endpoint::Outcome::kBlocked);
  }
  if (!line.endpoint.ready()) {
    const auto outcome = line.endpoint.Handshake();
    if (outcome == Endpoint::Outcome::kClosed) {
      Fail("a TLS handshake failed");
    }
    if (outcome == Endpoint::Outcome::kBlocked) {
      return;
    }
  }
  if (line.endpoint.Read([&](std::string_view data) { line.reader.Feed(data); }) ==
      Endpoint::Outcome::kClosed) {
    Fail("the server closed connection " + std::to_string(line.index));
  }
}

int Fleet::Ask(int index, const RequestText& request, std::string* body) {
  auto answer_before = std::move(on_answer);
  auto body_before = std::move(on_body);
  int result = 0;
  on_answer = [&](int i, int code) {
    if (i == index) {
      result = code;
    }
  };
  on_body = [&](int i, std::string_view piece) {
    if (i == index && body != nullptr) {
      body->append(piece);
    }
  };
  Send(index, request);
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (result == 0) {
    if (Clock::now() > deadline) {
      Fail("no answer to " + request.method + " " + request.path);
    }
    Poll(std::chrono::milliseconds(100));
  }
  on_answer = std::move(answer_before);
  on_body = std::move(body_before);
  return result;
}

}  // namespace sublet::bench
