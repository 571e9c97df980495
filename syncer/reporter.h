// Reporter: what the syncer tells a tenant, as Events on the tenant's object (SyncError, SyncWarning
// and reasons of our own). Host names never appear: they are turned back into virtual ones before
// anything is written.
// Threads: any.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/client.h"
#include "syncer/names.h"

namespace sublet::syncer {

class Reporter {
 public:
  Reporter(client::Client virtual_client, Tenant tenant, const Clock& clock)
      : client_(std::move(virtual_client)), tenant_(std::move(tenant)), clock_(clock) {}

  // Writes or counts up one Event. `object` is the virtual object (apiVersion, kind, metadata).
  // The same (object, reason, message) within a minute is written once.
  void Warn(const kube::Json& object, std::string_view reason, std::string_view message);
  void Normal(const kube::Json& object, std::string_view reason, std::string_view message);

  // `text` with every host name of this tenant replaced by the virtual name, and the host namespace
  // by the virtual one.
  std::string Sanitise(std::string_view text) const;

 private:
  struct Written {
    MonotonicTime at;
    std::string event_name;
    int count = 1;
  };
  void Write(const kube::Json& object, std::string_view type, std::string_view reason,
             std::string_view message);

  const client::Client client_;
  const Tenant tenant_;
  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Written> recent_ SUBLET_GUARDED_BY(mutex_);  // at most kRecentMax
};

}  // namespace sublet::syncer
