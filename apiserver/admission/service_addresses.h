// ServiceAddresses: who gives a Service its cluster IP. The server's own implementation takes a
// free one from the service range; a tenant's control plane puts its own here
// (server/host_services.h), which makes the host's Service and takes over its address and node
// ports. It is asked inside the POST, before anything is stored. Threads: any; an implementation
// that waits (for a host) runs on the request pool.
#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"

namespace sublet::apiserver {

class ServiceAddresses {
 public:
  virtual ~ServiceAddresses() = default;
  // True when the addresses come from outside: Allocate may wait, is asked whenever an address or a
  // node port is missing, and what the client chose itself is for the other side to judge.
  virtual bool MayBlock() const = 0;
  // The members of spec that `service` (namespace and name set) is given: {clusterIP}, and from
  // outside also ipFamilies, ipFamilyPolicy, healthCheckNodePort and ports with nodePort. Asked
  // again for the same Service it gives the same. When the request fails afterwards nothing is
  // given back here: the implementation finds unused ones by looking at the stored Services.
  // Errors: Timeout (deadline), Forbidden or Invalid (the other side refuses), ServiceUnavailable
  // (it cannot be reached), InternalError (range full).
  virtual Result<kube::Json> Allocate(const kube::Json& service, Deadline deadline) = 0;
};

}  // namespace sublet::apiserver
