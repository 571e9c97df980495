// TenantConfig: a tenant's values file. `sublet create --values` and `sublet serve --config` read
// the same schema through the same parser. Keys are vcluster.yaml's where the concept is the same.
// Strict: an unknown key, a wrong type or a value outside its range names file, line and what is
// allowed. docs/VALUES.md lists every key; a test keeps the two in step. Threads: values; parse on
// any thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace sublet::config {

struct Enabled {
  bool enabled = false;
};

struct SchedulerProfile {
  std::string scheduler_name;  // pods with this spec.schedulerName
  std::string profile;         // default, kai-0.7, kai-0.9, kai-0.13, kai-0.17
  // KAI's names ("kValue", "placementStrategy.gpu"); the scheduler checks them at the start.
  std::map<std::string, std::string> arguments;
};

struct Replication {
  std::string from;  // "namespace/name"
  std::string to;
};

struct TenantConfig {
  // controlPlane
  struct {
    std::string image;                       // controlPlane.statefulSet.image
    std::string service_type = "ClusterIP";  // controlPlane.service.type
    std::vector<std::string> extra_sans;     // controlPlane.proxy.extraSANs
    std::string cpu_request = "20m";
    std::string memory_request = "64Mi";
    std::string memory_limit = "1Gi";
    bool persistence = true;       // controlPlane.statefulSet.persistence.enabled
    bool persistence_auto = true;  // not said: on when the host has a default StorageClass
    std::string persistence_size = "5Gi";
    std::string storage_class;
    bool scheduler_enabled = true;  // controlPlane.scheduler.enabled
    std::vector<SchedulerProfile> scheduler_profiles;
    bool kai_crds = true;            // controlPlane.scheduler.kai.enabled
    std::string gpu_enforce = "on";  // controlPlane.gpu.enforce
  } control_plane;

  // sync.toHost
  std::map<std::string, std::string> translate_images;
  kube::Json enforced_tolerations;  // array or null
  std::string runtime_class_name;
  std::string priority_class_name;
  std::vector<std::string> allowed_metadata;  // sync.toHost.pods.allowedMetadata
  std::vector<std::string> host_schedulers;   // sync.toHost.pods.hybridScheduling.hostSchedulers
  bool services = true;
  bool endpoints = true;
  bool endpoint_slices = true;
  bool persistent_volume_claims = true;
  bool config_maps_all = false;
  bool secrets_all = false;
  bool service_accounts = false;
  bool ingresses = false;
  bool network_policies = false;
  bool pod_disruption_budgets = false;
  bool priority_classes_to_host = false;
  bool storage_classes_to_host = false;
  bool persistent_volumes_to_host = false;
  std::int64_t priority_max = 1000000000;  // sync.toHost.priorityClasses.max

  // sync.fromHost
  bool events = true;
  std::map<std::string, std::string> node_labels;
  bool storage_classes = true;
  bool storage_classes_auto = true;  // not said: off when the tenant's own go to the host
  bool ingress_classes = false;
  bool runtime_classes = false;
  bool priority_classes_from_host = false;

  // networking
  std::vector<Replication> replicate_to_host;
  std::vector<Replication> replicate_from_host;
  std::string cluster_domain = "cluster.local";

  // policies
  std::string pod_security = "baseline";
  bool quota_enabled = false;
  std::map<std::string, std::string> quota;
  bool limit_range_enabled = false;
  std::map<std::string, std::string> limit_default;
  std::map<std::string, std::string> limit_default_request;
  bool network_policy = false;
  std::int64_t gpu_devices = -1;       // policies.gpu.devices, -1 = no bound
  std::int64_t gpu_memory_bytes = -1;  // policies.gpu.memory

  // experimental.syncSettings
  bool set_owner = true;
};

// Parses a values file. `file` is how errors name it ("values.yaml"). Errors: BadRequest
// "values.yaml:3: unknown key sync.toHost.pod; did you mean pods? allowed: ..." — one line for
// every problem found, at most 20.
Result<TenantConfig> ParseTenantConfig(std::string_view yaml, std::string_view file);

// One "key=value" of --set on top of `yaml`: the merged YAML text.
// Errors: BadRequest (no '=', a path through a scalar).
Result<std::string> SetValue(std::string_view yaml, std::string_view assignment);
// `over` on top of `base`: maps merge, everything else is replaced. Errors: BadRequest (not YAML).
Result<std::string> MergeValues(std::string_view base, std::string_view over,
                                std::string_view over_file);

// Every key of the schema with its type and default, in order: for documentation.
struct KeyInfo {
  std::string_view path;
  std::string_view type;
  std::string_view meaning;
};
std::vector<KeyInfo> AllKeys();

// The profile that behaves like a released KAI version ("v0.7.11" → "kai-0.7").
// Errors: BadRequest with the list of known versions.
Result<std::string> ProfileOfVersion(std::string_view version);
// The names a profile may have.
const std::vector<std::string>& KnownProfiles();

}  // namespace sublet::config
