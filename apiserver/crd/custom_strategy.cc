#include "apiserver/crd/custom_strategy.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "kube/timestamp.h"
#include "kube/typed.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

// What a cell shows of the value that the column's path found. Source: apiextensions
// registry/customresource/tableconvertor.
Json CellOf(std::string_view type, const Json& value, WallTime now) {
  if (type == "string") {
    if (value.is_string()) {
      return value;
    }
    return value.is_null() ? Json("<nil>") : Json(kube::Dump(value));
  }
  if (type == "integer" && value.is_number()) {
    return value.is_number_float() ? Json(static_cast<std::int64_t>(value.get<double>())) : value;
  }
  if (type == "number" && value.is_number()) {
    return value;
  }
  if (type == "boolean" && value.is_boolean()) {
    return value;
  }
  if (type == "date" && value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return kube::ParseTime(text).ok() ? Json(kube::HumanAge(text, now)) : Json("<invalid>");
  }
  return nullptr;
}

std::string Joined(const std::vector<std::string>& path) {
  std::string text;
  for (const auto& name : path) {
    text += "." + name;
  }
  return text;
}

// The Go type of a JSON value, as an accessor names it.
std::string GoType(const Json& value) {
  return value.is_string()    ? "string"
         : value.is_boolean() ? "bool"
         : value.is_array()   ? "[]interface {}"
         : value.is_object()  ? "map[string]interface {}"
         : value.is_null()    ? "<nil>"
                              : "float64";
}

std::string GoText(const Json& value) {
  return value.is_string() ? value.get<std::string>() : kube::Dump(value);
}

// The value at `path`; what stands in the way of it is said in `wrong`.
const Json* AccessPath(const Json& object, const std::vector<std::string>& path,
                       std::string* wrong) {
  const Json* at = &object;
  for (const auto& name : path) {
    if (!at->is_object()) {
      *wrong = GoText(*at) + " is of the type " + GoType(*at) + ", expected map[string]interface{}";
      return nullptr;
    }
    const auto it = at->find(name);
    if (it == at->end()) {
      return nullptr;
    }
    at = &*it;
  }
  return at;
}

}  // namespace

void CustomStrategy::Default(Json* object) const { kube::DefaultStructural(data_.type, object); }

void CustomStrategy::PrepareStatusUpdate(const kube::WriteContext&, const Json& old,
                                         Json* object) const {
  Json result = old;
  if (const Json* status = kube::Find(*object, {"status"})) {
    result["status"] = *status;
  } else {
    kube::EraseMember(&result, "status");
  }
  // The bookkeeping of this very write; everything else of metadata stays.
  if (const Json* fields = kube::Find(*object, {"metadata", "managedFields"})) {
    result["metadata"]["managedFields"] = *fields;
  }
  *object = std::move(result);
}

void CustomStrategy::ValidateScale(const Json& object, kube::FieldErrors* errors) const {
  if (!data_.has_scale) {
    return;
  }
  constexpr std::int64_t kReplicasMax = 2147483647;
  const auto check = [&](const std::vector<std::string>& path) {
    std::string wrong;
    const Json* value = path.empty() ? nullptr : AccessPath(object, path, &wrong);
    if (value != nullptr && !value->is_number_integer()) {
      wrong = GoText(*value) + " is of the type " + GoType(*value) + ", expected int64";
    }
    if (!wrong.empty()) {
      errors->Invalid(Joined(path), 0, Joined(path) + " accessor error: " + wrong);
    }
    if (value == nullptr || !wrong.empty()) {
      return;
    }
    const auto number = value->get<std::int64_t>();
    if (number < 0) {
      errors->Invalid(Joined(path), *value, "should be a non-negative integer");
    } else if (number > kReplicasMax) {
      errors->Invalid(Joined(path), *value,
                      "should be less than or equal to " + std::to_string(kReplicasMax));
    }
  };
  check(data_.scale.spec_replicas);
  check(data_.scale.status_replicas);
}

void CustomStrategy::ValidateCreate(const Json& object, kube::FieldErrors* errors) const {
  if (data_.validator != nullptr) {
    data_.validator->Validate(object, nullptr, errors);
  }
  ValidateScale(object, errors);
}

void CustomStrategy::ValidateUpdate(const Json& object, const Json& old,
                                    kube::FieldErrors* errors) const {
  if (data_.validator != nullptr) {
    data_.validator->Validate(object, &old, errors);
  }
  ValidateScale(object, errors);
}

void CustomStrategy::ValidateStatusUpdate(const Json& object, const Json& old,
                                          kube::FieldErrors* errors) const {
  if (data_.validator != nullptr) {
    data_.validator->ValidateStatus(object, &old, errors);
  }
  ValidateScale(object, errors);
}

// Finalizers without a domain clash between controllers.
void CustomStrategy::Warn(const Json& object, const Json* old,
                          std::vector<std::string>* warnings) const {
  const Json* list = kube::Find(object, {"metadata", "finalizers"});
  if (list == nullptr || !list->is_array()) {
    return;
  }
  for (const auto& item : *list) {
    const std::string name = item.is_string() ? item.get<std::string>() : "";
    const bool standard = name == "orphan" || name == "foregroundDeletion" || name == "kubernetes";
    if (name.find('/') == std::string::npos && !standard &&
        (old == nullptr || !kube::HasFinalizer(*old, name))) {
      warnings->push_back("metadata.finalizers: " + kube::GoQuote(name) +
                          ": prefer a domain-qualified finalizer name including a path (/) to "
                          "avoid accidental conflicts with other finalizer writers");
    }
  }
}

std::vector<kube::Column> CustomStrategy::Columns() const {
  std::vector<kube::Column> columns = {{"Name", "string", "name", "", 0}};
  for (const auto& column : data_.columns) {
    columns.push_back(column.column);
  }
  return columns;
}

Json CustomStrategy::Cells(const Json& object, WallTime now) const {
  Json cells = Json::array({std::string(kube::NameOf(object))});
  for (const auto& column : data_.columns) {
    const auto found = column.path.Find(object);
    cells.push_back(found.empty() ? Json() : CellOf(column.column.type, *found.front(), now));
  }
  return cells;
}

std::vector<std::string_view> CustomStrategy::SelectableFields() const {
  return {data_.selectable.begin(), data_.selectable.end()};
}

}  // namespace sublet::apiserver
