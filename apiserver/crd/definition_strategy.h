// DefinitionStrategy: the CustomResourceDefinition kind's own logic: defaults, validation, status
// beginnings, warnings.
// Threads: immutable; any thread.
// Source: k8s.io/apiextensions-apiserver pkg/apis/apiextensions/{v1/defaults.go,validation},
// pkg/registry/customresourcedefinition/strategy.go.
#pragma once

#include "kube/kinds/kind.h"

namespace sublet::apiserver {

inline constexpr const char* kCleanupFinalizer = "customresourcecleanup.apiextensions.k8s.io";

class DefinitionStrategy final : public kube::Strategy {
 public:
  void Default(kube::Json* object) const override;
  void PrepareCreate(const kube::WriteContext& context, kube::Json* object) const override;
  void PrepareUpdate(const kube::WriteContext& context, const kube::Json& old,
                     kube::Json* object) const override;
  void ValidateCreate(const kube::Json& object, kube::FieldErrors* errors) const override;
  void ValidateUpdate(const kube::Json& object, const kube::Json& old,
                      kube::FieldErrors* errors) const override;
  void Warn(const kube::Json& object, const kube::Json* old,
            std::vector<std::string>* warnings) const override;
};

}  // namespace sublet::apiserver
