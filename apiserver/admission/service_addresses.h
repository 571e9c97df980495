// ServiceAddresses: who gives a Service its cluster IP. The server's own implementation takes a free
// one from the service range; a tenant's syncer puts its own here, which makes the host's Service
// and takes over its address. It is asked inside the POST, before anything is stored.
// Threads: any; an implementation that waits (for a host) runs on the request pool.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"

namespace sublet::apiserver {

class ServiceAddresses {
 public:
  virtual ~ServiceAddresses() = default;
  // True when Allocate may wait for something outside.
  virtual bool MayBlock() const = 0;
  // The cluster IP for `service` (namespace and name set), which asks for none. When the request
  // fails afterwards the address is not given back here: the implementation finds unused ones by
  // looking at the stored Services.
  // Errors: Timeout (deadline), Forbidden (the other side refuses), InternalError (range full).
  virtual Result<std::string> Allocate(const kube::Json& service, Deadline deadline) = 0;
};

}  // namespace sublet::apiserver
