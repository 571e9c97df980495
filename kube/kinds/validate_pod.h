// Parts of the pod spec that have a file of their own, for validate_pod.cc, which puts them in
// Kubernetes' order. Threads: any. Source: k8s.io/kubernetes pkg/apis/core/validation.
#pragma once

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {

// validate_affinity.cc; `path` names spec.affinity and spec.topologySpreadConstraints.
void Affinity(const Path& path, const Json& affinity, FieldErrors* errors);
void TopologySpread(const Path& path, const Json& spec, FieldErrors* errors);
// validate_pod_security.cc; `path` names spec.securityContext, or spec.
void SpecSecurity(const Path& path, const Json& spec, FieldErrors* errors);
void FieldsOfOtherSystems(const Path& path, const Json& spec, FieldErrors* errors);
// validate_pod_resources.cc; `path` names spec.resources.
void PodResources(const Path& path, const Json& spec, FieldErrors* errors);

// Go's spaces around a text (validate_pod_object.cc).
bool HasOuterSpace(const std::string& text);
// Pods as objects (validate_pod_object.cc): metadata's annotations and spec of any write, and what
// annotations mean; changes of them (validate_pod_update.cc).
void PodMetadataAndSpec(const Json& object, FieldErrors* errors);
void PodAnnotations(const Json& object, FieldErrors* errors);
void PodAnnotationsUpdate(const Json& object, const Json& old, FieldErrors* errors);

}  // namespace sublet::kube::validate
