// JSON patch (RFC 6902) and JSON merge patch (RFC 7386) on values.
// Threads: any. Source: the RFCs, and what kube-apiserver answers.
#pragma once

#include "base/result.h"
#include "kube/json.h"

namespace sublet::kube {

inline constexpr std::size_t kJsonPatchOperationsMax = 10000;

// Applies all operations or none: `target` is untouched on error. Negative array indexes count from
// the end, "-" appends. Copies may add up to 3 MiB.
// Errors: BadRequest (the patch is no list of operations), RequestEntityTooLarge (too many),
// Invalid with the generic sentence (a path is absent, a test failed).
Result<void> ApplyJsonPatch(const Json& patch, Json* target);

// null deletes, objects merge, everything else replaces. Never fails: a patch that is no object
// replaces the target.
void ApplyMergePatch(const Json& patch, Json* target);

// "the server rejected our request due to an error in our request" with empty details.
Status UnprocessablePatch();

}  // namespace sublet::kube
