#include "node/pod/handlers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "node/pod/grpc_health.h"
#include "node/pod/socket_io.h"

namespace sublet::node {
namespace {

constexpr std::size_t kOutputBytesMax = 10u << 10;

HandlerOutcome RunExecHandler(ContainerEngine& engine, const HandlerPlan& handler,
                              const HandlerTarget& target, Deadline deadline, Canceller* cancel) {
  HandlerOutcome outcome;
  auto result =
      RunExec(engine, target.container_id, handler.argv, deadline, kOutputBytesMax, cancel);
  if (!result.ok()) {
    std::string command;
    for (const std::string& word : handler.argv) {
      command += (command.empty() ? "" : " ") + word;
    }
    outcome.errored = !result.error().Is(Reason::kTimeout);
    outcome.output =
        outcome.errored ? result.error().message() : "command timed out: \"" + command + "\"";
    return outcome;
  }
  outcome.success = result->exit_code == 0;
  outcome.output = std::move(result->output);
  return outcome;
}

std::string HttpRequestText(const HandlerPlan& handler, const std::string& authority) {
  std::string host = authority;
  std::string path =
      handler.path.empty() || handler.path.front() != '/' ? "/" + handler.path : handler.path;
  std::string headers;
  bool has_agent = false;
  bool has_accept = false;
  for (const auto& [name, value] : handler.headers) {
    if (::strcasecmp(name.c_str(), "Host") == 0) {
      host = value;
      continue;
    }
    has_agent = has_agent || ::strcasecmp(name.c_str(), "User-Agent") == 0;
    has_accept = has_accept || ::strcasecmp(name.c_str(), "Accept") == 0;
    headers += name + ": " + value + "\r\n";
  }
  if (!has_agent) {
    headers += "User-Agent: kube-probe/1.36\r\n";
  }
  if (!has_accept) {
    headers += "Accept: */*\r\n";
  }
  return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + headers +
         "Connection: close\r\n\r\n";
}

// Differs: kubelet follows redirects that stay on the host; here a redirect counts as the success
// it would count as when it leads elsewhere. A probe's question is whether the server answers.
HandlerOutcome RunHttpHandler(const HandlerPlan& handler, const std::string& host, int port,
                              Deadline deadline) {
  HandlerOutcome outcome;
  const bool tls = handler.scheme == "HTTPS";
  const std::string authority = host + ":" + std::to_string(port);
  const std::string where =
      "Get \"" + std::string(tls ? "https" : "http") + "://" + authority + handler.path + "\": ";
  auto socket = ProbeSocket::Connect(host, port, tls, deadline);
  if (!socket.ok()) {
    outcome.output = where + socket.error().message();
    return outcome;
  }
  if (auto sent = (*socket)->Write(HttpRequestText(handler, authority), deadline); !sent.ok()) {
    outcome.output = where + sent.error().message();
    return outcome;
  }
  std::string answer;
  while (answer.size() < kOutputBytesMax + 16384) {
    char chunk[4096];
    auto n = (*socket)->Read(chunk, sizeof(chunk), deadline);
    if (!n.ok()) {
      if (answer.find("\r\n\r\n") != std::string::npos) {
        break;  // the head is there; a body that never ends is no failure
      }
      outcome.output = where + (n.error().Is(Reason::kTimeout)
                                    ? "context deadline exceeded (Client.Timeout exceeded while "
                                      "awaiting headers)"
                                    : n.error().message());
      return outcome;
    }
    if (*n == 0) {
      break;
    }
    answer.append(chunk, *n);
  }
  auto head = ParseResponseHead(std::string_view(answer).substr(0, answer.find("\r\n\r\n")));
  if (!head.ok()) {
    outcome.output = where + "malformed HTTP response";
    return outcome;
  }
  outcome.success = head->code >= 200 && head->code < 400;
  outcome.output = outcome.success
                       ? answer.substr(answer.find("\r\n\r\n") + 4)
                       : "HTTP probe failed with statuscode: " + std::to_string(head->code);
  outcome.output.resize(std::min(outcome.output.size(), kOutputBytesMax));
  return outcome;
}

HandlerOutcome RunTcpHandler(const std::string& host, int port, Deadline deadline) {
  HandlerOutcome outcome;
  auto socket = ProbeSocket::Connect(host, port, false, deadline);
  outcome.success = socket.ok();
  if (!socket.ok()) {
    outcome.output = socket.error().message();
  }
  return outcome;
}

HandlerOutcome Sleep(std::chrono::milliseconds duration, Canceller* cancel) {
  pollfd p{cancel != nullptr ? cancel->fd() : -1, POLLIN, 0};
  const auto end = std::chrono::steady_clock::now() + duration;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0 ||
        ::poll(&p, 1, static_cast<int>(std::min<long long>(left.count(), 1 << 30))) > 0) {
      return {true, false, ""};
    }
  }
}

}  // namespace

int ResolvePort(const HandlerPlan& handler, const ContainerPlan& container) {
  char* end = nullptr;
  const long number = std::strtol(handler.port.c_str(), &end, 10);
  if (!handler.port.empty() && *end == '\0') {
    return number > 0 && number < 65536 ? static_cast<int>(number) : 0;
  }
  for (const auto& [name, port] : container.named_ports) {
    if (name == handler.port) {
      return port;
    }
  }
  return 0;
}

HandlerOutcome RunHandler(ContainerEngine& engine, const HandlerPlan& handler,
                          const ContainerPlan& container, const HandlerTarget& target,
                          std::chrono::milliseconds timeout, Canceller* cancel) {
  const Deadline deadline = After(timeout);
  const std::string host = handler.host.empty() ? target.pod_ip : handler.host;
  const int port = ResolvePort(handler, container);
  const auto needs_port = [&] {
    return handler.kind == HandlerPlan::Kind::kHttp || handler.kind == HandlerPlan::Kind::kTcp ||
           handler.kind == HandlerPlan::Kind::kGrpc;
  };
  if (needs_port() && port == 0) {
    return {false, false, "invalid port: " + handler.port};
  }
  switch (handler.kind) {
    case HandlerPlan::Kind::kNone: return {true, false, ""};
    case HandlerPlan::Kind::kExec: return RunExecHandler(engine, handler, target, deadline, cancel);
    case HandlerPlan::Kind::kHttp: return RunHttpHandler(handler, host, port, deadline);
    case HandlerPlan::Kind::kTcp: return RunTcpHandler(host, port, deadline);
    case HandlerPlan::Kind::kGrpc: {
      auto serving = CheckGrpcHealth(host, port, handler.grpc_service, deadline);
      return serving.ok() ? HandlerOutcome{*serving, false,
                                           *serving ? "service is healthy"
                                                    : "service unhealthy (responded with "
                                                      "\"NOT_SERVING\")"}
                          : HandlerOutcome{false, false, serving.error().message()};
    }
    case HandlerPlan::Kind::kSleep:
      return Sleep(std::min<std::chrono::milliseconds>(handler.sleep, timeout), cancel);
  }
  return {};
}

}  // namespace sublet::node
