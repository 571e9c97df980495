// HostDialer: exec, attach, log, port-forward and proxy of a tenant's pods, led to the host's API,
// which leads them on to the real kubelet. Only pods that this tenant synced have a way there.
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
  // Errors: Forbidden always: a tenant has no rights on the host's nodes.
  Result<apiserver::Destination> ToNode(const std::string& node, const std::string& scheme,
                                        const std::string& port,
                                        const std::string& target) override;

 private:
  std::shared_ptr<client::Transport> Transport() const;

  syncer::Syncer& syncer_;
};

}  // namespace sublet::server
