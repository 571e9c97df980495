// The gRPC health check as a client: just enough HTTP/2 for one unary call. DESIGN.md keeps gRPC
// out of this program, and a probe needs nothing more than this.
// Source: grpc.health.v1.Health/Check; RFC 9113, RFC 7541. Threads: any; blocks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace sublet::node {

// Whether the server says SERVING for `service` ("" = the server as a whole). Errors: Timeout,
// ServiceUnavailable (connection), InternalError (the server answers something else).
Result<bool> CheckGrpcHealth(const std::string& host, int port, const std::string& service,
                             Deadline deadline);

// The bytes a client sends for the check: preface, settings, headers, message.
std::string GrpcHealthRequest(const std::string& authority, const std::string& service);

// Reads the server's HTTP/2 frames until the answer is known. Fed with bytes as they come.
class GrpcHealthReader {
 public:
  // Bytes to send back (acknowledgements) are appended to `reply`. Returns the answer once it is
  // there. Errors: InternalError (stream reset, connection closed by GOAWAY, malformed).
  Result<std::optional<bool>> Feed(std::string_view bytes, std::string* reply);

 private:
  Result<std::optional<bool>> HandleFrame(int type, int flags, std::uint32_t stream,
                                          std::string_view payload, std::string* reply);
  std::string buffer_;
  std::string message_;
};

}  // namespace sublet::node
