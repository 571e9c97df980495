#include "apiserver/tunnel/kubelet_dialer.h"

#include <nlohmann/json.hpp>

#include "apiserver/registry/builtin.h"
#include "apiserver/registry/object_codec.h"
#include "apiserver/request.h"
#include "client/http_transport.h"

namespace sublet::apiserver {
namespace {

constexpr const char* kKubeletPort = "10250";
// Source: kube-apiserver --kubelet-preferred-address-types.
constexpr std::string_view kAddressTypes[] = {"Hostname", "InternalDNS", "InternalIP",
                                              "ExternalDNS", "ExternalIP"};

std::string Encode(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out.push_back(kHex[c & 0xf]);
    }
  }
  return out;
}

bool IsTrue(std::string_view value) { return value == "true" || value == "1"; }

// Our parameters in the kubelet's names.
struct Renamed {
  std::string_view from;
  std::string_view to;
};
constexpr Renamed kStreamFlags[] = {
    {"stdin", "input"}, {"stdout", "output"}, {"stderr", "error"}, {"tty", "tty"}};
constexpr std::string_view kLogFlags[] = {"follow", "previous", "timestamps"};
constexpr std::string_view kLogValues[] = {"sinceSeconds", "sinceTime", "tailLines", "limitBytes",
                                           "stream"};

void Add(std::string& query, std::string_view name, std::string_view value) {
  query.append(query.empty() ? "" : "&").append(name).append("=").append(Encode(value));
}

std::string KubeletQuery(const PodTunnel& tunnel) {
  const Query asked = ParseQuery(tunnel.raw_query);
  std::string query;
  if (tunnel.subresource == "log") {
    for (const auto name : kLogFlags) {
      if (IsTrue(asked.Get(name))) {
        Add(query, name, "true");
      }
    }
    for (const auto name : kLogValues) {
      if (!asked.Get(name).empty()) {
        Add(query, name, asked.Get(name));
      }
    }
    return query;
  }
  if (tunnel.subresource == "portforward") {
    for (const auto port : asked.All("ports")) {
      Add(query, "port", port);
    }
    return query;
  }
  for (const Renamed& flag : kStreamFlags) {
    // A client that names no stream gets output and errors, as PodExecOptions' defaults say.
    const bool by_default =
        !asked.Has(flag.from) && (flag.from == "stdout" || flag.from == "stderr");
    if (IsTrue(asked.Get(flag.from)) || by_default) {
      Add(query, flag.to, "1");
    }
  }
  for (const auto word : asked.All("command")) {
    Add(query, "command", word);
  }
  return query;
}

}  // namespace

std::string HostPort(const std::string& host, const std::string& port) {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port.empty() ? name : name + ":" + port;
}

std::string KubeletTarget(const PodTunnel& tunnel) {
  std::string target = tunnel.subresource == "log"           ? "/containerLogs/"
                       : tunnel.subresource == "portforward" ? "/portForward/"
                                                             : "/" + tunnel.subresource + "/";
  target += tunnel.namespace_name + "/" + tunnel.pod;
  if (tunnel.subresource != "portforward") {
    target += "/" + tunnel.container;
  }
  const std::string query = KubeletQuery(tunnel);
  return query.empty() ? target : target + "?" + query;
}

Result<KubeletDialer::Endpoint> KubeletDialer::FindKubelet(const std::string& node) const {
  const auto record = store_.Get(StoragePrefix({"", "nodes"}) + node);
  if (!record) {
    return NotFound({"", "nodes"}, node);
  }
  const kube::Json tree = ParseStored(*record->value);
  const std::int64_t port =
      kube::FindInt(tree, {"status", "daemonEndpoints", "kubeletEndpoint", "Port"});
  const kube::Json* addresses = kube::Find(tree, {"status", "addresses"});
  for (const auto type : kAddressTypes) {
    if (addresses == nullptr || !addresses->is_array()) {
      break;
    }
    for (const auto& address : *addresses) {
      const auto text = kube::FindString(address, {"address"});
      // Differs: a host name counts only when it is an address; nodes of an embedded host have
      // names that nobody resolves.
      const bool usable = type.ends_with("IP") ||
                          text.find_first_not_of("0123456789.:abcdef") == std::string_view::npos;
      if (kube::FindString(address, {"type"}) == type && !text.empty() && usable) {
        return Endpoint{std::string(text), port > 0 ? std::to_string(port) : kKubeletPort};
      }
    }
  }
  return ServiceUnavailable("no preferred addresses found; known addresses: []");
}

Result<std::shared_ptr<client::Transport>> KubeletDialer::Transport(const std::string& url,
                                                                    bool as_kubelet_client) {
  client::HttpTransportOptions options;
  options.server = url;
  options.insecure = true;
  if (as_kubelet_client) {
    const KeyPair pair = options_.client_certificate();
    options.credential.certificate_pem = pair.certificate;
    options.credential.key_pem = pair.key;
    if (!options_.kubelet_authority.empty()) {
      options.ca_pem = options_.kubelet_authority;
      options.insecure = false;
    }
  }
  const std::string key = (as_kubelet_client ? "k " : "p ") + url;
  MutexLock lock(mutex_);
  const bool renewed = as_kubelet_client && certificate_ != options.credential.certificate_pem;
  if (renewed || transports_.size() >= kTransportsMax) {
    transports_.clear();
  }
  if (renewed) {
    certificate_ = options.credential.certificate_pem;
  }
  if (const auto found = transports_.find(key); found != transports_.end()) {
    return found->second;
  }
  SUBLET_TRY(auto transport, client::MakeHttpTransport(std::move(options)));
  transports_[key] = transport;
  return transport;
}

Result<Destination> KubeletDialer::ToPod(const PodTunnel& tunnel) {
  SUBLET_TRY(const Endpoint endpoint, FindKubelet(tunnel.node));
  SUBLET_TRY(auto transport, Transport("https://" + HostPort(endpoint.host, endpoint.port), true));
  return Destination{std::move(transport), KubeletTarget(tunnel)};
}

Result<Destination> KubeletDialer::ToPodPort(const PodPort& port) {
  SUBLET_TRY(auto transport,
             Transport(port.scheme + "://" + HostPort(port.address, port.port), false));
  return Destination{std::move(transport), port.target};
}

Result<Destination> KubeletDialer::ToNode(const std::string& node, const std::string& scheme,
                                          const std::string& port, const std::string& target) {
  SUBLET_TRY(const Endpoint endpoint, FindKubelet(node));
  const bool is_kubelet = port.empty() || port == endpoint.port;
  const std::string url = (is_kubelet ? "https" : scheme) + "://" +
                          HostPort(endpoint.host, is_kubelet ? endpoint.port : port);
  SUBLET_TRY(auto transport, Transport(url, is_kubelet));
  return Destination{std::move(transport), target};
}

}  // namespace sublet::apiserver
