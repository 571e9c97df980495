#include "syncer/kinds/registry.h"

#include "syncer/kinds/data_syncer.h"
#include "syncer/kinds/event_syncer.h"
#include "syncer/kinds/mirror_syncer.h"
#include "syncer/kinds/node_syncer.h"
#include "syncer/kinds/pod_syncer.h"
#include "syncer/kinds/replicated_service.h"
#include "syncer/kinds/simple_syncer.h"
#include "syncer/kinds/volume_syncer.h"

namespace sublet::syncer {

Kinds MakeKinds(SyncContext& context) {
  const SyncConfig& config = context.config;
  Kinds kinds;
  const auto add = [&kinds](bool enabled, auto make) {
    if (enabled) {
      kinds.all.push_back(make());
    }
  };
  const auto simple = [&context](SimpleKind (*kind)()) {
    return [&context, kind] { return std::make_unique<SimpleSyncer>(context, kind()); };
  };
  const auto mirror = [&context](MirrorKind (*kind)()) {
    return [&context, kind] { return std::make_unique<MirrorSyncer>(context, kind()); };
  };
  // Nodes first: a pod is shown on a node that exists.
  add(true, [&context] { return std::make_unique<NodeSyncer>(context); });
  add(context.host_has_gpu, mirror(GpuNodeKind));
  add(config.storage_classes, mirror(StorageClassKind));
  add(config.ingress_classes, mirror(IngressClassKind));
  add(config.runtime_classes, mirror(RuntimeClassKind));
  add(config.priority_classes_from_host, mirror(PriorityClassKind));
  add(true, [&] {
    return std::make_unique<DataSyncer>(context, DataKind::kConfigMap, config.config_maps_all);
  });
  add(true,
      [&] { return std::make_unique<DataSyncer>(context, DataKind::kSecret, config.secrets_all); });
  add(config.priority_classes_to_host, simple(PriorityClassToHostKind));
  add(config.pod_disruption_budgets, simple(PodDisruptionBudgetKind));
  add(!config.replicate_to_host.empty(),
      [&context] { return std::make_unique<ServiceToHost>(context); });
  add(!config.replicate_from_host.empty(),
      [&context] { return std::make_unique<ServiceFromHost>(context); });
  add(config.service_accounts, simple(ServiceAccountKind));
  add(config.storage_classes_to_host, simple(StorageClassToHostKind));
  add(config.persistent_volumes_to_host, simple(PersistentVolumeToHostKind));
  add(config.persistent_volume_claims, simple(PersistentVolumeClaimKind));
  add(config.persistent_volume_claims,
      [&context] { return std::make_unique<VolumeSyncer>(context); });
  add(config.services, [&] {
    auto services = std::make_unique<ServiceSyncer>(context);
    kinds.services = services.get();
    return services;
  });
  add(config.endpoints, simple(EndpointsKind));
  add(config.endpoint_slices, simple(EndpointSliceKind));
  add(config.ingresses, simple(IngressKind));
  add(config.network_policies, simple(NetworkPolicyKind));
  add(true, [&context] { return std::make_unique<PodSyncer>(context); });
  add(config.events, [&context] { return std::make_unique<EventSyncer>(context); });
  return kinds;
}

}  // namespace sublet::syncer
