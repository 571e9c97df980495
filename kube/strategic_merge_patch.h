// Strategic merge patch: a merge patch that knows, from the schema, which lists are merged and by
// which key, with the directives $patch, $retainKeys, $deleteFromPrimitiveList/<field> and
// $setElementOrder/<field>. For built-in kinds; the API refuses it for custom resources.
// Threads: any. Source: k8s.io/apimachinery pkg/util/strategicpatch.
#pragma once

#include "base/result.h"
#include "kube/json.h"
#include "kube/schema/schema.h"

namespace sublet::kube {

// `type` is the struct type of `target`. On error `target` is half done: pass a copy.
// Errors: BadRequest (malformed directive), Unknown with code 500 (an item without its merge key),
// in Kubernetes' words.
Result<void> ApplyStrategicMergePatch(schema::Type type, Json patch, Json* target);

}  // namespace sublet::kube
