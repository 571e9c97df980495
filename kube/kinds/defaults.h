// Kubernetes' defaulting functions for the built-in kinds: one walk over an object that calls the
// function of every type it meets, so a pod spec is defaulted wherever it stands.
// Threads: any. Source: k8s.io/kubernetes pkg/apis/*/v1/defaults.go.
#pragma once

#include "kube/json.h"
#include "kube/schema/schema.h"

namespace sublet::kube {

// `object` is of built-in `type` and normalised (kube/typed.h). Idempotent. Types without defaults
// below them are not walked into.
void DefaultBuiltin(schema::Type type, Json* object);

}  // namespace sublet::kube
