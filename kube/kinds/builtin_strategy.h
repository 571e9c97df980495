// The Strategy of every built-in kind: schema-driven defaults, the kind's row of functions, its
// table and its selectable fields. Threads: any.
#pragma once

#include <memory>
#include <vector>

#include "kube/kinds/columns.h"
#include "kube/kinds/kind.h"
#include "kube/kinds/kind_logic.h"

namespace sublet::kube {

class BuiltinStrategy final : public Strategy {
 public:
  explicit BuiltinStrategy(const Kind& kind);

  void Default(Json* object) const override;
  void PrepareCreate(const WriteContext& context, Json* object) const override;
  void PrepareUpdate(const WriteContext& context, const Json& old, Json* object) const override;
  void PrepareStatusUpdate(const WriteContext& context, const Json& old,
                           Json* object) const override;
  void ValidateCreate(const Json& object, FieldErrors* errors) const override;
  void ValidateUpdate(const Json& object, const Json& old, FieldErrors* errors) const override;
  void ValidateStatusUpdate(const Json& object, const Json& old,
                            FieldErrors* errors) const override;
  void Warn(const Json& object, const Json* old, std::vector<std::string>* warnings) const override;
  void PrepareSubresource(std::string_view subresource, const WriteContext& context,
                          const Json& old, Json* object) const override;
  void ValidateSubresource(std::string_view subresource, const Json& object, const Json& old,
                           FieldErrors* errors) const override;
  std::vector<Column> Columns() const override;
  Json Cells(const Json& object, WallTime now) const override;
  Json RowConditions(const Json& object) const override;
  std::vector<std::string_view> SelectableFields() const override;
  std::string SelectableValue(const Json& object, std::string_view field) const override;
  std::optional<std::int64_t> GracePeriod(const Json& object,
                                          std::optional<std::int64_t> requested) const override;
  void ToStorage(Json* object) const override;
  void FromStorage(Json* object) const override;

 private:
  const schema::Type type_;
  const bool is_pod_;
  const KindLogic* const logic_;  // may be nullptr
  const TableSpec* const table_;  // may be nullptr
  const std::vector<const SelectableField*> fields_;
};

}  // namespace sublet::kube
