// What a valid write is told nevertheless, in Kubernetes' words. `old` is nullptr for a create.
// Threads: any. Source: k8s.io/kubernetes pkg/api/*/warnings.go and the strategies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace sublet::kube::warn {

using Warnings = std::vector<std::string>;

// warn_pod.cc
void Pod(const Json& object, const Json* old, Warnings* warnings);
// `prefix` leads to the template: "spec.template.".
void PodTemplate(const std::string& prefix, const Json& pod_template, Warnings* warnings);
// What a label of nodes that has another name now is told; "" for every other.
std::string_view DeprecatedNodeLabel(std::string_view key);
void NodeSelectorTerms(const std::string& path, const Json& terms, bool preferred,
                       Warnings* warnings);
void FractionalBytes(const std::string& path, const Json& amounts, std::string_view resource,
                     Warnings* warnings);

// warn_volume_paths.cc: two files of a volume at one path.
void OverlappingPaths(const Json& pod_spec, Warnings* warnings);

// warn_kinds.cc
void Deployment(const Json& object, const Json* old, Warnings* warnings);
void Workload(const Json& object, const Json* old, Warnings* warnings);
void StatefulSet(const Json& object, const Json* old, Warnings* warnings);
void Job(const Json& object, const Json* old, Warnings* warnings);
void CronJob(const Json& object, const Json* old, Warnings* warnings);
void PodTemplateObject(const Json& object, const Json* old, Warnings* warnings);
void Service(const Json& object, const Json* old, Warnings* warnings);
void EndpointSlice(const Json& object, const Json* old, Warnings* warnings);
void Ingress(const Json& object, const Json* old, Warnings* warnings);
void Secret(const Json& object, const Json* old, Warnings* warnings);
void PersistentVolume(const Json& object, const Json* old, Warnings* warnings);
void PersistentVolumeClaim(const Json& object, const Json* old, Warnings* warnings);
void StorageClass(const Json& object, const Json* old, Warnings* warnings);
void RuntimeClass(const Json& object, const Json* old, Warnings* warnings);

}  // namespace sublet::kube::warn
