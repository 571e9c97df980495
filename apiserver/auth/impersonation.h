// Impersonation: "act as that user", when the caller may. Headers Impersonate-User, -Group, -Uid
// and -Extra-KEY. Threads: any; pure. Source: k8s.io/apiserver endpoints/filters/impersonation.
#pragma once

#include "apiserver/auth/authorizer.h"

namespace sublet::apiserver {

// Replaces request.user when the headers ask for it, and removes them.
// Errors: Forbidden (the right is missing), InternalError (groups without a user), BadRequest.
Result<void> Impersonate(Request& request, const Authorizer& authorizer);

}  // namespace sublet::apiserver
