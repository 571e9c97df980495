// NodeDialer: where the bytes of exec, attach, log, port-forward and proxy go. On a cluster of our
// own that is the kubelet API of the pod's node (kubelet_dialer.h); in a tenant the syncer leads
// them to the host's API instead. Threads: any; may block on storage and on making a transport,
// never on the network.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "client/transport.h"

namespace sublet::apiserver {

struct PodTunnel {
  std::string subresource;  // exec, attach, portforward, log
  std::string namespace_name;
  std::string pod;
  std::string container;  // resolved; "" for port-forward
  std::string node;       // spec.nodeName, not empty
  std::string raw_query;  // as the client sent it
};

// A request's way on: `target` is path and query for `transport`.
struct Destination {
  std::shared_ptr<client::Transport> transport;
  std::string target;
  bool is_log = false;  // the answer is a text that may go on: sent as it comes
};

class NodeDialer {
 public:
  virtual ~NodeDialer() = default;
  // Errors: NotFound (node), ServiceUnavailable (no address, not synced yet).
  virtual Result<Destination> ToPod(const PodTunnel& tunnel) = 0;
  // A port of a pod, for proxy. `scheme` "http" or "https", port "" = the scheme's own; `address`
  // is the pod's IP, `target` path and query as the pod shall see them.
  struct PodPort {
    std::string namespace_name;
    std::string pod;
    std::string address;
    std::string scheme;
    std::string port;
    std::string target;
  };
  virtual Result<Destination> ToPodPort(const PodPort& port) = 0;
  // The kubelet (port "") or another port of a node. Errors: as ToPod.
  virtual Result<Destination> ToNode(const std::string& node, const std::string& scheme,
                                     const std::string& port, const std::string& target) = 0;
};

}  // namespace sublet::apiserver
