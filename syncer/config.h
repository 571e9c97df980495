// SyncConfig: what a tenant's values say about synchronisation. Filled by server/config from the
// keys sync.*, policies.*, networking.* and experimental.syncSettings.*.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kube/json.h"
#include "syncer/kinds/pod_translate.h"

namespace sublet::syncer {

struct ServiceReplication {
  std::string from;  // "namespace/name"
  std::string to;
};

struct SyncConfig {
  PodPolicy pods;
  bool set_owner = true;  // experimental.syncSettings.setOwner
  bool config_maps_all = false;
  bool secrets_all = false;
  bool services = true;
  bool endpoints = true;
  bool endpoint_slices = true;
  bool persistent_volume_claims = true;
  bool service_accounts = false;
  bool ingresses = false;
  bool network_policies = false;
  bool network_policy =
      false;  // policies.networkPolicy: the tenant's own may not open its namespace
  bool pod_disruption_budgets = false;
  bool priority_classes_to_host = false;
  bool priority_classes_from_host = false;
  bool storage_classes = true;           // sync.fromHost.storageClasses
  bool storage_classes_to_host = false;  // the tenant's own, never together with the above
  bool persistent_volumes_to_host = false;
  bool ingress_classes = false;
  bool runtime_classes = false;
  bool events = true;
  std::map<std::string, std::string> node_labels;  // sync.fromHost.nodes.selector.labels
  // Scheduler names whose pods go to the host unbound; the host's scheduler places them.
  std::vector<std::string> host_schedulers;
  bool host_schedules_all = false;  // the embedded scheduler is off
  std::vector<ServiceReplication> replicate_to_host;
  std::vector<ServiceReplication> replicate_from_host;
  std::string pod_security = "baseline";  // policies.podSecurityStandard
  bool gpu_enforced = true;               // controlPlane.gpu.enforce
  std::int64_t gpu_devices_max = -1;      // policies.gpu.devices, -1 = no bound
  std::int64_t gpu_memory_max = -1;       // policies.gpu.memory in bytes
};

}  // namespace sublet::syncer
