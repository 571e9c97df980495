// DataSyncer: ConfigMaps and Secrets. They go to the host when a pod that runs there mentions them
// (or `all` is configured, or the object asks with sublet.dev/force-sync) and leave it after the
// last use. Data flows both ways: a change in the tenant wins, otherwise a change on the host comes
// back. Threads: as KindSyncer.
#pragma once

#include "syncer/translated_kind.h"

namespace sublet::syncer {

enum class DataKind { kConfigMap, kSecret };

class DataSyncer final : public TranslatedKind {
 public:
  DataSyncer(SyncContext& context, DataKind kind, bool sync_all);

  void Watch(Enqueue enqueue) override;
  Result<client::Outcome> SyncToHost(const kube::Json& virtual_object) override;
  Result<client::Outcome> Sync(const kube::Json& virtual_object,
                               const kube::Json& host_object) override;

 private:
  bool IsUsed(const kube::Json& virtual_object) const;
  // {data, binaryData}: what flows both ways.
  static kube::Json DataOf(const kube::Json& object);

  const DataKind data_kind_;
  const bool sync_all_;
  client::Informer* pods_ = nullptr;
  client::Informer* ingresses_ = nullptr;  // Secrets only, when Ingresses are synced
};

}  // namespace sublet::syncer
