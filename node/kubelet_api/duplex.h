// Duplex: bytes both ways over one connection, read by one thread and written by another. What the
// kubelet API's protocols (HTTP, WebSocket, SPDY) are read from and written to.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace sublet::node {

class Duplex {
 public:
  virtual ~Duplex() = default;
  // Blocks until at least one byte; 0 = the peer ended, or Shutdown. Errors: Timeout,
  // ServiceUnavailable (connection lost). Threads: one reader.
  virtual Result<std::size_t> Read(char* data, std::size_t bytes_max, Deadline deadline) = 0;
  // Writes everything. Errors: ServiceUnavailable, Timeout (the peer took nothing for a minute).
  // Threads: any; whole calls do not interleave.
  virtual Result<void> Write(std::string_view data) = 0;
  // Ends the connection: waiting calls return. Threads: any; idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace sublet::node
