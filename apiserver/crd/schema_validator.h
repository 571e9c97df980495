// SchemaValidator: a CRD version's schema compiled to what validation needs: types, bounds, enums,
// patterns, formats, required fields, logical combinations, list types. Equal sub-schemas are kept
// once, the source JSON is not kept. Pruning and defaulting use kube/schema's tables instead.
// Threads: immutable after Compile; Validate from any thread.
// Source: k8s.io/kube-openapi pkg/validation (texts), apiextensions-apiserver pkg/apiserver/
// {validation,schema/listtype,schema/objectmeta}.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "kube/field_error.h"
#include "kube/json.h"

namespace sublet::apiserver {

struct SchemaNode;

class SchemaValidator {
 public:
  // `schema` is an openAPIV3Schema. Errors: Invalid when nested deeper than 200 levels or with a
  // broken pattern.
  static Result<std::shared_ptr<const SchemaValidator>> Compile(const kube::Json& schema);
  ~SchemaValidator();

  // What is wrong with `object`. `old` is the stored object on updates, else null: unchanged parts
  // of it are not judged again (ratcheting). metadata is somebody else's.
  void Validate(const kube::Json& object, const kube::Json* old, kube::FieldErrors* errors) const;
  // Only the part below member "status".
  void ValidateStatus(const kube::Json& object, const kube::Json* old,
                      kube::FieldErrors* errors) const;

  bool has_rules() const { return has_rules_; }  // x-kubernetes-validations somewhere
  std::size_t node_count() const;

 private:
  struct Pool;
  SchemaValidator();

  std::unique_ptr<Pool> pool_;
  const SchemaNode* root_ = nullptr;
  bool has_rules_ = false;
};

}  // namespace sublet::apiserver
