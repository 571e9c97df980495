// Netlink: the few rtnetlink requests the pod network needs (links, addresses, routes), each
// idempotent where that makes sense. Works on the network namespace of the thread that opened it.
// Used by pod_network.cc. Threads: one at a time. Source: rtnetlink(7), veth(4).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sublet::node {

// An IPv4 address in host byte order.
using Ipv4 = std::uint32_t;
// Errors: BadRequest.
Result<Ipv4> ParseIpv4(std::string_view text);
std::string FormatIpv4(Ipv4 address);

struct Ipv4Net {
  Ipv4 address = 0;  // network address
  int prefix = 32;
  Ipv4 Mask() const { return prefix == 0 ? 0 : ~Ipv4{0} << (32 - prefix); }
  bool Contains(Ipv4 ip) const { return (ip & Mask()) == (address & Mask()); }
  std::string Text() const { return FormatIpv4(address) + "/" + std::to_string(prefix); }
};
// "10.244.0.0/24"; bits behind the prefix are cleared. Errors: BadRequest.
Result<Ipv4Net> ParseIpv4Net(std::string_view text);

class Netlink {
 public:
  // Errors: InternalError (no permission, no netlink).
  static Result<Netlink> Open();
  ~Netlink();
  Netlink(Netlink&& other) noexcept;
  Netlink(const Netlink&) = delete;
  Netlink& operator=(const Netlink&) = delete;

  // Errors: NotFound.
  Result<int> FindLink(const std::string& name);
  // All link names that start with `prefix`.
  Result<std::vector<std::string>> ListLinks(const std::string& prefix);
  // Creates the bridge unless a link of that name is there.
  Result<void> EnsureBridge(const std::string& name);
  // Creates a veth pair; the peer is born as `peer_name` in the namespace behind `peer_netns_fd`.
  // Errors: AlreadyExists.
  Result<void> AddVeth(const std::string& name, const std::string& peer_name, int peer_netns_fd);
  // Absent is no error.
  Result<void> DeleteLink(const std::string& name);
  Result<void> SetUp(int link);
  // Present is no error.
  Result<void> AddAddress(int link, Ipv4 address, int prefix);
  struct Route {
    Ipv4Net destination;
    int link = 0;
    Ipv4 gateway = 0;           // 0 = on the link
    Ipv4 preferred_source = 0;  // 0 = the kernel's choice
  };
  // Replaces a route to the same destination.
  Result<void> ReplaceRoute(const Route& route);

 private:
  explicit Netlink(int fd) : fd_(fd) {}
  // Sends one request and waits for its acknowledgement. Returns 0 or the errno.
  int Request(std::string message);
  int fd_;
  std::uint32_t sequence_ = 0;
};

}  // namespace sublet::node
