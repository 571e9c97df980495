// The endpoints of Service default/kubernetes: where this API server itself is reached. Written at
// every start, because the address may have changed.
// Source: kube-apiserver pkg/controlplane/reconcilers (a single server's lease-less case).
// Threads: the starting one.
#pragma once

#include <string>

#include "client/client.h"

namespace sublet::server {

// Errors: the API's.
Result<void> PublishOwnEndpoints(const client::Client& client, const std::string& ip, int port);

}  // namespace sublet::server
