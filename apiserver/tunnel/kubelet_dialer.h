// KubeletDialer: finds a node's kubelet by its reported addresses and port, and speaks to it with
// the API server's kubelet client certificate. Threads: any. Bounds: 256 remembered transports
// (idle connections); then they are forgotten. Source: k8s.io/kubernetes pkg/kubelet/client;
// preferred address types of kube-apiserver.
#pragma once

#include <functional>
#include <map>

#include "apiserver/auth/certificates.h"
#include "apiserver/tunnel/node_dialer.h"
#include "base/mutex.h"
#include "kube/json.h"
#include "storage/store.h"

namespace sublet::apiserver {

struct KubeletDialerOptions {
  // Asked whenever a new connection is made ready, so that a renewed certificate is used.
  std::function<KeyPair()> client_certificate;
  // Authority of the kubelets' serving certificates; "" = not checked, which is Kubernetes' default
  // (real kubelets sign their own).
  std::string kubelet_authority;
};

class KubeletDialer final : public NodeDialer {
 public:
  KubeletDialer(const storage::Store& store, KubeletDialerOptions options)
      : store_(store), options_(std::move(options)) {}

  Result<Destination> ToPod(const PodTunnel& tunnel) override;
  Result<Destination> ToPodPort(const PodPort& port) override;
  Result<Destination> ToNode(const std::string& node, const std::string& scheme,
                             const std::string& port, const std::string& target) override;

 private:
  struct Endpoint {
    std::string host;
    std::string port;
  };
  Result<Endpoint> FindKubelet(const std::string& node) const;
  Result<std::shared_ptr<client::Transport>> Transport(const std::string& url,
                                                       bool as_kubelet_client)
      SUBLET_EXCLUDES(mutex_);

  const storage::Store& store_;
  const KubeletDialerOptions options_;
  static constexpr std::size_t kTransportsMax = 256;
  Mutex mutex_;
  std::string certificate_ SUBLET_GUARDED_BY(mutex_);  // of the remembered transports
  std::map<std::string, std::shared_ptr<client::Transport>> transports_ SUBLET_GUARDED_BY(mutex_);
};

// The path and query of the kubelet's API for a tunnel. Pure.
std::string KubeletTarget(const PodTunnel& tunnel);
std::string HostPort(const std::string& host, const std::string& port);

}  // namespace sublet::apiserver
