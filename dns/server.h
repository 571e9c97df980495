// DnsServer: the cluster's nameserver over UDP and TCP, inside the control plane's process: no
// extra pod. Names of the cluster are answered from the zone; the rest is forwarded to the
// machine's own resolvers. Threads: "dns" (one loop for everything). Bounds: kForwardsMax forwarded
// questions at once (more are answered SERVFAIL), kTcpMax TCP connections (more are closed), 10 s
// per TCP connection, 3 s per forwarded question.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "dns/zone.h"

namespace sublet::dns {

struct ServerOptions {
  std::string address = "127.0.0.1";  // IPv4
  std::uint16_t port = 0;             // 0 = a free one
  // Resolvers for other names, "ADDRESS" or "ADDRESS:PORT"; none: other names are refused.
  std::vector<std::string> upstreams;
};

// The nameservers of /etc/resolv.conf, without this server's own address.
std::vector<std::string> SystemResolvers(const std::string& own_address);

class Server {
 public:
  // zone outlives the server. Errors: Conflict (address in use), Forbidden (no right to the port).
  static Result<std::unique_ptr<Server>> Open(const ServerOptions& options, const Zone& zone);
  virtual ~Server() = default;
  virtual std::uint16_t port() const = 0;
  virtual void Stop() = 0;  // idempotent; joins
};

}  // namespace sublet::dns
