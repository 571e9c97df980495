// HostServices: inside a tenant, a Service's address and node ports are the host's: the host
// Service is made while the tenant's POST is being answered
// (apiserver/admission/service_addresses.h). Threads: any; calls run on the request pool.
#pragma once

#include <atomic>

#include "apiserver/admission/service_addresses.h"
#include "syncer/syncer.h"

namespace sublet::server {

class HostServices final : public apiserver::ServiceAddresses {
 public:
  // Who makes host Services; before the server answers requests. Outlives this.
  void UseSyncer(syncer::Syncer* syncer) { syncer_.store(syncer, std::memory_order_release); }

  bool MayBlock() const override { return true; }
  // At most ten seconds, less when `deadline` is nearer.
  Result<kube::Json> Allocate(const kube::Json& service, Deadline deadline) override {
    syncer::Syncer* syncer = syncer_.load(std::memory_order_acquire);
    if (syncer == nullptr) {
      return ServiceUnavailable("the tenant is not connected to its host yet");
    }
    return syncer->AllocateService(service, std::min(deadline, After(std::chrono::seconds(10))));
  }

 private:
  std::atomic<syncer::Syncer*> syncer_{nullptr};
};

}  // namespace sublet::server
