// MirrorSyncer: cluster-scoped objects of the host shown to the tenant under their own names, read
// only: StorageClasses, IngressClasses, RuntimeClasses, PriorityClasses and GpuNodes. A tenant's
// edits are turned back; objects the tenant made itself are left alone. Nodes have a class of their
// own (node_syncer.h) on the same base. Threads: as KindSyncer.
#pragma once

#include "syncer/kind_syncer.h"

namespace sublet::syncer {

// Marks a virtual object that stands for one of the host's.
inline constexpr std::string_view kMirroredLabel = "sublet.dev/mirrored";

struct MirrorKind {
  KindInfo info;
  kube::GroupVersionResource resource;
  std::string kind;
  // Members copied beside metadata.
  std::vector<std::string> members;
  std::string label_selector;  // of the host objects, "" = all
  bool has_status = false;     // status is written by its own subresource
};

class MirrorSyncer : public KindSyncer {
 public:
  MirrorSyncer(SyncContext& context, MirrorKind kind);

  void Watch(Enqueue enqueue) override;
  client::ObjectPtr Virtual(const kube::ObjectKey& key) const override;
  client::ObjectPtr Host(const kube::ObjectKey& key) const override;
  Result<client::Outcome> SyncToHost(const kube::Json& virtual_object) override;
  Result<client::Outcome> Sync(const kube::Json& virtual_object,
                               const kube::Json& host_object) override;
  Result<client::Outcome> SyncToVirtual(const kube::ObjectKey& key,
                                        const kube::Json& host_object) override;
  Result<client::Outcome> Gone(const kube::ObjectKey& key) override;

 protected:
  // What the tenant sees of `host_object`. nullopt: not shown.
  virtual std::optional<kube::Json> Show(const kube::Json& host_object) const;

  // The virtual half of Watch, for a kind whose host side is something else.
  void WatchVirtual(const Enqueue& enqueue);

  SyncContext& context() const { return context_; }

 private:
  client::Target VirtualTarget(std::string_view name, std::string_view subresource = "") const;
  Result<client::Outcome> RemoveVirtual(const kube::Json& virtual_object);

  SyncContext& context_;
  const MirrorKind kind_;
  client::Informer* virtual_informer_ = nullptr;
  client::Informer* host_informer_ = nullptr;
};

MirrorKind StorageClassKind();
MirrorKind IngressClassKind();
MirrorKind RuntimeClassKind();
MirrorKind PriorityClassKind();
MirrorKind GpuNodeKind();

}  // namespace sublet::syncer
