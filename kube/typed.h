// Objects seen through their schema: what Go's decoder and encoder do to a request body (unknown
// fields, type errors, canonical quantities and times, omitted empty values), and the pruning and
// defaulting of custom resources. One walk, in place, linear in the object.
// Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "kube/schema/schema.h"

namespace sublet::kube {

// Brings `object` to the form in which the API server would write it. `type` is a struct type: a
// built-in kind (apiVersion and kind stay as they are) or the root of a custom resource.
//   unknown fields are dropped; with `unknown_fields` their texts are added, as Kubernetes words
//   them: unknown field "spec.foo". At most 100.
//   built-in: null and empty values that Go would leave out go away, those it would write appear.
//   custom: unknown fields are pruned, metadata is treated as built-in, values and nulls stay.
// Errors: BadRequest with the decoder's sentence ("json: cannot unmarshal string into Go struct
// field DeploymentSpec.spec.replicas of type int32"); `object` is then half done.
Result<void> NormalizeTyped(schema::Type type, Json* object,
                            std::vector<std::string>* unknown_fields = nullptr);

// What Go writes for a value of `type` that was never set: {} with the members that are always
// written, "" / 0 / false, null for lists, maps and times.
Json ZeroValue(schema::Type type);

// Fills in the defaults of a structural schema, after dropping nulls that are not allowed where a
// default stands. `object` is the whole custom resource or any part of `type`. Idempotent.
void DefaultStructural(schema::Type type, Json* object);

// Puts the field defaults of absent members; used on items before keys are compared (apply).
// "TCP" for a ContainerPort without protocol. Empty when there is none.
std::string_view DefaultTextOf(schema::Type type, std::string_view field);

}  // namespace sublet::kube
