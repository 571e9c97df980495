// VolumeSyncer: the volume of a bound claim, shown to the tenant as a PersistentVolume. The host's
// own object is not read (it is cluster-scoped, and others' stand beside it): what the tenant sees
// is made of its claim. Read only, like the mirrored kinds; goes with the claim; volumes that the
// tenant made are left alone. The "host side" of this kind is the tenant's claim. Threads: as
// KindSyncer.
#pragma once

#include "syncer/kinds/mirror_syncer.h"

namespace sublet::syncer {

class VolumeSyncer final : public MirrorSyncer {
 public:
  explicit VolumeSyncer(SyncContext& context);

  void Watch(Enqueue enqueue) override;
  client::ObjectPtr Host(const kube::ObjectKey& key) const override;

 protected:
  std::optional<kube::Json> Show(const kube::Json& claim) const override;

 private:
  client::Informer* claims_ = nullptr;
};

}  // namespace sublet::syncer
