// ServiceSyncer: a tenant's Service becomes a host Service with the same ports and a translated
// selector; the ClusterIP is the host's. `default/kubernetes` stands for the tenant's own Service.
// Threads: as KindSyncer.
#pragma once

#include <map>

#include "base/mutex.h"
#include "syncer/translated_kind.h"

namespace sublet::syncer {

class ServiceSyncer final : public TranslatedKind {
 public:
  explicit ServiceSyncer(SyncContext& context);

  Result<client::Outcome> SyncToHost(const kube::Json& virtual_service) override;
  Result<client::Outcome> Sync(const kube::Json& virtual_service,
                               const kube::Json& host_service) override;
  // A host Service made a moment ago inside a POST that is still being answered is left alone.
  Result<client::Outcome> SyncToVirtual(const kube::ObjectKey& key,
                                        const kube::Json& host_service) override;
  Result<client::Outcome> Gone(const kube::ObjectKey& key) override;

  // Makes the host Service of a virtual one that is about to be written, or brings an existing one
  // to its ports and type, and returns its spec as the host stored it (clusterIP, clusterIPs,
  // ipFamilies, nodePorts): what the tenant's request is answered with.
  // Errors: AlreadyExists; the host's; Timeout.   Threads: any.
  Result<kube::Json> Allocate(const kube::Json& virtual_service, Deadline deadline);

 private:
  Result<kube::Json> Translate(const kube::Json& virtual_service);
  // The host Service as it should be, minus what is so already; null when nothing is to be done.
  kube::Json PatchFor(const kube::Json& host_service, const kube::Json& wanted) const;
  // Service and twin disagree on the cluster IP, which no update may change: the side that can be
  // made again is.
  Result<client::Outcome> Rebuild(const kube::Json& virtual_service,
                                  const kube::Json& host_service);
  // The second half of Rebuild, also after a restart: what was deleted is created from the note that
  // was made of it (the mapping's last synced fields, which Services have no other use for).
  Result<client::Outcome> Remake(const kube::ObjectKey& key);
  bool IsBeingRemade(const kube::ObjectKey& key) const;
  // The Service is in the store: no request is on its way, nothing is to be remade.
  Result<void> NoteThere(const kube::ObjectKey& key);
  // MakeTwin for a Service on its way into the store: the twin is left alone until it is there.
  Result<kube::Json> MakeNewTwin(const kube::ObjectKey& key, const kube::Json& virtual_service,
                                 Deadline deadline);
  Result<kube::Json> MakeTwin(const kube::ObjectKey& key, const kube::Json& virtual_service,
                              Deadline deadline);

  // Twins whose virtual Service is on its way into the store. Kept here and not on the twin: after
  // a restart no request is on its way, and what is without its Service then is left over.
  void BeginAnswer(const kube::ObjectKey& key);
  void EndAnswer(const kube::ObjectKey& key);
  std::chrono::nanoseconds AnswerTimeLeft(const kube::ObjectKey& key);  // <= 0: nothing is

  Mutex mutex_;
  // Until when; ended by the first look at the stored Service, dropped after a minute.
  std::map<kube::ObjectKey, WallTime> answering_ SUBLET_GUARDED_BY(mutex_);
};

// The host spec of a virtual Service spec. Pure.
kube::Json HostServiceSpec(const Tenant& tenant, const kube::Json& virtual_service);

}  // namespace sublet::syncer
