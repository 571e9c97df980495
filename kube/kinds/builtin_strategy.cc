#include "kube/kinds/builtin_strategy.h"

#include <nlohmann/json.hpp>

#include "kube/kinds/defaults.h"
#include "kube/object.h"

namespace sublet::kube {
namespace {

// The text of the scalar at a path of keys with dots between; `absent` when there is none. A list
// is looked at by its first item: status.podIPs.
std::string TextAt(const Json& object, std::string_view path, std::string_view absent) {
  const Json* at = &object;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string_view key = path.substr(0, dot);
    path.remove_prefix(std::min(dot + 1, path.size()));
    if (at->is_array() && !at->empty()) {
      at = &at->front();
    }
    at = Find(*at, {key});
    if (at == nullptr) {
      return std::string(absent);
    }
  }
  if (at->is_string()) {
    return at->get<std::string>();
  }
  return at->is_boolean() || at->is_number() ? Dump(*at) : std::string(absent);
}

}  // namespace

BuiltinStrategy::BuiltinStrategy(const Kind& kind)
    : type_(kind.type),
      is_pod_(kind.gvk.group.empty() && kind.resource == "pods"),
      logic_(FindKindLogic(kind.gvk.group, kind.gvk.version, kind.resource)),
      table_(FindTableSpec(kind.gvk.group, kind.resource)),
      fields_(FindSelectableFields(kind.gvk.group, kind.resource)) {}

void BuiltinStrategy::Default(Json* object) const { DefaultBuiltin(type_, object); }

void BuiltinStrategy::PrepareCreate(const WriteContext& context, Json* object) const {
  if (logic_ != nullptr && logic_->prepare_create != nullptr) {
    logic_->prepare_create(context, object);
  }
}

void BuiltinStrategy::PrepareUpdate(const WriteContext& context, const Json& old,
                                    Json* object) const {
  if (logic_ != nullptr && logic_->prepare_update != nullptr) {
    logic_->prepare_update(context, old, object);
  }
}

void BuiltinStrategy::PrepareStatusUpdate(const WriteContext& context, const Json& old,
                                          Json* object) const {
  if (logic_ == nullptr || !logic_->replaces_status) {
    Strategy::PrepareStatusUpdate(context, old, object);
  }
  if (logic_ != nullptr && logic_->prepare_status != nullptr) {
    logic_->prepare_status(context, old, object);
  }
}

void BuiltinStrategy::ValidateCreate(const Json& object, FieldErrors* errors) const {
  if (logic_ != nullptr && logic_->validate_create != nullptr) {
    logic_->validate_create(object, errors);
  }
}

void BuiltinStrategy::ValidateUpdate(const Json& object, const Json& old,
                                     FieldErrors* errors) const {
  if (logic_ != nullptr && logic_->validate_update != nullptr) {
    logic_->validate_update(object, old, errors);
  }
}

void BuiltinStrategy::ValidateStatusUpdate(const Json& object, const Json& old,
                                           FieldErrors* errors) const {
  if (logic_ != nullptr && logic_->validate_status != nullptr) {
    logic_->validate_status(object, old, errors);
  }
}

void BuiltinStrategy::Warn(const Json& object, const Json* old,
                           std::vector<std::string>* warnings) const {
  if (logic_ != nullptr && logic_->warn != nullptr) {
    logic_->warn(object, old, warnings);
  }
}

void BuiltinStrategy::PrepareSubresource(std::string_view subresource, const WriteContext& context,
                                         const Json& old, Json* object) const {
  if (logic_ != nullptr && logic_->prepare_subresource != nullptr) {
    logic_->prepare_subresource(subresource, context, old, object);
  } else {
    Strategy::PrepareSubresource(subresource, context, old, object);
  }
}

void BuiltinStrategy::ValidateSubresource(std::string_view subresource, const Json& object,
                                          const Json& old, FieldErrors* errors) const {
  if (logic_ != nullptr && logic_->validate_subresource != nullptr) {
    logic_->validate_subresource(subresource, object, old, errors);
  } else {
    Strategy::ValidateSubresource(subresource, object, old, errors);
  }
}

std::vector<Column> BuiltinStrategy::Columns() const {
  return table_ != nullptr ? ParseColumns(table_->columns) : Strategy::Columns();
}

Json BuiltinStrategy::Cells(const Json& object, WallTime now) const {
  return table_ != nullptr ? table_->cells(object, now) : Strategy::Cells(object, now);
}

Json BuiltinStrategy::RowConditions(const Json& object) const {
  return is_pod_ ? PodRowConditions(object) : Json(nullptr);
}

std::vector<std::string_view> BuiltinStrategy::SelectableFields() const {
  std::vector<std::string_view> names;
  for (const SelectableField* field : fields_) {
    names.push_back(field->field);
  }
  return names;
}

std::string BuiltinStrategy::SelectableValue(const Json& object, std::string_view name) const {
  for (const SelectableField* field : fields_) {
    if (field->field != name) {
      continue;
    }
    std::string text = TextAt(object, field->path.empty() ? name : field->path, field->absent);
    return text.empty() && !field->or_path.empty() ? TextAt(object, field->or_path, field->absent)
                                                   : text;
  }
  return "";
}

std::optional<std::int64_t> BuiltinStrategy::GracePeriod(
    const Json& object, std::optional<std::int64_t> requested) const {
  if (!is_pod_) {
    return std::nullopt;
  }
  std::int64_t seconds =
      requested.value_or(FindInt(object, {"spec", "terminationGracePeriodSeconds"}, 30));
  const std::string_view phase = FindString(object, {"status", "phase"});
  // What was never started, and what has ended, needs no time to stop.
  if (FindString(object, {"spec", "nodeName"}).empty() || phase == "Failed" ||
      phase == "Succeeded") {
    seconds = 0;
  }
  return seconds < 0 ? 1 : seconds;
}

void BuiltinStrategy::ToStorage(Json* object) const {
  if (logic_ != nullptr && logic_->to_storage != nullptr) {
    logic_->to_storage(object);
  }
}

void BuiltinStrategy::FromStorage(Json* object) const {
  if (logic_ != nullptr && logic_->from_storage != nullptr) {
    logic_->from_storage(object);
  }
}

}  // namespace sublet::kube
