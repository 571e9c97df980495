// The APIService objects of custom groups: one per group and version that definitions serve, local
// and Available, made and removed as the definitions come and go. Clients and `kubectl get
// apiservices` look at them; routing does not. Threads: the crd thread, or the starting one before
// it. Source: k8s.io/kubernetes pkg/controlplane/controller/crdregistration, kube-aggregator
// autoregister.
#pragma once

#include "apiserver/handlers/api_context.h"

namespace sublet::apiserver {

// Brings the stored APIService objects in line with the custom resources in the catalog. Writes
// without waiting; a lost race is made good by the next call. Objects that somebody else made stay
// as they are. Differs: one that a user deletes comes back with the next change of a definition
// only.
void SyncApiServices(const ApiContext& context);

}  // namespace sublet::apiserver
