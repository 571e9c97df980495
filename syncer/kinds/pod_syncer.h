// PodSyncer: a bound virtual pod becomes a host pod; the host pod's life comes back as status.
// Decides only; what the host pod looks like is pod_translate.h.
//   virtual only:  bound, allowed, slice granted if it needs one → token Secret, then host pod
//   both:          deletion either way, rejection by the host, binding (host scheduling), status
//                  back, changes forward
//   host only:     deleted when it is really ours
// Threads: the loop's workers, one per key.
#pragma once

#include <optional>
#include <string>

#include "syncer/kinds/pod_rests.h"
#include "syncer/kinds/token_secret.h"
#include "syncer/translated_kind.h"

namespace sublet::syncer {

class PodSyncer final : public TranslatedKind {
 public:
  explicit PodSyncer(SyncContext& context);

  void Watch(Enqueue enqueue) override;
  Result<client::Outcome> SyncToHost(const kube::Json& virtual_pod) override;
  Result<client::Outcome> Sync(const kube::Json& virtual_pod, const kube::Json& host_pod) override;
  Result<client::Outcome> Gone(const kube::ObjectKey& key) override;
  std::optional<client::Outcome> Settled(const client::CachedObject& virtual_pod,
                                         const client::CachedObject& host_pod) override;

 private:
  // After the host pod was made from `virtual_pod`: when `made` is what was wanted, it is at rest
  // until one of them changes. `changes` as PodRests::changes() said before anything was read.
  void SettleMade(const kube::Json& virtual_pod, const kube::Json& made, const HostPod& wanted,
                  const client::Outcome& renew, std::uint64_t changes);

  // True when the tenant's embedded scheduler places this pod, so that it must be bound first.
  bool ScheduledByTenant(const kube::Json& pod) const;
  // The granted slice of the pod: nullopt = it needs one that is not granted yet; "" = needs none.
  std::optional<std::string> SliceOf(const kube::Json& pod) const;
  PodContext ContextOf(const kube::Json& pod, std::string slice) const;
  // What the pod may not do on the host; "" = nothing to object to.
  std::string Objection(const kube::Json& pod) const;
  // Says with Events what of the pod's wishes does not hold on the host.
  void TellLimits(const kube::Json& pod) const;

  Result<client::Outcome> SyncLeftover(const kube::Json& virtual_pod, const kube::Json& host_pod,
                                       bool* handled);
  Result<client::Outcome> SyncDeletion(const kube::Json& virtual_pod, const kube::Json& host_pod,
                                       bool* handled);
  Result<client::Outcome> SyncRejection(const kube::Json& virtual_pod, const kube::Json& host_pod,
                                        bool* handled);
  // Takes the binding of a bare pod back, so that it is placed again.
  Result<void> Unbind(const kube::Json& virtual_pod, const std::string& why, int times);
  Result<void> SyncBinding(const kube::Json& virtual_pod, const kube::Json& host_pod);
  // The virtual pod's resourceVersion when its status is the host's; "" when it went, or more than
  // the status changed, meanwhile.
  Result<std::string> SyncStatus(const kube::Json& virtual_pod, const kube::Json& host_pod);
  // Readiness gates that the tenant's controllers set: the host's node counts them.
  Result<void> SyncGates(const kube::Json& virtual_pod, const kube::Json& host_pod);
  // True when there was nothing to carry.
  Result<bool> SyncSpec(const kube::Json& virtual_pod, const kube::Json& host_pod,
                        const HostPod& wanted);
  Result<void> SyncResources(const kube::Json& host_pod, const HostPod& wanted);
  Result<void> SyncEphemeralContainers(const kube::Json& virtual_pod, const kube::Json& host_pod);

  TokenSecrets tokens_;
  client::Informer* namespaces_ = nullptr;
  client::Informer* services_ = nullptr;
  client::Informer* nodes_ = nullptr;  // the host's, as far as they are the tenant's
  client::Informer* slices_ = nullptr;
  client::Informer* gpu_nodes_ = nullptr;
  PodRests rests_;
};

}  // namespace sublet::syncer
