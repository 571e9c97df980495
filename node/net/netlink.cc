#include "node/net/netlink.h"

#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sublet::node {
namespace {

// Builds one netlink message with nested attributes.
class Message {
 public:
  template <typename Header>
  Message(std::uint16_t type, std::uint16_t flags, const Header& header) {
    nlmsghdr head{};
    head.nlmsg_type = type;
    head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    Raw(&head, sizeof(head));
    Raw(&header, sizeof(header));
  }
  Message& Raw(const void* data, std::size_t bytes) {
    text_.append(static_cast<const char*>(data), bytes);
    text_.append((4 - text_.size() % 4) % 4, '\0');
    return *this;
  }
  Message& Attribute(std::uint16_t type, const void* data, std::size_t bytes) {
    rtattr head{};
    head.rta_len = static_cast<std::uint16_t>(sizeof(head) + bytes);
    head.rta_type = type;
    Raw(&head, sizeof(head));
    return Raw(data, bytes);
  }
  Message& Text(std::uint16_t type, const std::string& text) {
    return Attribute(type, text.c_str(), text.size() + 1);
  }
  Message& Number(std::uint16_t type, std::uint32_t value) {
    return Attribute(type, &value, sizeof(value));
  }
  Message& Address(std::uint16_t type, Ipv4 address) { return Number(type, htonl(address)); }
  // Opens a nested attribute; Close with what it returned.
  std::size_t Open(std::uint16_t type) {
    const std::size_t at = text_.size();
    Attribute(type, nullptr, 0);
    return at;
  }
  void Close(std::size_t at) {
    auto* head = reinterpret_cast<rtattr*>(text_.data() + at);
    head->rta_len = static_cast<std::uint16_t>(text_.size() - at);
  }
  std::string Finish() {
    reinterpret_cast<nlmsghdr*>(text_.data())->nlmsg_len = static_cast<std::uint32_t>(text_.size());
    return std::move(text_);
  }

 private:
  std::string text_;
};

Status Failed(std::string_view what, int error) {
  const Reason reason = error == EEXIST                      ? Reason::kAlreadyExists
                        : error == ENODEV || error == ENOENT ? Reason::kNotFound
                        : error == EPERM                     ? Reason::kForbidden
                                                             : Reason::kInternalError;
  return Status(reason, std::string(what) + ": " + std::strerror(error));
}

}  // namespace

Result<Ipv4> ParseIpv4(std::string_view text) {
  in_addr address{};
  if (::inet_pton(AF_INET, std::string(text).c_str(), &address) != 1) {
    return BadRequest("not an IPv4 address: " + std::string(text));
  }
  return Ipv4{ntohl(address.s_addr)};
}

std::string FormatIpv4(Ipv4 address) {
  return std::to_string(address >> 24) + "." + std::to_string(address >> 16 & 255) + "." +
         std::to_string(address >> 8 & 255) + "." + std::to_string(address & 255);
}

Result<Ipv4Net> ParseIpv4Net(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) {
    return BadRequest("not a network in CIDR form: " + std::string(text));
  }
  Ipv4Net net;
  SUBLET_TRY(net.address, ParseIpv4(text.substr(0, slash)));
  const std::string digits(text.substr(slash + 1));
  char* end = nullptr;
  const long prefix = std::strtol(digits.c_str(), &end, 10);
  if (digits.empty() || *end != '\0' || prefix < 0 || prefix > 32) {
    return BadRequest("not a network in CIDR form: " + std::string(text));
  }
  net.prefix = static_cast<int>(prefix);
  net.address &= net.Mask();
  return net;
}

Result<Netlink> Netlink::Open() {
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) {
    return Failed("netlink socket", errno);
  }
  // The kernel always answers; the limit is for a broken one.
  const timeval timeout{10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  return Netlink(fd);
}

Netlink::~Netlink() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Netlink::Netlink(Netlink&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), sequence_(other.sequence_) {}

int Netlink::Request(std::string message) {
  auto* head = reinterpret_cast<nlmsghdr*>(message.data());
  head->nlmsg_flags |= NLM_F_ACK;
  head->nlmsg_seq = ++sequence_;
  if (::send(fd_, message.data(), message.size(), 0) < 0) {
    return errno;
  }
  for (;;) {
    alignas(nlmsghdr) char buffer[8192];
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return errno;
    }
    auto left = static_cast<unsigned int>(n);
    for (auto* reply = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(reply, left);
         reply = NLMSG_NEXT(reply, left)) {
      if (reply->nlmsg_seq == sequence_ && reply->nlmsg_type == NLMSG_ERROR) {
        return -static_cast<nlmsgerr*>(NLMSG_DATA(reply))->error;
      }
    }
  }
}

