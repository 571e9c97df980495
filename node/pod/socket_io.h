// ProbeSocket: a TCP connection with a deadline on every step, plain or TLS without verification (a
// probe asks its own pod). Used by probes, hooks and port-forward. Threads: one at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

struct ssl_st;

namespace sublet::node {

class ProbeSocket {
 public:
  // Errors: Timeout ("dial tcp H:P: i/o timeout"), ServiceUnavailable ("dial tcp H:P: connect:
  // connection refused"), with Go's texts, since they end up in Events.
  static Result<std::unique_ptr<ProbeSocket>> Connect(const std::string& host, int port, bool tls,
                                                      Deadline deadline);
  ~ProbeSocket();
  ProbeSocket(const ProbeSocket&) = delete;
  ProbeSocket& operator=(const ProbeSocket&) = delete;

  Result<void> Write(std::string_view data, Deadline deadline);
  // 0 at the end.
  Result<std::size_t> Read(char* data, std::size_t bytes_max, Deadline deadline);
  int fd() const { return fd_; }

 private:
  explicit ProbeSocket(int fd) : fd_(fd) {}
  Result<void> Wait(short events, Deadline deadline);
  Result<void> Handshake(const std::string& host, Deadline deadline);
  int fd_;
  ssl_st* ssl_ = nullptr;
};

}  // namespace sublet::node
