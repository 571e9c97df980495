#include "controllers/registry.h"

#include <algorithm>

#include "controllers/claim_controllers.h"
#include "controllers/cluster_role_aggregation.h"
#include "controllers/cron_job_controller.h"
#include "controllers/daemon_set_controller.h"
#include "controllers/deployment_controller.h"
#include "controllers/disruption_controller.h"
#include "controllers/endpoint_slice_controller.h"
#include "controllers/endpoints_controller.h"
#include "controllers/garbage_collector.h"
#include "controllers/job_controller.h"
#include "controllers/namespace_contents.h"
#include "controllers/namespace_controller.h"
#include "controllers/node_lifecycle_controller.h"
#include "controllers/node_usage_controller.h"
#include "controllers/pod_garbage_collector.h"
#include "controllers/replica_set_controller.h"
#include "controllers/resource_claim_controller.h"
#include "controllers/resource_quota_controller.h"
#include "controllers/stateful_set_controller.h"
#include "controllers/taint_eviction_controller.h"

namespace sublet::controllers {

const std::vector<ControllerEntry>& AllControllers() {
  static const std::vector<ControllerEntry> kAll = {
      {"serviceaccount", Runs::kEverywhere, MakeServiceAccountController},
      {"root-ca-certificate-publisher", Runs::kEverywhere, MakeRootCaController},
      {"serviceaccount-token", Runs::kEverywhere, MakeTokenSecretController},
      {"namespace", Runs::kEverywhere, MakeNamespaceController},
      {"garbage-collector", Runs::kEverywhere, MakeGarbageCollector},
      {"replicaset", Runs::kEverywhere, MakeReplicaSetController},
      {"replicationcontroller", Runs::kEverywhere, MakeReplicationController},
      {"deployment", Runs::kEverywhere, MakeDeploymentController},
      {"statefulset", Runs::kEverywhere, MakeStatefulSetController},
      {"daemonset", Runs::kEverywhere, MakeDaemonSetController},
      {"job", Runs::kEverywhere, MakeJobController},
      {"ttl-after-finished", Runs::kEverywhere, MakeTtlAfterFinishedController},
      {"cronjob", Runs::kEverywhere, MakeCronJobController},
      {"node-lifecycle", Runs::kEverywhere, MakeNodeLifecycleController},
      {"taint-eviction", Runs::kEverywhere, MakeTaintEvictionController},
      {"pod-garbage-collector", Runs::kEverywhere, MakePodGarbageCollector},
      {"resourcequota", Runs::kEverywhere, MakeResourceQuotaController},
      {"clusterrole-aggregation", Runs::kEverywhere, MakeClusterRoleAggregation},
      {"node-usage", Runs::kHostOnly, MakeNodeUsageController},
      {"persistentvolume-binder", Runs::kHostOnly, MakeVolumeBinder},
      {"persistentvolumeclaim-protection", Runs::kEverywhere, MakeClaimProtection},
      {"resourceclaim", Runs::kEverywhere, MakeResourceClaimController},
      {"disruption", Runs::kEverywhere, MakeDisruptionController},
      {"endpoints", Runs::kEverywhere, MakeEndpointsController},
      {"endpointslice", Runs::kEverywhere, MakeEndpointSliceController},
      {"endpointslice-mirroring", Runs::kEverywhere, MakeEndpointSliceMirroringController},
  };
  return kAll;
}

ControllerSet::ControllerSet(client::Client client, Settings settings, const Clock& clock,
                             const std::vector<std::string>& disabled, int threads)
    : settings_(std::move(settings)),
      informers_(client),
      events_(client, "controllers", "", clock),
      manager_(informers_, clock, threads) {
  const Context context{client, informers_, manager_, events_, clock, settings_};
  for (const ControllerEntry& entry : AllControllers()) {
    const bool here = entry.runs == Runs::kEverywhere ||
                      (entry.runs == Runs::kHostOnly) == (settings_.role == Role::kHost);
    if (here && std::find(disabled.begin(), disabled.end(), entry.name) == disabled.end()) {
      controllers_.push_back(entry.make(context));
    }
  }
}

ControllerSet::~ControllerSet() { Stop(); }

void ControllerSet::Start() { manager_.Start(); }

bool ControllerSet::WaitSynced(Deadline deadline) { return informers_.WaitSynced(deadline); }

void ControllerSet::Stop() {
  if (stopped_) {
    return;
  }
  stopped_ = true;
  manager_.Stop();
  events_.Stop();
  controllers_.clear();
}

}  // namespace sublet::controllers
