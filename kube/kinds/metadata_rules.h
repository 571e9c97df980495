// metadata.* as Kubernetes checks it: names, labels, owners, finalizers, and what of it never
// changes. Part of the walk of a write (write_path.h). Threads: any.
// Source: k8s.io/apimachinery pkg/api/validation; k8s.io/kubernetes pkg/apis/*/validation.
#pragma once

#include <string_view>

#include "kube/field_error.h"
#include "kube/json.h"
#include "kube/kinds/kind.h"

namespace sublet::kube {

// Of a new object: once by the generic step.
void ValidateMetadataOfCreate(const Kind& kind, const Json& object, FieldErrors* errors);

// Of a new state of an object: by the generic step, then by the kind's own rules, which repeat it.
void ValidateMetadataOfUpdate(const Kind& kind, std::string_view subresource, const Json& object,
                              const Json& old, FieldErrors* errors);

}  // namespace sublet::kube
