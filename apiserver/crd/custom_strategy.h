// CustomStrategy: what the API server does with objects of a custom kind in one version: defaults,
// validation, columns, status. Made from a CustomResourceDefinition.
// Threads: immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apiserver/crd/json_path.h"
#include "apiserver/crd/schema_validator.h"
#include "kube/kinds/kind.h"

namespace sublet::apiserver {

struct PrinterColumn {
  kube::Column column;
  JsonPath path;
};

struct CustomStrategyData {
  kube::schema::Type type;
  std::shared_ptr<const SchemaValidator> validator;  // null: nothing is validated
  std::vector<PrinterColumn> columns;                // beside Name
  std::vector<std::string> selectable;               // "spec.color"
  bool has_scale = false;
  kube::ScalePaths scale;
};

class CustomStrategy final : public kube::Strategy {
 public:
  explicit CustomStrategy(CustomStrategyData data) : data_(std::move(data)) {}

  void Default(kube::Json* object) const override;
  void PrepareStatusUpdate(const kube::WriteContext& context, const kube::Json& old,
                           kube::Json* object) const override;
  void ValidateCreate(const kube::Json& object, kube::FieldErrors* errors) const override;
  void ValidateUpdate(const kube::Json& object, const kube::Json& old,
                      kube::FieldErrors* errors) const override;
  void ValidateStatusUpdate(const kube::Json& object, const kube::Json& old,
                            kube::FieldErrors* errors) const override;
  void Warn(const kube::Json& object, const kube::Json* old,
            std::vector<std::string>* warnings) const override;
  std::vector<kube::Column> Columns() const override;
  kube::Json Cells(const kube::Json& object, WallTime now) const override;
  std::vector<std::string_view> SelectableFields() const override;

 private:
  void ValidateScale(const kube::Json& object, kube::FieldErrors* errors) const;

  const CustomStrategyData data_;
};

}  // namespace sublet::apiserver
