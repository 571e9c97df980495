// The cell functions behind columns.cc, by kind group. Threads: any.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "kube/json.h"

namespace sublet::kube::cells {

std::string Text(const Json& object, std::initializer_list<std::string_view> path,
                 std::string_view fallback = "");
std::string NameText(const Json& object);
// metadata.creationTimestamp as an age.
std::string Age(const Json& object, WallTime now);
// The items of a list, an empty list when absent.
const Json& List(const Json& object, std::initializer_list<std::string_view> path);
// "a=b,c=d", "<none>" when there are none.
std::string Labels(const Json* labels);
std::string ContainerNames(const Json& pod_spec);
std::string ContainerImages(const Json& pod_spec);
// `count` items shown; "x,y,z + 2 more..." when `more`.
std::string Shortened(std::string list, bool more, std::size_t count, std::size_t max);

Json Pod(const Json& object, WallTime now);
Json PodTemplate(const Json& object, WallTime now);
Json ReplicationController(const Json& object, WallTime now);
Json ReplicaSet(const Json& object, WallTime now);
Json Deployment(const Json& object, WallTime now);
Json StatefulSet(const Json& object, WallTime now);
Json DaemonSet(const Json& object, WallTime now);
Json ControllerRevision(const Json& object, WallTime now);
Json Job(const Json& object, WallTime now);
Json CronJob(const Json& object, WallTime now);
Json HorizontalPodAutoscaler(const Json& object, WallTime now);
Json PodDisruptionBudget(const Json& object, WallTime now);

Json Service(const Json& object, WallTime now);
Json Endpoints(const Json& object, WallTime now);
Json EndpointSlice(const Json& object, WallTime now);
Json Ingress(const Json& object, WallTime now);
Json IngressClass(const Json& object, WallTime now);
Json NetworkPolicy(const Json& object, WallTime now);
Json ServiceCidr(const Json& object, WallTime now);
Json IpAddress(const Json& object, WallTime now);

Json Node(const Json& object, WallTime now);
Json Namespace(const Json& object, WallTime now);
Json Event(const Json& object, WallTime now);
Json ConfigMap(const Json& object, WallTime now);
Json Secret(const Json& object, WallTime now);
Json ServiceAccount(const Json& object, WallTime now);
Json ResourceQuota(const Json& object, WallTime now);
Json ComponentStatus(const Json& object, WallTime now);
Json Lease(const Json& object, WallTime now);
Json PriorityClass(const Json& object, WallTime now);
Json RuntimeClass(const Json& object, WallTime now);
Json RoleBinding(const Json& object, WallTime now);
Json CertificateSigningRequest(const Json& object, WallTime now);
Json FlowSchema(const Json& object, WallTime now);
Json PriorityLevel(const Json& object, WallTime now);
Json Webhooks(const Json& object, WallTime now);
Json AdmissionPolicy(const Json& object, WallTime now);
Json AdmissionPolicyBinding(const Json& object, WallTime now);
Json CustomResourceDefinition(const Json& object, WallTime now);
Json ApiService(const Json& object, WallTime now);

Json PersistentVolume(const Json& object, WallTime now);
Json PersistentVolumeClaim(const Json& object, WallTime now);
Json StorageClass(const Json& object, WallTime now);
Json VolumeAttributesClass(const Json& object, WallTime now);
Json VolumeAttachment(const Json& object, WallTime now);
Json CsiNode(const Json& object, WallTime now);
Json CsiDriver(const Json& object, WallTime now);
Json ResourceClaim(const Json& object, WallTime now);
Json ResourceSlice(const Json& object, WallTime now);
Json NameAndAge(const Json& object, WallTime now);

}  // namespace sublet::kube::cells
