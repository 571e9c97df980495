// Fleet: the load tool's client: many keep-alive TLS connections driven by one thread and one
// epoll, the same for every server that is measured. HTTP/1.1 everywhere, so that the servers are
// compared and not the protocols. Threads: one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "e2e/bench/endpoint.h"
#include "e2e/bench/http_reader.h"

namespace sublet::bench {

using Clock = std::chrono::steady_clock;

// Who is measured and who asks.
struct Target {
  int port = 0;
  std::string certificate;  // PEM
  std::string key;
  std::string token;
};

// Reads the current context of a kubeconfig; exits with a message when it cannot be used.
Target LoadTarget(const std::string& kubeconfig);

struct RequestText {
  std::string method = "GET";
  std::string path;
  std::string content_type = "application/json";
  std::string body;
  bool gzip = false;
};
std::string Encode(const Target& target, const RequestText& request);

class Fleet {
 public:
  // Connects and finishes all handshakes; exits with a message when that fails.
  Fleet(Target target, int connections, std::size_t read_ahead = 16 * 1024);
  ~Fleet();

  // Called from Poll. `index` names the connection.
  std::function<void(int index, int code)> on_answer;
  std::function<void(int index, std::string_view body)> on_body;

  // Sends one request; the connection must have no other under way unless it is a watch.
  void Send(int index, const RequestText& request);
  // Waits up to `timeout` for input and handles what there is. Exits when a server closes.
  void Poll(std::chrono::milliseconds timeout);
  // Sends on connection `index` and waits for the answer's code; `body` gets its body.
  int Ask(int index, const RequestText& request, std::string* body = nullptr);

  int size() const { return static_cast<int>(lines_.size()); }
  const Target& target() const { return target_; }

 private:
  struct Line;
  void Watch(Line& line, bool writable);
  void Handle(Line& line);
  void AwaitReady(const Line& line);

  const Target target_;
  TlsContextPtr context_;
  int epoll_;
  std::vector<std::unique_ptr<Line>> lines_;
};

}  // namespace sublet::bench
