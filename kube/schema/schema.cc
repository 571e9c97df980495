#include "kube/schema/schema.h"

#include <algorithm>

#include "kube/schema/builtin_schema.h"

namespace sublet::kube::schema {
namespace {

Type FindRow(std::string_view group, std::string_view version, std::string_view kind) {
  for (const KindRow& row : kBuiltinKinds) {
    if (BuiltinText(row.kind) == kind && BuiltinText(row.group) == group &&
        BuiltinText(row.version) == version) {
      return {&kBuiltinTables, row.type};
    }
  }
  return {};
}

}  // namespace

Type Field::type() const {
  return row_->type == kObjectMetaType ? ObjectMetaType() : Type(tables_, row_->type);
}

std::string_view Type::short_name() const {
  const std::string_view full = name();
  return full.substr(full.rfind('.') + 1);
}

std::string Type::GoName() const {
  const std::string_view full = name();
  if (!full.empty()) {
    const std::size_t last = full.rfind('.');
    const std::size_t package = last == std::string_view::npos ? last : full.rfind('.', last - 1);
    return std::string(package == std::string_view::npos ? full : full.substr(package + 1));
  }
  switch (kind()) {
    case ValueKind::kList: return (Has(kPointerElement) ? "[]*" : "[]") + element().GoName();
    case ValueKind::kMap: return "map[string]" + element().GoName();
    case ValueKind::kBytes: return "[]uint8";
    default: return "interface {}";
  }
}

Field Type::FindField(std::string_view json_name) const {
  const FieldRow* first = tables_->fields.data() + row().first_field;
  const FieldRow* last = first + row().field_count;
  const FieldRow* at = std::lower_bound(first, last, json_name, [this](const FieldRow& f, auto n) {
    return std::string_view(tables_->strings + f.name) < n;
  });
  if (at == last || json_name.empty() || tables_->strings + at->name != json_name) {
    return {};
  }
  return Field(tables_, at);
}

Field Type::FindNumber(int number) const {
  for (std::size_t i = 0; i < field_count(); ++i) {
    if (field(i).number() == number) {
      return field(i);
    }
  }
  return {};
}

Type FindType(std::string_view group, std::string_view version, std::string_view kind) {
  const Type type = FindRow(group, version, kind);
  return type ? type : FindRow("meta.k8s.io", "v1", kind);
}

Type ObjectMetaType() {
  static const Type kType = FindRow("meta.k8s.io", "v1", "ObjectMeta");
  return kType;
}

Type ListMetaType() {
  static const Type kType = FindRow("meta.k8s.io", "v1", "ListMeta");
  return kType;
}

}  // namespace sublet::kube::schema
