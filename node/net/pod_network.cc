#include "node/net/pod_network.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace sublet::node {
namespace {

Result<void> ConfigureInside(int netns_fd, Ipv4 address, Ipv4 gateway) {
  Result<void> result;
  std::thread inside([&] {
    // setns moves only this thread, which ends here: the agent's other threads stay outside.
    if (::setns(netns_fd, CLONE_NEWNET) != 0) {
      result = InternalError(std::string("entering the pod's network: ") + std::strerror(errno));
      return;
    }
    result = [&]() -> Result<void> {
      SUBLET_TRY(Netlink netlink, Netlink::Open());
      SUBLET_TRY(const int loopback, netlink.FindLink("lo"));
      SUBLET_RETURN_IF_ERROR(netlink.SetUp(loopback));
      SUBLET_TRY(const int link, netlink.FindLink("eth0"));
      SUBLET_RETURN_IF_ERROR(netlink.AddAddress(link, address, 32));
      SUBLET_RETURN_IF_ERROR(netlink.SetUp(link));
      Netlink::Route to_gateway;
      to_gateway.destination = {gateway, 32};
      to_gateway.link = link;
      SUBLET_RETURN_IF_ERROR(netlink.ReplaceRoute(to_gateway));
      Netlink::Route all;
      all.destination = {0, 0};
      all.link = link;
      all.gateway = gateway;
      return netlink.ReplaceRoute(all);
    }();
  });
  inside.join();
  return result;
}

}  // namespace

Result<void> WriteSysctl(const std::string& path, std::string_view value) {
  const int fd = ::open(("/proc/sys/" + path).c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return InternalError("/proc/sys/" + path + ": " + std::strerror(errno));
  }
  const ssize_t n = ::write(fd, value.data(), value.size());
  const int error = errno;
  ::close(fd);
  if (n < 0) {
    return InternalError("/proc/sys/" + path + ": " + std::strerror(error));
  }
  return {};
}

Result<void> PodNetwork::Ensure() {
  SUBLET_TRY(Netlink netlink, Netlink::Open());
  SUBLET_RETURN_IF_ERROR(netlink.EnsureBridge(config_.bridge));
  SUBLET_TRY(const int bridge, netlink.FindLink(config_.bridge));
  SUBLET_RETURN_IF_ERROR(netlink.AddAddress(bridge, gateway(), 32));
  SUBLET_RETURN_IF_ERROR(netlink.SetUp(bridge));
  if (config_.service_net.prefix > 0) {
    Netlink::Route services;
    services.destination = config_.service_net;
    services.link = bridge;
    services.preferred_source = gateway();
    SUBLET_RETURN_IF_ERROR(netlink.ReplaceRoute(services));
  }
  return WriteSysctl("net/ipv4/ip_forward", "1");
}

Result<void> PodNetwork::Remove() {
  SUBLET_TRY(Netlink netlink, Netlink::Open());
  SUBLET_TRY(const auto links, netlink.ListLinks(config_.veth_prefix));
  for (const std::string& link : links) {
    SUBLET_RETURN_IF_ERROR(netlink.DeleteLink(link));
  }
  return netlink.DeleteLink(config_.bridge);
}

Result<Ipv4> PodNetwork::Allocate(const std::string& pod_uid) {
  MutexLock lock(mutex_);
  if (const auto it = addresses_.find(pod_uid); it != addresses_.end()) {
    return it->second;
  }
  const Ipv4 first = gateway() + 1;
  const Ipv4 last = (config_.pod_net.address | ~config_.pod_net.Mask()) - 1;
  // Walks on from the last one given, so that an address rests before it is used again.
  const Ipv4 count = last - first + 1;
  for (Ipv4 i = 0; i < count; ++i) {
    const Ipv4 start = last_ < first || last_ >= last ? first : last_ + 1;
    const Ipv4 candidate = first + (start - first + i) % count;
    if (owners_.find(candidate) == owners_.end()) {
      owners_[candidate] = pod_uid;
      addresses_[pod_uid] = candidate;
      last_ = candidate;
      return candidate;
    }
  }
  return TooManyRequests("no free pod address in " + config_.pod_net.Text(), 5);
}

void PodNetwork::Reserve(const std::string& pod_uid, Ipv4 address) {
  MutexLock lock(mutex_);
  if (config_.pod_net.Contains(address)) {
    owners_[address] = pod_uid;
    addresses_[pod_uid] = address;
  }
}

void PodNetwork::Release(const std::string& pod_uid) {
  MutexLock lock(mutex_);
  if (const auto it = addresses_.find(pod_uid); it != addresses_.end()) {
    owners_.erase(it->second);
    addresses_.erase(it);
  }
}

std::string PodNetwork::VethName(const std::string& pod_uid) const {
  std::uint64_t hash = 1469598103934665603ull;  // FNV-1a: the name must survive restarts
  for (const char c : pod_uid) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string name = config_.veth_prefix;
  for (int i = 0; i < 10; ++i, hash >>= 4) {
    name += kHex[hash & 15];
  }
  return name;
}

Result<void> PodNetwork::Attach(const std::string& pod_uid, int pid, Ipv4 address) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/net";
  const int netns_fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (netns_fd < 0) {
    return Status(Reason::kNotFound, path + ": " + std::strerror(errno));
  }
  auto attached = [&]() -> Result<void> {
    SUBLET_TRY(Netlink netlink, Netlink::Open());
    const std::string name = VethName(pod_uid);
    SUBLET_RETURN_IF_ERROR(netlink.DeleteLink(name));
    SUBLET_RETURN_IF_ERROR(netlink.AddVeth(name, "eth0", netns_fd));
    SUBLET_TRY(const int link, netlink.FindLink(name));
    // A nodePort is reachable at 127.0.0.1 too: the translated packet leaves through this link with
    // that source address until it is masqueraded. The firewall drops the way back in (rules.cc).
    SUBLET_RETURN_IF_ERROR(WriteSysctl("net/ipv4/conf/" + name + "/route_localnet", "1"));
    SUBLET_RETURN_IF_ERROR(netlink.SetUp(link));
    SUBLET_RETURN_IF_ERROR(ConfigureInside(netns_fd, address, gateway()));
    Netlink::Route to_pod;
    to_pod.destination = {address, 32};
    to_pod.link = link;
    to_pod.preferred_source = gateway();
    return netlink.ReplaceRoute(to_pod);
  }();
  ::close(netns_fd);
  return attached;
}

bool PodNetwork::IsAttached(const std::string& pod_uid) const {
  return ::if_nametoindex(VethName(pod_uid).c_str()) != 0;
}

Result<void> PodNetwork::Detach(const std::string& pod_uid) {
  SUBLET_TRY(Netlink netlink, Netlink::Open());
  return netlink.DeleteLink(VethName(pod_uid));
}

}  // namespace sublet::node
