// HostDialer: exec, attach, log, port-forward and proxy of a tenant's pods, led to the host's API,
// which leads them on to the real kubelet. Only pods that this tenant synced have a way there. A
// node's kubelet is shown as far as it is about the tenant's pods: /healthz, /pods, /runningpods
// and /containerLogs; the rest is the host's. What the host says against a request is told in the
// tenant's names.
// Threads: any.
#pragma once

#include "apiserver/tunnel/node_dialer.h"
#include "syncer/syncer.h"

namespace sublet::server {

class HostDialer final : public apiserver::NodeDialer {
 public:
  // `syncer` outlives the dialer and every connection made through it.
  explicit HostDialer(syncer::Syncer& syncer) : syncer_(syncer) {}

  Result<apiserver::Destination> ToPod(const apiserver::PodTunnel& tunnel) override;
  Result<apiserver::Destination> ToPodPort(const PodPort& port) override;
  // Errors: NotFound (no such node in the tenant), Forbidden (another path or port; a pod or
  // container that is not the tenant's, or is on another node), ServiceUnavailable.
  Result<apiserver::Destination> ToNode(const std::string& node, const std::string& scheme,
                                        const std::string& port,
                                        const std::string& target) override;

 private:
  // The host's API; what it refuses is told in the names of `virtual_namespace`.
  std::shared_ptr<client::Transport> Transport(const std::string& virtual_namespace) const;
  Result<apiserver::Destination> ToLog(const std::string& node, std::string_view path,
                                       const std::string& query) const;

  syncer::Syncer& syncer_;
};

}  // namespace sublet::server
