// The defaulting functions, one per type; defaults.cc holds the table that calls them. Each gets
// the JSON object of its type. Threads: any.
#pragma once

#include <initializer_list>
#include <string_view>

#include "kube/json.h"

namespace sublet::kube::defaults {

// Counts the changes of a daemon set's template; has stood there since before apps/v1.
inline constexpr char kTemplateGeneration[] = "deprecated.daemonset.template.generation";

// Sets a member that is absent (or "" or 0: what Go cannot tell from absent).
void SetIfAbsent(Json* object, std::string_view key, Json value);
void SetIfEmpty(Json* object, std::string_view key, std::string_view value);
void SetIfZero(Json* object, std::string_view key, std::int64_t value);

// core (defaults_core.cc)
void Pod(Json* pod);
void PodSpec(Json* spec);
void Container(Json* container);
void Probe(Json* probe);
void HttpGetAction(Json* action);
void Volume(Json* volume);
void DefaultMode(Json* source);  // secret, configMap, downwardAPI, projected
void HostPath(Json* source);
void ServiceAccountToken(Json* projection);
void ObjectFieldSelector(Json* selector);
void Service(Json* service);
void Secret(Json* secret);
void Namespace(Json* object);
void NodeSpec(Json* spec);
void NodeStatus(Json* status);
void LimitRangeItem(Json* item);
void ReplicationController(Json* object);
void PersistentVolume(Json* object);
void PersistentVolumeClaim(Json* object);
void PersistentVolumeClaimSpec(Json* spec);
void EndpointsPort(Json* port);
void ResourceList(Json* list);

// apps, batch, autoscaling (defaults_workloads.cc)
void Deployment(Json* object);
void DaemonSet(Json* object);
void StatefulSet(Json* object);
void ReplicaSet(Json* object);
void Job(Json* object);
void CronJob(Json* object);
void PodFailureCondition(Json* pattern);
void HorizontalPodAutoscalerV1(Json* object);
void HorizontalPodAutoscalerV2(Json* object);

// everything else (defaults_cluster.cc)
void NetworkPolicy(Json* object);
void NetworkPolicyPort(Json* port);
void IngressClass(Json* object);
void RoleBinding(Json* object);
void RbacSubject(Json* subject);
void StorageClass(Json* object);
void CsiDriver(Json* object);
void Webhook(Json* webhook);
void MutatingWebhook(Json* webhook);
void AdmissionRule(Json* rule);
void WebhookService(Json* reference);
void FailurePolicy(Json* spec);
void MatchResources(Json* resources);
void PriorityClass(Json* object);
void EndpointSlicePort(Json* port);
void DeviceRequest(Json* request);
void FlowSchemaSpec(Json* spec);
void ExemptLevel(Json* level);
void LimitedLevel(Json* level);
void QueuingConfiguration(Json* queuing);
void CustomResourceDefinition(Json* object);

// The pull policy of an image without one: "Always" for the tag latest.
std::string_view PullPolicyOf(std::string_view image);

}  // namespace sublet::kube::defaults
