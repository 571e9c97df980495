// EventSyncer: Events that the host writes about a synced object (image pulled, back-off,
// scheduling by the host) appear in the tenant on the virtual object, with virtual names. Threads:
// as KindSyncer.
#pragma once

#include "syncer/kind_syncer.h"

namespace sublet::syncer {

class EventSyncer final : public KindSyncer {
 public:
  explicit EventSyncer(SyncContext& context);

  void Watch(Enqueue enqueue) override;
  client::ObjectPtr Virtual(const kube::ObjectKey& key) const override;
  client::ObjectPtr Host(const kube::ObjectKey& key) const override;
  Result<client::Outcome> SyncToHost(const kube::Json& virtual_object) override;
  Result<client::Outcome> Sync(const kube::Json& virtual_object,
                               const kube::Json& host_object) override;
  Result<client::Outcome> SyncToVirtual(const kube::ObjectKey& key,
                                        const kube::Json& host_object) override;
  Result<client::Outcome> Gone(const kube::ObjectKey& key) override;

 private:
  SyncContext& context_;
  client::Informer* host_informer_ = nullptr;
};

}  // namespace sublet::syncer
