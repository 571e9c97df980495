// The /scale subresource: a Scale object out of an object with replicas, and back.
// Threads: any. Source: k8s.io/kubernetes pkg/registry/apps/*/storage (ScaleREST).
#pragma once

#include "base/result.h"
#include "kube/json.h"
#include "kube/kinds/kind.h"

namespace sublet::kube {

// autoscaling/v1 Scale of `object`; kind.scale is set.
Json ToScale(const Kind& kind, const Json& object);
// Writes the replicas of `scale` into `object`. Errors: Invalid (negative), BadRequest (no number).
Result<void> ApplyScale(const Kind& kind, const Json& scale, Json* object);

}  // namespace sublet::kube
