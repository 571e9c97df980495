// Subresources whose bodies are another kind than their resource: scale, binding, eviction.
// Threads: called on a transport or pool thread; none blocks. Source: k8s.io/kubernetes
// pkg/registry/{apps,core/pod/storage}, apiextensions customresource/etcd.go.
#pragma once

#include "apiserver/handlers/api_context.h"

namespace sublet::apiserver {

// GET, PUT and PATCH of autoscaling/v1 Scale on every kind that says where its replicas stand.
void HandleScale(CallPtr call);
// POST pods/{name}/binding and POST bindings: puts a pod on a node.
void HandleBinding(CallPtr call);
// POST pods/{name}/eviction: deletes a pod if its disruption budget allows it.
void HandleEviction(CallPtr call);

// Registers binding and eviction; scale is found by every resource itself.
void AddPodSubresources(ApiContext& context);

}  // namespace sublet::apiserver
