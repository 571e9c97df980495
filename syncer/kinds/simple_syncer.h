// SimpleSyncer: kinds that go to the host as they are but for names: PersistentVolumeClaims,
// Ingresses, NetworkPolicies, Endpoints, EndpointSlices, ServiceAccounts, and by configuration
// StorageClasses, PersistentVolumes and PriorityClasses. A row of functions says what each one
// becomes; the status comes back where the kind has one. Threads: as KindSyncer.
#pragma once

#include "syncer/translated_kind.h"

namespace sublet::syncer {

struct SimpleKind {
  KindInfo info;
  kube::GroupVersionResource resource;
  std::string kind;
  // Whether this object goes to the host at all.
  bool (*wanted)(SyncContext& context, const kube::Json& virtual_object);
  // The members beside metadata (spec, subsets, ...).
  Result<kube::Json> (*translate)(const SyncContext& context, const kube::Json& virtual_object);
  // Members that follow later changes of the tenant's object; others are set at creation only.
  std::vector<std::string> mutable_members;
  bool status_back = false;
  // What else comes back from the host: a merge patch for the virtual object, or null.
  kube::Json (*back)(const SyncContext& context, const kube::Json& virtual_object,
                     const kube::Json& host_object);
};

class SimpleSyncer final : public TranslatedKind {
 public:
  SimpleSyncer(SyncContext& context, SimpleKind kind);

  void Watch(Enqueue enqueue) override;

  Result<client::Outcome> SyncToHost(const kube::Json& virtual_object) override;
  Result<client::Outcome> Sync(const kube::Json& virtual_object,
                               const kube::Json& host_object) override;

 private:
  // Endpoints and EndpointSlices: of one name with a Service, and made by the host as well.
  bool FollowsService() const { return kind_.info.name.starts_with("endpoint"); }

  const SimpleKind kind_;
};

// The mapping's name of PersistentVolumes that the tenant made itself.
inline constexpr std::string_view kOwnVolumes = "persistentvolumes-to-host";

// The rows.
SimpleKind PersistentVolumeClaimKind();
SimpleKind StorageClassToHostKind();
SimpleKind PersistentVolumeToHostKind();
SimpleKind IngressKind();
SimpleKind NetworkPolicyKind();
SimpleKind EndpointsKind();
SimpleKind EndpointSliceKind();
SimpleKind ServiceAccountKind();
SimpleKind PodDisruptionBudgetKind();
SimpleKind PriorityClassToHostKind();

}  // namespace sublet::syncer
