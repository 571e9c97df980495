// The RBAC objects every Kubernetes cluster begins with: about 130 roles and bindings, made at the
// first start and kept whole at later ones (annotation
// rbac.authorization.kubernetes.io/autoupdate). Threads: any; pure. Source: k8s.io/kubernetes v1.36
// bootstrappolicy, through tools/default_policy.py.
#pragma once

#include <optional>
#include <vector>

#include "kube/json.h"

namespace sublet::apiserver {

// Whole objects (apiVersion, kind, metadata without uid), aggregated roles with their rules filled.
std::vector<kube::Json> DefaultRbacObjects();

// What `stored` must become so that it grants at least what `wanted` does, or nullopt when it does
// or its owner has switched autoupdate off.
std::optional<kube::Json> ReconcileDefault(const kube::Json& stored, const kube::Json& wanted);

// The rules that `role`'s aggregationRule selects among `roles`, in the order of their names.
kube::Json AggregatedRules(const kube::Json& role, const std::vector<const kube::Json*>& roles);

}  // namespace sublet::apiserver
