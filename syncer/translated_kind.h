// TranslatedKind: the common part of kinds whose virtual objects become one host object each in the
// tenant's host namespace (pods, services, configmaps, ...): where the two sides are found, how a
// host event finds its virtual key, creation, patching and deletion with their guards.
// Threads: as KindSyncer.
#pragma once

#include <map>
#include <string>

#include "kube/quantity.h"
#include "syncer/kind_syncer.h"

namespace sublet::syncer {

// What a pod takes of its node; nothing when it is over.
struct PodUse {
  std::string node;  // "" = none yet
  std::map<std::string, kube::Quantity> requests;
};
PodUse ReadPodUse(const kube::Json& pod);  // node_syncer.cc

// What is needed of a host object without parsing it: whose twin it says to be.
struct HostRecord {
  kube::ObjectKey virtual_key;
  std::string virtual_uid;
  std::string kind_text;
  std::string host_name;  // the annotation's
  PodUse use;             // pods only
};

class TranslatedKind : public KindSyncer {
 public:
  TranslatedKind(SyncContext& context, KindInfo info, kube::GroupVersionResource resource,
                 std::string kind);

  void Watch(Enqueue enqueue) override;
  client::ObjectPtr Virtual(const kube::ObjectKey& key) const override;
  client::ObjectPtr Host(const kube::ObjectKey& key) const override;

  // A host object whose virtual twin is gone is deleted, but only when it is really ours: kind,
  // name and host name all say so. A copied manifest is left alone.
  Result<client::Outcome> SyncToVirtual(const kube::ObjectKey& key,
                                        const kube::Json& host_object) override;
  Result<client::Outcome> Gone(const kube::ObjectKey& key) override;

 protected:
  // The name under which `key` stands on the host. Override for special objects.
  virtual std::string NameFormula(const kube::ObjectKey& key) const;

  SyncContext& context() const { return context_; }
  std::string HostNamespace() const;  // "" for kinds without namespaces
  client::Target HostTarget(std::string_view host_name, std::string_view subresource = "") const;
  client::Target VirtualTarget(const kube::ObjectKey& key, std::string_view subresource = "") const;

  // {apiVersion, kind, metadata} of the host twin. Errors: Forbidden (host name taken).
  Result<kube::Json> NewHostObject(const kube::Json& virtual_object);
  // `made`, when given, gets what the host answered.
  Result<client::Outcome> CreateHost(const kube::Json& host_object, kube::Json* made = nullptr);
  // A merge patch; nothing is sent when `patch` is null or empty.
  Result<client::Outcome> PatchHost(const kube::Json& host_object, const kube::Json& patch,
                                    std::string_view subresource = "");
  Result<client::Outcome> PatchVirtual(const kube::Json& virtual_object, const kube::Json& patch,
                                       std::string_view subresource = "");
  Result<client::Outcome> DeleteHost(const kube::Json& host_object,
                                     std::optional<std::int64_t> grace_seconds = std::nullopt);
  Result<client::Outcome> DeleteVirtual(const kube::Json& virtual_object,
                                        std::optional<std::int64_t> grace_seconds = std::nullopt);
  // The labels and annotations of `wanted` that `host_object` lacks or has otherwise, as a merge
  // patch {metadata: ...}; keys the host added are left alone, keys of ours that are no longer
  // wanted are removed.
  kube::Json MetadataPatch(const kube::Json& host_object, const kube::Json& wanted) const;

  client::Informer& virtual_informer() const { return *virtual_informer_; }
  client::Informer& host_informer() const { return *host_informer_; }

 private:
  SyncContext& context_;
  const kube::GroupVersionResource resource_;
  const std::string kind_;
  client::Informer* virtual_informer_ = nullptr;
  client::Informer* host_informer_ = nullptr;
};

// The virtual key an object of ours says to stand for; empty name when it says nothing.
HostRecord ReadHostRecord(const kube::Json& host_object);

}  // namespace sublet::syncer
