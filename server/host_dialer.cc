#include "server/host_dialer.h"

#include "apiserver/request.h"

namespace sublet::server {

std::shared_ptr<client::Transport> HostDialer::Transport() const {
  // Owned by the syncer's client, which outlives us.
  return std::shared_ptr<client::Transport>(std::shared_ptr<void>(),
                                            &syncer_.host_client().transport());
}

Result<apiserver::Destination> HostDialer::ToPod(const apiserver::PodTunnel& tunnel) {
  SUBLET_TRY(const std::string pod, syncer_.HostPodPath({tunnel.namespace_name, tunnel.pod}));
  std::string query = tunnel.raw_query;
  // The host's pod may have more containers than the tenant's: the choice was made here.
  if (!tunnel.container.empty() && !apiserver::ParseQuery(query).Has("container")) {
    query += (query.empty() ? "container=" : "&container=") + tunnel.container;
  }
  return apiserver::Destination{
      Transport(), pod + "/" + tunnel.subresource + (query.empty() ? "" : "?" + query)};
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
  return apiserver::Destination{Transport(), pod + "/proxy" + port.target};
}

Result<apiserver::Destination> HostDialer::ToNode(const std::string& node, const std::string&,
                                                  const std::string&, const std::string&) {
  return Forbidden({"", "nodes"}, node, "the nodes of a virtual cluster cannot be reached");
}

}  // namespace sublet::server