Result<int> Netlink::FindLink(const std::string& name) {
  // ioctl-free and namespace-correct: if_nametoindex asks the calling thread's namespace.
  const unsigned int index = ::if_nametoindex(name.c_str());
  if (index == 0) {
    return Status(Reason::kNotFound, "no network link " + name);
  }
  return static_cast<int>(index);
}

Result<std::vector<std::string>> Netlink::ListLinks(const std::string& prefix) {
  struct if_nameindex* list = ::if_nameindex();
  if (list == nullptr) {
    return Failed("listing network links", errno);
  }
  std::vector<std::string> names;
  for (const struct if_nameindex* item = list; item->if_index != 0; ++item) {
    if (std::string_view(item->if_name).substr(0, prefix.size()) == prefix) {
      names.emplace_back(item->if_name);
    }
  }
  ::if_freenameindex(list);
  return names;
}

Result<void> Netlink::EnsureBridge(const std::string& name) {
  Message message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
  message.Text(IFLA_IFNAME, name);
  const std::size_t info = message.Open(IFLA_LINKINFO);
  message.Text(IFLA_INFO_KIND, "bridge");
  message.Close(info);
  const int error = Request(message.Finish());
  return error == 0 || error == EEXIST ? Ok() : Failed("creating bridge " + name, error);
}

Result<void> Netlink::AddVeth(const std::string& name, const std::string& peer_name,
                              int peer_netns_fd) {
  Message message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
  message.Text(IFLA_IFNAME, name);
  const std::size_t info = message.Open(IFLA_LINKINFO);
  message.Text(IFLA_INFO_KIND, "veth");
  const std::size_t data = message.Open(IFLA_INFO_DATA);
  const std::size_t peer = message.Open(VETH_INFO_PEER);
  const ifinfomsg peer_head{};
  message.Raw(&peer_head, sizeof(peer_head));
  message.Text(IFLA_IFNAME, peer_name);
  message.Number(IFLA_NET_NS_FD, static_cast<std::uint32_t>(peer_netns_fd));
  message.Close(peer);
  message.Close(data);
  message.Close(info);
  const int error = Request(message.Finish());
  return error == 0 ? Ok() : Failed("creating veth " + name, error);
}

Result<void> Netlink::DeleteLink(const std::string& name) {
  Message message(RTM_DELLINK, 0, ifinfomsg{});
  message.Text(IFLA_IFNAME, name);
  const int error = Request(message.Finish());
  return error == 0 || error == ENODEV ? Ok() : Failed("deleting link " + name, error);
}

Result<void> Netlink::SetUp(int link) {
  ifinfomsg head{};
  head.ifi_index = link;
  head.ifi_flags = IFF_UP;
  head.ifi_change = IFF_UP;
  const int error = Request(Message(RTM_NEWLINK, 0, head).Finish());
  return error == 0 ? Ok() : Failed("setting a link up", error);
}

Result<void> Netlink::AddAddress(int link, Ipv4 address, int prefix) {
  ifaddrmsg head{};
  head.ifa_family = AF_INET;
  head.ifa_prefixlen = static_cast<std::uint8_t>(prefix);
  head.ifa_index = static_cast<std::uint32_t>(link);
  Message message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, head);
  message.Address(IFA_LOCAL, address);
  message.Address(IFA_ADDRESS, address);
  const int error = Request(message.Finish());
  return error == 0 || error == EEXIST ? Ok()
                                       : Failed("adding address " + FormatIpv4(address), error);
}

Result<void> Netlink::ReplaceRoute(const Route& route) {
  rtmsg head{};
  head.rtm_family = AF_INET;
  head.rtm_dst_len = static_cast<std::uint8_t>(route.destination.prefix);
  head.rtm_table = RT_TABLE_MAIN;
  head.rtm_protocol = RTPROT_STATIC;
  head.rtm_scope = route.gateway == 0 ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
  head.rtm_type = RTN_UNICAST;
  Message message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, head);
  if (route.destination.prefix > 0) {
    message.Address(RTA_DST, route.destination.address);
  }
  message.Number(RTA_OIF, static_cast<std::uint32_t>(route.link));
  if (route.gateway != 0) {
    message.Address(RTA_GATEWAY, route.gateway);
  }
  if (route.preferred_source != 0) {
    message.Address(RTA_PREFSRC, route.preferred_source);
  }
  const int error = Request(message.Finish());
  return error == 0 ? Ok() : Failed("adding route " + route.destination.Text(), error);
}

}  // namespace sublet::node
