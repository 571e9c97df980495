#include "kube/field_set_path.h"

#include <algorithm>
#include <array>
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
      case ValueKind::kMap: return {Shape::kMap, type.Has(schema::kAtomic), type};
      case ValueKind::kList:
        return {Shape::kList, !type.Has(schema::kListMap) && !type.Has(schema::kListSet), type};
      case ValueKind::kRawExtension: return {Shape::kMap, true, type};
      case ValueKind::kAny:
      case ValueKind::kJson:
      case ValueKind::kFieldsV1:
      case ValueKind::kSchemaOrArray:
      case ValueKind::kSchemaOrBool:
      case ValueKind::kSchemaOrStrings: break;
      default: return view;
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

namespace {

// One key field of an item: its JSON, from the item or from the schema's default.
struct KeyPart {
  std::string_view name;
  const Json* value = nullptr;
  std::string_view default_text;
};
constexpr std::size_t kKeysMax =
    16;  // more key fields than any schema has; further ones are ignored

std::size_t SplitKeys(std::string_view left, std::array<KeyPart, kKeysMax>* parts) {
  std::size_t count = 0;
  while (!left.empty() && count < kKeysMax) {
    const std::size_t comma = std::min(left.find(','), left.size());
    (*parts)[count++].name = left.substr(0, comma);
    left.remove_prefix(std::min(comma + 1, left.size()));
  }
  return count;
}

std::string NoKeys(const std::array<KeyPart, kKeysMax>& parts, std::size_t count) {
  std::string list;
  for (std::size_t i = 0; i < count; ++i) {
    list.append(list.empty() ? "" : " ").append(GoQuote(parts[i].name));
  }
  return "associative list with keys has an element that omits all key fields [" + list +
         "] (and doesn't have default values for any key fields)";
}

std::optional<std::string> KeyStep(const View& list, const Json& item, std::string* problem) {
  std::array<KeyPart, kKeysMax> parts;
  const std::size_t count = SplitKeys(list.type.list_keys(), &parts);
  const Type element = list.Item();
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) {
    parts[i].value = Find(item, {parts[i].name});
    if (parts[i].value == nullptr && element && element.kind() == ValueKind::kStruct) {
      if (const schema::Field field = element.FindField(parts[i].name)) {
        parts[i].default_text = field.default_text();
      }
    }
    any |= parts[i].value != nullptr || !parts[i].default_text.empty();
  }
  if (!any) {
    if (problem != nullptr) {
      *problem = NoKeys(parts, count);
    }
    return std::nullopt;
  }
  std::sort(parts.begin(), parts.begin() + count,
            [](const KeyPart& a, const KeyPart& b) { return a.name < b.name; });
  std::string step = "k:{";
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i].value == nullptr && parts[i].default_text.empty()) {
      continue;
    }
    step.append(step.size() == 3 ? "" : ",");
    AppendJsonString(parts[i].name, &step);
    step.push_back(':');
    if (parts[i].value != nullptr) {
      AppendJson(*parts[i].value, &step);
    } else {
      step.append(parts[i].default_text);
    }
  }
  step.push_back('}');
  return step;
}

}  // namespace

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
  return KeyStep(list, item, problem);
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
