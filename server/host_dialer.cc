#include "server/host_dialer.h"

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "apiserver/request.h"
#include "apiserver/tunnel/targets.h"

namespace sublet::server {
namespace {

constexpr std::string_view kLogsPath = "/containerLogs/";

// The host's API for one request of a tenant.
class HostView final : public client::Transport {
 public:
  using Rewrite = std::function<std::string(std::string_view)>;

  HostView(client::Transport& host, Rewrite rewrite) : host_(host), rewrite_(std::move(rewrite)) {}

  Result<client::HttpResponse> RoundTrip(const client::HttpRequest& request) override {
    return Told(host_.RoundTrip(request));
  }
  Result<std::unique_ptr<client::Stream>> OpenStream(const client::HttpRequest& request) override {
    return Told(host_.OpenStream(request));
  }
  Result<std::unique_ptr<client::Tunnel>> OpenTunnel(const client::HttpRequest& request) override {
    return Told(host_.OpenTunnel(request));
  }

 private:
  template <typename T>
  Result<T> Told(Result<T> result) const {
    if (result.ok()) {
      return result;
    }
    const Status& error = result.error();
    return Status(error.reason(), error.code(), rewrite_(error.message()));
  }

  client::Transport& host_;
  const Rewrite rewrite_;
};

// The tenant's own API, for reading only: a kubelet's lists cannot be written.
class ReadOnly final : public client::Transport {
 public:
  explicit ReadOnly(client::Transport& inner) : inner_(inner) {}

  Result<client::HttpResponse> RoundTrip(const client::HttpRequest& request) override {
    if (request.method != "GET") {
      return client::HttpResponse{405, {{"Content-Type", "text/plain"}}, "Method Not Allowed\n"};
    }
    // Not the caller's headers: a kubelet knows no tables and no impersonation.
    return inner_.RoundTrip(
        {"GET", request.target, {{"Accept", "application/json"}}, "", request.deadline});
  }
  Result<std::unique_ptr<client::Stream>> OpenStream(const client::HttpRequest&) override {
    return Refused();
  }
  Result<std::unique_ptr<client::Tunnel>> OpenTunnel(const client::HttpRequest&) override {
    return Refused();
  }

 private:
  static Status Refused() { return BadRequest("a kubelet's lists are read with a plain GET"); }

  client::Transport& inner_;
};

// NAMESPACE/POD/CONTAINER.
std::optional<std::array<std::string, 3>> SplitLogPath(std::string_view path) {
  std::array<std::string, 3> parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto slash = path.find('/');
    parts[i] = path.substr(0, slash);
    const bool is_last = i + 1 == parts.size();
    if (parts[i].empty() || is_last != (slash == std::string_view::npos)) {
      return std::nullopt;
    }
    path.remove_prefix(is_last ? path.size() : slash + 1);
  }
  return parts;
}

}  // namespace

std::shared_ptr<client::Transport> HostDialer::Transport(const std::string& space) const {
  return std::make_shared<HostView>(
      syncer_.host_client().transport(),
      [this, space](std::string_view text) { return syncer_.ForTenant(text, space); });
}

Result<apiserver::Destination> HostDialer::ToPod(const apiserver::PodTunnel& tunnel) {
  SUBLET_TRY(const std::string pod, syncer_.HostPodPath({tunnel.namespace_name, tunnel.pod}));
  std::string query = tunnel.raw_query;
  // The host's pod may have more containers than the tenant's: the choice was made here.
  if (!tunnel.container.empty() && !apiserver::ParseQuery(query).Has("container")) {
    query += (query.empty() ? "container=" : "&container=") + tunnel.container;
  }
  return apiserver::Destination{
      Transport(tunnel.namespace_name),
      pod + "/" + tunnel.subresource + (query.empty() ? "" : "?" + query)};
}

Result<apiserver::Destination> HostDialer::ToPodPort(const PodPort& port) {
  SUBLET_TRY(std::string pod, syncer_.HostPodPath({port.namespace_name, port.pod}));
  // .../pods/NAME becomes .../pods/[https:]NAME[:PORT]/proxy/...
  const auto name = pod.rfind('/') + 1;
  if (port.scheme == "https") {
    pod.insert(name, "https:");
    if (port.port.empty()) {
      pod += ":";
    }
  }
  if (!port.port.empty()) {
    pod += ":" + port.port;
  }
  return apiserver::Destination{Transport(port.namespace_name), pod + "/proxy" + port.target};
}

Result<apiserver::Destination> HostDialer::ToLog(const std::string& node, std::string_view path,
                                                 const std::string& query) const {
  // Differs: a kubelet says 404 about what it does not run; here it may be another tenant's.
  const auto refused = [&] {
    return Forbidden({"", "nodes"}, node, "this log is not one of the virtual cluster's");
  };
  const auto parts = SplitLogPath(path);
  if (!parts || apiserver::ParseQuery(query).Has("container")) {
    return refused();
  }
  const auto& [space, name, container] = *parts;
  const auto pod = syncer_.virtual_client().Get({{"", "v1", "pods"}, space, name, ""});
  if (!pod.ok() || kube::FindString(*pod, {"spec", "nodeName"}) != node ||
      !apiserver::ChooseContainer(*pod, container).ok()) {
    return refused();
  }
  SUBLET_TRY(const std::string host_pod, syncer_.HostPodPath({space, name}));
  return apiserver::Destination{
      Transport(space),
      host_pod + "/log?container=" + container + (query.empty() ? "" : "&" + query), true};
}

Result<apiserver::Destination> HostDialer::ToNode(const std::string& node, const std::string&,
                                                  const std::string& port,
                                                  const std::string& target) {
  client::Client& own = syncer_.virtual_client();
  SUBLET_TRY(const auto found, own.Get({{"", "v1", "nodes"}, "", node, ""}));
  (void)found;
  const auto question = target.find('?');
  std::string path = target.substr(0, question);
  const std::string query = question == std::string::npos ? "" : target.substr(question + 1);
  const bool is_kubelet = port.empty() || port == "10250";
  if (is_kubelet && path.starts_with(kLogsPath)) {
    return ToLog(node, std::string_view(path).substr(kLogsPath.size()), query);
  }
  while (path.size() > 1 && path.ends_with('/')) {
    path.pop_back();
  }
  const std::string here = "/api/v1/pods?fieldSelector=spec.nodeName%3D" + node;
  const std::string way = !is_kubelet              ? ""
                          : path == "/pods"        ? here
                          : path == "/runningpods" ? here + "%2Cstatus.phase%3DRunning"
                          : path == "/healthz"     ? path
                                                   : "";
  if (way.empty()) {
    return Forbidden({"", "nodes"}, node,
                     "of a node, a virtual cluster reaches /healthz, /pods, /runningpods and the "
                     "/containerLogs of its own pods");
  }
  return apiserver::Destination{std::make_shared<ReadOnly>(own.transport()), way};
}

}  // namespace sublet::server
