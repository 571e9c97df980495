// What makes a CRD's schema structural, with Kubernetes' sentences for what does not.
// Threads: any; pure functions.
// Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/validation.go,
// pkg/apis/apiextensions/validation.
#pragma once

#include <string>

#include "kube/field_error.h"
#include "kube/json.h"

namespace sublet::apiserver {

// `path` is where `schema` stands ("spec.validation.openAPIV3Schema").
void ValidateStructuralSchema(const kube::Json& schema, const std::string& path,
                              kube::FieldErrors* errors);

}  // namespace sublet::apiserver
