// Bootstrap: the objects a control plane begins with, written in one transaction at the first start
// and made whole again at later ones: namespaces, default roles and bindings, priority classes,
// flow control, the Service "kubernetes".
// Threads: the starting one, before requests are served.
#pragma once

#include <string>
#include <vector>

#include "apiserver/registry/catalog.h"
#include "base/clock.h"
#include "kube/json.h"
#include "storage/store.h"

namespace sublet::server {

struct BootstrapFacts {
  std::string authority_certificate;  // for kube-system/extension-apiserver-authentication
  std::string service_ip = "10.96.0.1";
  std::string endpoint_ip;  // where the Service "kubernetes" leads
  int endpoint_port = 0;
  bool local_volumes = false;  // the host: StorageClass local-path, the default one, and the
                               // rights of node agents besides a node's own
};

// All of them, in the order they are written.
std::vector<kube::Json> BootstrapObjects(const BootstrapFacts& facts);

// Writes what is missing and reconciles roles and bindings. Blocks until it is durable.
// Errors: the store's.
Result<void> Bootstrap(storage::Store& store, const apiserver::Catalog& catalog, WallTime now,
                       const std::vector<kube::Json>& objects);

}  // namespace sublet::server
