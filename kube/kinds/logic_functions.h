// The preparing and converting functions behind logic.cc, by kind. Threads: any.
#pragma once

#include "kube/kinds/kind.h"

namespace sublet::kube::logic {

// The member of `from`, or its absence, goes to `object` (logic_cluster.cc).
void TakeMember(const Json& from, const char* key, Json* object);

// Pods (logic_pod.cc)
void PreparePodCreate(const WriteContext& context, Json* pod);
void PreparePodStatus(const WriteContext& context, const Json& old, Json* pod);
void PreparePodSubresource(std::string_view subresource, const WriteContext& context,
                           const Json& old, Json* pod);
// "Guaranteed", "Burstable" or "BestEffort".
std::string_view QosClassOf(const Json& pod_spec);

// Daemon sets (logic_job.cc): the annotation that counts changes of the template.
void PrepareDaemonSetCreate(const WriteContext& context, Json* object);
void PrepareDaemonSetUpdate(const WriteContext& context, const Json& old, Json* object);

// Stateful sets (logic_job.cc): maxUnavailable belongs to a feature that is off in this version.
void PrepareStatefulSetCreate(const WriteContext& context, Json* object);
void PrepareStatefulSetUpdate(const WriteContext& context, const Json& old, Json* object);

// Jobs (logic_job.cc)
void PrepareJobCreate(const WriteContext& context, Json* job);

// Services (logic_service.cc): clusterIP and clusterIPs agree; an update keeps what was allocated.
void PrepareServiceCreate(const WriteContext& context, Json* service);
void PrepareServiceUpdate(const WriteContext& context, const Json& old, Json* service);

// Cluster kinds (logic_cluster.cc)
void PrepareNamespaceCreate(const WriteContext& context, Json* object);
void PrepareNamespaceUpdate(const WriteContext& context, const Json& old, Json* object);
void PrepareNamespaceStatus(const WriteContext& context, const Json& old, Json* object);
void PrepareNamespaceSubresource(std::string_view subresource, const WriteContext& context,
                                 const Json& old, Json* object);
void PrepareVolumeCreate(const WriteContext& context, Json* object);
void PrepareClaimCreate(const WriteContext& context, Json* object);
void PrepareClaimUpdate(const WriteContext& context, const Json& old, Json* object);
void PrepareServiceAccount(const WriteContext& context, Json* object);
void PrepareServiceAccountUpdate(const WriteContext& context, const Json& old, Json* object);
void PrepareSigningRequestCreate(const WriteContext& context, Json* object);
void PrepareSigningRequestUpdate(const WriteContext& context, const Json& old, Json* object);
void PrepareSigningRequestStatus(const WriteContext& context, const Json& old, Json* object);
void PrepareSigningRequestSubresource(std::string_view subresource, const WriteContext& context,
                                      const Json& old, Json* object);

// Writes of a status that leave all metadata, or the labels, as they were (logic_cluster.cc)
void KeepMetadata(const WriteContext& context, const Json& old, Json* object);
void PrepareResourceClaimStatus(const WriteContext& context, const Json& old, Json* object);
void KeepLabels(const WriteContext& context, const Json& old, Json* object);

// Two versions of one stored kind (convert_*.cc)
void EventToStorage(Json* event);          // events.k8s.io/v1 -> v1
void EventFromStorage(Json* event);        // v1 -> events.k8s.io/v1
void AutoscalerToStorage(Json* object);    // autoscaling/v1 -> v2
void AutoscalerFromStorage(Json* object);  // autoscaling/v2 -> v1

}  // namespace sublet::kube::logic
