// The credentials of a node agent as one kubeconfig: context `node` acts as system:node:NAME with a
// node's rights, context `network` as sublet:node-network, which only follows what Services, names
// and policies are made of (elsewhere kube-proxy's and the network plugin's accounts).
// Written by `sublet serve --write-node-kubeconfig` at each start. Threads: any.
#pragma once

#include <string>

#include "apiserver/auth/certificates.h"
#include "base/clock.h"
#include "kube/json.h"

namespace sublet::server {

// JSON, which every reader of kubeconfigs takes. The certificates last a year from `now`.
// Errors: InternalError (OpenSSL).
Result<std::string> MakeNodeKubeconfig(const apiserver::CertificateAuthority& authority,
                                       const std::string& server, const std::string& node_name,
                                       WallTime now);

// ClusterRole and ClusterRoleBinding of sublet:node-network, as manifests/host/node-network.yaml
// has them for other API servers.
kube::Json NodeNetworkRole();
kube::Json NodeNetworkBinding();

}  // namespace sublet::server
