// The rule that nobody gives what they do not have, as an admission plugin for roles and bindings.
// Threads: any. Source: k8s.io/kubernetes pkg/registry/rbac policybased storages.
#pragma once

#include "apiserver/admission/admission.h"
#include "apiserver/auth/authorizer.h"

namespace sublet::apiserver {

// `authorizer` outlives the plugin.
AdmissionPlugin RbacEscalation(const Authorizer& authorizer);

}  // namespace sublet::apiserver
