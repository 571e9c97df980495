// What every controller is given, and Collection: one resource as a controller sees it, the shared
// cache to read from joined with the client to write through, so that a write shows in the cache at
// once (client/informer.h, invariant 2) and a reconciler never acts twice on a stale view.
// Threads: any.
#pragma once

#include <memory>
#include <string>

#include "client/events.h"
#include "client/manager.h"
#include "controllers/zone_evictions.h"

namespace sublet::controllers {

// Where `serve` runs: the control plane of a tenant, or the embedded host.
enum class Role { kTenant, kHost };

struct Settings {
  Role role = Role::kTenant;
  std::string root_ca_pem;  // published as ConfigMap kube-root-ca.crt
  // The API server's own Service, Endpoints and EndpointSlice "kubernetes"; "" leaves them alone.
  std::string kubernetes_service_ip;
  std::string advertise_ip;
  int advertise_port = 0;
  // Host: the folder under which volumes for claims are made; "" = no provisioner.
  std::string local_volume_root;
  // Node lifecycle.
  std::chrono::seconds node_grace{50};
  EvictionRates eviction_rates;
  // Pod GC: how long a pod may name a node that does not exist; finished pods kept in all.
  std::chrono::seconds orphan_wait{40};
  int terminated_pods_max = 12500;
};

struct Context {
  client::Client client;
  client::InformerFactory& informers;
  client::Manager& manager;
  client::EventRecorder& events;
  const Clock& clock;
  const Settings& settings;
};

// Namespaced name of the kind, its plural and version.
struct ResourceKind {
  kube::GroupVersionResource resource;
  const char* kind;
};
inline const ResourceKind kPods{{"", "v1", "pods"}, "Pod"};
inline const ResourceKind kNodes{{"", "v1", "nodes"}, "Node"};
inline const ResourceKind kServices{{"", "v1", "services"}, "Service"};
inline const ResourceKind kEndpoints{{"", "v1", "endpoints"}, "Endpoints"};
inline const ResourceKind kEndpointSlices{{"discovery.k8s.io", "v1", "endpointslices"},
                                          "EndpointSlice"};
inline const ResourceKind kNamespaces{{"", "v1", "namespaces"}, "Namespace"};
inline const ResourceKind kServiceAccounts{{"", "v1", "serviceaccounts"}, "ServiceAccount"};
inline const ResourceKind kSecrets{{"", "v1", "secrets"}, "Secret"};
inline const ResourceKind kConfigMaps{{"", "v1", "configmaps"}, "ConfigMap"};
inline const ResourceKind kReplicationControllers{{"", "v1", "replicationcontrollers"},
                                                  "ReplicationController"};
inline const ResourceKind kReplicaSets{{"apps", "v1", "replicasets"}, "ReplicaSet"};
inline const ResourceKind kDeployments{{"apps", "v1", "deployments"}, "Deployment"};
inline const ResourceKind kStatefulSets{{"apps", "v1", "statefulsets"}, "StatefulSet"};
inline const ResourceKind kDaemonSets{{"apps", "v1", "daemonsets"}, "DaemonSet"};
inline const ResourceKind kControllerRevisions{{"apps", "v1", "controllerrevisions"},
                                               "ControllerRevision"};
inline const ResourceKind kJobs{{"batch", "v1", "jobs"}, "Job"};
inline const ResourceKind kCronJobs{{"batch", "v1", "cronjobs"}, "CronJob"};
inline const ResourceKind kBudgets{{"policy", "v1", "poddisruptionbudgets"}, "PodDisruptionBudget"};
inline const ResourceKind kQuotas{{"", "v1", "resourcequotas"}, "ResourceQuota"};
inline const ResourceKind kClaims{{"", "v1", "persistentvolumeclaims"}, "PersistentVolumeClaim"};
inline const ResourceKind kVolumes{{"", "v1", "persistentvolumes"}, "PersistentVolume"};
inline const ResourceKind kStorageClasses{{"storage.k8s.io", "v1", "storageclasses"},
                                          "StorageClass"};
inline const ResourceKind kLeases{{"coordination.k8s.io", "v1", "leases"}, "Lease"};
inline const ResourceKind kClusterRoles{{"rbac.authorization.k8s.io", "v1", "clusterroles"},
                                        "ClusterRole"};

class Collection {
 public:
  Collection(const Context& context, const ResourceKind& kind);

  client::Informer& informer() const { return informer_; }
  const ResourceKind& kind() const { return kind_; }
  client::Target TargetOf(const kube::ObjectKey& key, std::string subresource = "") const;

  // From the cache. Nothing when absent.
  client::ObjectPtr Find(const kube::ObjectKey& key) const { return informer_.Get(key); }
  // From the server.
  Result<kube::Json> GetLive(const kube::ObjectKey& key) const;

  // Writes; apiVersion and kind are filled in. The answer is noted in the cache.
  Result<kube::Json> Create(const std::string& namespace_name, kube::Json object) const;
  Result<kube::Json> Update(const kube::Json& object) const;
  Result<kube::Json> UpdateStatus(const kube::Json& object) const;
  Result<kube::Json> Patch(const kube::ObjectKey& key, client::PatchType type,
                           const kube::Json& patch, std::string subresource = "") const;
  // Deletes only the object with `uid`. NotFound and a uid that differs are success: it is gone.
  Result<void> Delete(const kube::ObjectKey& key, std::string_view uid,
                      client::DeleteOptions options = {}) const;

 private:
  Result<kube::Json> Note(Result<kube::Json> answer) const;

  const client::Client client_;
  const ResourceKind kind_;
  client::Informer& informer_;
};

// A controller lives as long as the set that made it (controllers/registry.h).
class Controller {
 public:
  virtual ~Controller() = default;
};

}  // namespace sublet::controllers
