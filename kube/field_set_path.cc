#include "kube/field_set_path.h"

#include <nlohmann/json.hpp>

#include "kube/field_error.h"

namespace sublet::kube::fields {

using schema::Type;
using schema::ValueKind;

Type View::Member(std::string_view name) const {
  if (!type) {
    return {};
  }
  if (type.kind() == ValueKind::kMap) {
    return type.element();
  }
  const schema::Field field = type.FindField(name);
  if (!field) {
    if (type.Has(schema::kEmbedded) && name == "metadata") {
      return schema::ObjectMetaType();
    }
    return {};
  }
  return field.type();
}

bool View::IsNamedField(std::string_view name) const {
  return type && type.kind() == ValueKind::kStruct && type.FindField(name);
}

View Look(Type type, const Json* value) {
  View view;
  if (type) {
    switch (type.kind()) {
      case ValueKind::kStruct:
      case ValueKind::kMap:
        return {Shape::kMap, type.Has(schema::kAtomic), type};
      case ValueKind::kList:
        return {Shape::kList,
                !type.Has(schema::kListMap) && !type.Has(schema::kListSet), type};
      case ValueKind::kAny:
      case ValueKind::kRawExtension:
      case ValueKind::kJson:
      case ValueKind::kFieldsV1:
      case ValueKind::kSchemaOrArray:
      case ValueKind::kSchemaOrBool:
      case ValueKind::kSchemaOrStrings:
        break;
      default:
        return view;
    }
  }
  // Deduced: objects field by field, lists whole.
  if (value != nullptr && value->is_object()) {
    view.shape = Shape::kMap;
  } else if (value != nullptr && value->is_array()) {
    view.shape = Shape::kList;
    view.atomic = true;
  }
  return view;
}

std::string FieldStep(std::string_view name) { return std::string("f:").append(name); }

std::optional<std::string> ItemStep(const View& list, const Json& item, std::string* problem) {
  const auto fail = [&](const char* why) {
    if (problem != nullptr) {
      *problem = why;
    }
    return std::nullopt;
  };
  if (list.is_set()) {
    if (item.is_object()) {
      return fail("associative list without keys has an element that's a map type");
    }
    if (item.is_array()) {
      return fail("not supported: associative list with lists as elements");
    }
    if (item.is_null()) {
      return fail("associative list without keys has an element that's an explicit null");
    }
    return "v:" + Dump(item);
  }
  if (item.is_null()) {
    return fail("associative list with keys may not have a null element");
  }
  if (!item.is_object()) {
    return fail("associative list with keys may not have non-map elements");
  }
  Json keys = Json::object();
  const Type element = list.Item();
  for (std::string_view left = list.type.list_keys(); !left.empty();) {
    const std::size_t comma = std::min(left.find(','), left.size());
    const std::string_view key = left.substr(0, comma);
    left.remove_prefix(std::min(comma + 1, left.size()));
    if (const Json* value = Find(item, {key})) {
      keys[std::string(key)] = *value;
    } else if (element && element.kind() == ValueKind::kStruct) {
      const schema::Field field = element.FindField(key);
      if (field && !field.default_text().empty()) {
        keys[std::string(key)] = *ParseJson(field.default_text());
      }
    }
  }
  if (keys.empty()) {
    if (problem != nullptr) {
      std::string list_text;
      for (std::string_view left = list.type.list_keys(); !left.empty();) {
        const std::size_t comma = std::min(left.find(','), left.size());
        list_text.append(list_text.empty() ? "" : " ").append(GoQuote(left.substr(0, comma)));
        left.remove_prefix(std::min(comma + 1, left.size()));
      }
      *problem = "associative list with keys has an element that omits all key fields [" +
                 list_text + "] (and doesn't have default values for any key fields)";
    }
    return std::nullopt;
  }
  return "k:" + Dump(keys);
}

std::string PrintStep(std::string_view step) {
  const std::string_view rest = step.substr(std::min<std::size_t>(2, step.size()));
  const auto print = [](const Json& value) {
    return value.is_string() ? GoQuote(value.get_ref<const std::string&>()) : Dump(value);
  };
  if (step.starts_with("f:")) {
    return std::string(".").append(rest);
  }
  if (step.starts_with("i:")) {
    return std::string("[").append(rest).append("]");
  }
  const auto parsed = ParseJson(rest);
  if (!parsed.ok()) {
    return std::string(step);
  }
  if (step.starts_with("v:")) {
    return "[=" + print(*parsed) + "]";
  }
  std::string out;
  for (const auto& [key, value] : parsed->items()) {
    out.append(out.empty() ? "[" : ",").append(key).append("=").append(print(value));
  }
  return out + "]";
}

void AddSelf(Json* node) {
  if (!node->is_object()) {
    *node = Json::object();
  } else if (!node->empty()) {
    (*node)["."] = Json::object();
  }
}

}  // namespace sublet::kube::fields
