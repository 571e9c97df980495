// The validating functions behind logic.cc, by kind. `object` is defaulted and prepared; metadata
// is checked by whoever calls. Threads: any. Source: k8s.io/kubernetes pkg/apis/*/validation.
#pragma once

#include <string>
#include <vector>

#include "kube/field_error.h"
#include "kube/json.h"

namespace sublet::kube::validate {

// validate_pod_object.cc, _update.cc, _status.cc, _resources.cc (pods/resize and the like)
void Pod(const Json& object, FieldErrors* errors);
void PodUpdate(const Json& object, const Json& old, FieldErrors* errors);
void PodStatus(const Json& object, const Json& old, FieldErrors* errors);
void PodSubresource(std::string_view subresource, const Json& object, const Json& old,
                    FieldErrors* errors);
void PodTemplateObject(const Json& object, FieldErrors* errors);
void PodTemplateObjectUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_workloads.cc, validate_statefulset.cc, validate_workload_status.cc, validate_jobs.cc
void Deployment(const Json& object, FieldErrors* errors);
void DeploymentUpdate(const Json& object, const Json& old, FieldErrors* errors);
void DeploymentStatus(const Json& object, const Json& old, FieldErrors* errors);
void ReplicaSet(const Json& object, FieldErrors* errors);
void ReplicaSetUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ReplicaSetStatus(const Json& object, const Json& old, FieldErrors* errors);
void DaemonSet(const Json& object, FieldErrors* errors);
void DaemonSetUpdate(const Json& object, const Json& old, FieldErrors* errors);
void DaemonSetStatus(const Json& object, const Json& old, FieldErrors* errors);
void StatefulSet(const Json& object, FieldErrors* errors);
void StatefulSetUpdate(const Json& object, const Json& old, FieldErrors* errors);
void StatefulSetStatus(const Json& object, const Json& old, FieldErrors* errors);
void ReplicationController(const Json& object, FieldErrors* errors);
void ReplicationControllerUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ControllerRevision(const Json& object, FieldErrors* errors);
void ControllerRevisionUpdate(const Json& object, const Json& old, FieldErrors* errors);
void Job(const Json& object, FieldErrors* errors);
void JobUpdate(const Json& object, const Json& old, FieldErrors* errors);
void JobStatus(const Json& object, const Json& old, FieldErrors* errors);
void CronJob(const Json& object, FieldErrors* errors);
void CronJobUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_network.cc, validate_endpoints.cc, validate_service.cc
void Service(const Json& object, FieldErrors* errors);
void ServiceUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ServiceStatus(const Json& object, const Json& old, FieldErrors* errors);
void Endpoints(const Json& object, FieldErrors* errors);
void EndpointsUpdate(const Json& object, const Json& old, FieldErrors* errors);
void EndpointSlice(const Json& object, FieldErrors* errors);
void EndpointSliceUpdate(const Json& object, const Json& old, FieldErrors* errors);
void Ingress(const Json& object, FieldErrors* errors);
void IngressUpdate(const Json& object, const Json& old, FieldErrors* errors);
void IngressClass(const Json& object, FieldErrors* errors);
void IngressClassUpdate(const Json& object, const Json& old, FieldErrors* errors);
void NetworkPolicy(const Json& object, FieldErrors* errors);
void NetworkPolicyUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_config.cc
void ConfigMap(const Json& object, FieldErrors* errors);
void ConfigMapUpdate(const Json& object, const Json& old, FieldErrors* errors);
void Secret(const Json& object, FieldErrors* errors);
void SecretUpdate(const Json& object, const Json& old, FieldErrors* errors);
void Namespace(const Json& object, FieldErrors* errors);
void NamespaceStatus(const Json& object, const Json& old, FieldErrors* errors);
void NamespaceSubresource(std::string_view subresource, const Json& object, const Json& old,
                          FieldErrors* errors);
// validate_node.cc
void Node(const Json& object, FieldErrors* errors);
void NodeUpdate(const Json& object, const Json& old, FieldErrors* errors);
// validate_quota.cc
void LimitRange(const Json& object, FieldErrors* errors);
void LimitRangeUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ResourceQuota(const Json& object, FieldErrors* errors);
void ResourceQuotaUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ResourceQuotaStatus(const Json& object, const Json& old, FieldErrors* errors);
// validate_config.cc
void Lease(const Json& object, FieldErrors* errors);
void LeaseUpdate(const Json& object, const Json& old, FieldErrors* errors);
void PriorityClass(const Json& object, FieldErrors* errors);
void PriorityClassUpdate(const Json& object, const Json& old, FieldErrors* errors);
void RuntimeClass(const Json& object, FieldErrors* errors);
void RuntimeClassUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_event.cc: v1, and the strict rules of events.k8s.io.
void Event(const Json& object, FieldErrors* errors);
void EventUpdate(const Json& object, const Json& old, FieldErrors* errors);
void StrictEvent(const Json& object, FieldErrors* errors);
void StrictEventUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_rbac.cc
void Role(const Json& object, FieldErrors* errors);
void RoleUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ClusterRole(const Json& object, FieldErrors* errors);
void ClusterRoleUpdate(const Json& object, const Json& old, FieldErrors* errors);
void RoleBinding(const Json& object, FieldErrors* errors);
void RoleBindingUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ClusterRoleBinding(const Json& object, FieldErrors* errors);
void ClusterRoleBindingUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_claims.cc
void CsiDriver(const Json& object, FieldErrors* errors);
void CsiDriverUpdate(const Json& object, const Json& old, FieldErrors* errors);
void VolumeAttachment(const Json& object, FieldErrors* errors);
void VolumeAttachmentUpdate(const Json& object, const Json& old, FieldErrors* errors);
void VolumeAttachmentStatus(const Json& object, const Json& old, FieldErrors* errors);
void CsiNode(const Json& object, FieldErrors* errors);
void CsiNodeUpdate(const Json& object, const Json& old, FieldErrors* errors);
void CsiStorageCapacity(const Json& object, FieldErrors* errors);
void CsiStorageCapacityUpdate(const Json& object, const Json& old, FieldErrors* errors);
void VolumeAttributesClass(const Json& object, FieldErrors* errors);
void VolumeAttributesClassUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_flow.cc
void FlowSchema(const Json& object, FieldErrors* errors);
void FlowSchemaUpdate(const Json& object, const Json& old, FieldErrors* errors);
void PriorityLevel(const Json& object, FieldErrors* errors);
void PriorityLevelUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_devices.cc, validate_claim_status.cc, validate_slices.cc
void ResourceClaim(const Json& object, FieldErrors* errors);
void ResourceClaimUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ResourceClaimStatus(const Json& object, const Json& old, FieldErrors* errors);
void ResourceClaimTemplate(const Json& object, FieldErrors* errors);
void ResourceClaimTemplateUpdate(const Json& object, const Json& old, FieldErrors* errors);
void DeviceClass(const Json& object, FieldErrors* errors);
void DeviceClassUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ResourceSlice(const Json& object, FieldErrors* errors);
void ResourceSliceUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_addresses.cc
void IpAddress(const Json& object, FieldErrors* errors);
void IpAddressUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ServiceCidr(const Json& object, FieldErrors* errors);
void ServiceCidrUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ApiService(const Json& object, FieldErrors* errors);
void ApiServiceUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_policies.cc
void ValidatingPolicy(const Json& object, FieldErrors* errors);
void ValidatingPolicyUpdate(const Json& object, const Json& old, FieldErrors* errors);
void ValidatingPolicyBinding(const Json& object, FieldErrors* errors);
void ValidatingPolicyBindingUpdate(const Json& object, const Json& old, FieldErrors* errors);
void MutatingPolicy(const Json& object, FieldErrors* errors);
void MutatingPolicyUpdate(const Json& object, const Json& old, FieldErrors* errors);
void MutatingPolicyBinding(const Json& object, FieldErrors* errors);
void MutatingPolicyBindingUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_storage.cc
void PersistentVolume(const Json& object, FieldErrors* errors);
void PersistentVolumeUpdate(const Json& object, const Json& old, FieldErrors* errors);
void PersistentVolumeClaim(const Json& object, FieldErrors* errors);
void PersistentVolumeClaimUpdate(const Json& object, const Json& old, FieldErrors* errors);
void PersistentVolumeClaimStatus(const Json& object, const Json& old, FieldErrors* errors);
void StorageClass(const Json& object, FieldErrors* errors);
void StorageClassUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_scaling.cc
void HorizontalPodAutoscaler(const Json& object, FieldErrors* errors);
void HorizontalPodAutoscalerUpdate(const Json& object, const Json& old, FieldErrors* errors);
void OldAutoscaler(const Json& object, FieldErrors* errors);  // autoscaling/v1
void OldAutoscalerUpdate(const Json& object, const Json& old, FieldErrors* errors);
void PodDisruptionBudget(const Json& object, FieldErrors* errors);
void PodDisruptionBudgetUpdate(const Json& object, const Json& old, FieldErrors* errors);

// validate_admission.cc
void Webhooks(const Json& object, FieldErrors* errors);
void WebhooksUpdate(const Json& object, const Json& old, FieldErrors* errors);
void CertificateSigningRequest(const Json& object, FieldErrors* errors);
void CertificateSigningRequestUpdate(const Json& object, const Json& old, FieldErrors* errors);
void CertificateSigningRequestStatus(const Json& object, const Json& old, FieldErrors* errors);
// /approval, which alone may add the conditions Approved and Denied.
void CertificateSigningRequestApproval(std::string_view subresource, const Json& object,
                                       const Json& old, FieldErrors* errors);

// validate_status.cc
void HorizontalPodAutoscalerStatus(const Json& object, const Json& old, FieldErrors* errors);
void PodDisruptionBudgetStatus(const Json& object, const Json& old, FieldErrors* errors);
void FlowStatus(const Json& object, const Json& old, FieldErrors* errors);
void IngressStatus(const Json& object, const Json& old, FieldErrors* errors);
void ApiServiceStatus(const Json& object, const Json& old, FieldErrors* errors);
void ValidatingPolicyStatus(const Json& object, const Json& old, FieldErrors* errors);

}  // namespace sublet::kube::validate
