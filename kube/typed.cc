#include "kube/typed.h"

#include <nlohmann/json.hpp>

#include "kube/field_error.h"
#include "kube/typed_scalar.h"

namespace sublet::kube {
namespace {

using schema::Field;
using schema::Type;
using schema::ValueKind;

constexpr std::size_t kUnknownMax = 100;

// The embedded struct that `field` comes from: Go names it in the path of a type error.
std::string_view EmbeddedName(Type type, std::string_view field) {
  for (std::size_t i = 0; i < type.field_count() && type.field(i).name().empty(); ++i) {
    if (type.field(i).type().FindField(field)) {
      return type.field(i).type().short_name();
    }
  }
  return {};
}

// The way to the value being looked at: fields, list indexes and map keys, on the stack.
struct Step {
  const Step* parent = nullptr;
  std::string_view name;
  std::int64_t index = -1;
  bool is_field = true;  // of a struct; map keys are part of unknown-field paths only
  schema::Type owner{};  // of an embedded field: the struct that embeds it

  std::string Path(bool fields_only) const {
    std::string path = parent == nullptr ? std::string() : parent->Path(fields_only);
    if (index >= 0) {
      if (!fields_only) {
        path.append("[").append(std::to_string(index)).append("]");
      }
    } else if (!name.empty() && (is_field || !fields_only)) {
      path.append(path.empty() ? "" : ".");
      if (fields_only && owner) {
        const std::string_view embedded = EmbeddedName(owner, name);
        path.append(embedded).append(embedded.empty() ? "" : ".");
      }
      path.append(name);
    }
    return path;
  }
};

std::string_view JsonKindName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string: return "string";
    case Json::value_t::boolean: return "bool";
    case Json::value_t::array: return "array";
    case Json::value_t::object: return "object";
    default: return "number";
  }
}

class Normalizer {
 public:
  explicit Normalizer(std::vector<std::string>* unknown) : unknown_(unknown) {}

  void Struct(Type type, const Step& at, Json* value);
  void Value(Type type, std::string_view owner, const Step& at, Json* value);

  void Unknown(const Step& at, std::string_view key) {
    if (unknown_ != nullptr && unknown_->size() < kUnknownMax) {
      const Step step{&at, key};
      unknown_->push_back("unknown field \"" + step.Path(false) + "\"");
    }
  }
  void Fail(std::string message) {
    if (error_.empty()) {
      error_ = std::move(message);
    }
  }
  const std::string& error() const { return error_; }

 private:
  void TypeError(Type type, std::string_view owner, const Step& at, const Json& value,
                 std::string_view wanted = "");
  void List(Type type, std::string_view owner, const Step& at, Json* value);
  void Map(Type type, std::string_view owner, const Step& at, Json* value);

  std::vector<std::string>* unknown_;
  std::string error_;
};

void Normalizer::TypeError(Type type, std::string_view owner, const Step& at, const Json& value,
                           std::string_view wanted) {
  std::string text = "json: cannot unmarshal ";
  text.append(JsonKindName(value));
  const bool into_number =
      wanted == "int32" || type.kind() == ValueKind::kInt32 || type.kind() == ValueKind::kInt64;
  if (value.is_number() && into_number) {
    text.append(" ").append(Dump(value));
  }
  const std::string path = at.Path(true);
  if (owner.empty() || path.empty()) {
    text.append(" into Go value");
  } else {
    text.append(" into Go struct field ").append(owner).append(".").append(path);
  }
  text.append(" of type ").append(wanted.empty() ? type.GoName() : std::string(wanted));
  Fail(std::move(text));
}

// True when Go's encoder leaves out a value of this field because it is empty.
bool IsOmitted(const Field& field, Type type, const Json& value) {
  if (value.is_null()) {
    const bool is_struct =
        !field.Has(schema::kPointer) &&  // for Go; omitempty never applies
        (type.kind() == ValueKind::kTime || type.kind() == ValueKind::kMicroTime ||
         type.kind() == ValueKind::kRawExtension || type.kind() == ValueKind::kJson);
    return field.Has(schema::kOmitZero) || (field.Has(schema::kOmitEmpty) && !is_struct);
  }
  if (field.Has(schema::kPointer)) {
    return false;
  }
  if (field.Has(schema::kOmitEmpty)) {
    switch (value.type()) {
      case Json::value_t::string: {
        const ValueKind kind = type.kind();
        return value.get_ref<const std::string&>().empty() &&
               (kind == ValueKind::kString || kind == ValueKind::kBytes);
      }
      case Json::value_t::boolean: return !value.get<bool>();
      case Json::value_t::array: return value.empty();
      case Json::value_t::object:
        if (type.kind() == ValueKind::kMap) {
          return value.empty();
        }
        break;
      case Json::value_t::number_integer:
      case Json::value_t::number_unsigned:
      case Json::value_t::number_float:
        if (value == 0 && type.kind() != ValueKind::kIntOrString) {
          return true;
        }
        break;
      default: break;
    }
  }
  return field.Has(schema::kOmitZero) && type.kind() == ValueKind::kStruct &&
         value == ZeroValue(type);
}

// The value that Go writes for a field that was never set; discarded when it writes none.
Json AbsentValue(const Field& field) {
  const Type type = field.type();
  const bool leaves_out = field.Has(schema::kOmitEmpty) || field.Has(schema::kOmitZero);
  if (field.Has(schema::kPointer)) {
    return leaves_out ? Json(Json::value_t::discarded) : Json(nullptr);
  }
  switch (type.kind()) {
    case ValueKind::kStruct:
    case ValueKind::kTime:
    case ValueKind::kMicroTime:
    case ValueKind::kQuantity:
    case ValueKind::kDuration:
    case ValueKind::kIntOrString:
    case ValueKind::kRawExtension:
    case ValueKind::kJson:
      return field.Has(schema::kOmitZero) ? Json(Json::value_t::discarded) : ZeroValue(type);
    default: return leaves_out ? Json(Json::value_t::discarded) : ZeroValue(type);
  }
}

void Normalizer::Struct(Type type, const Step& at, Json* value) {
  auto& object = value->get_ref<Json::object_t&>();
  auto it = object.begin();
  const std::size_t count = type.field_count();
  // Both the members and the fields are sorted by name: one pass over both.
  for (std::size_t i = 0; i < count; ++i) {
    const Field field = type.field(i);
    const std::string_view name = field.name();
    if (name.empty()) {
      continue;
    }
    while (it != object.end() && it->first < name) {
      Unknown(at, it->first);
      it = object.erase(it);
    }
    if (it == object.end() || it->first != name) {
      if (field.Has(schema::kOmitEmpty) && !field.Has(schema::kPointer) &&
          field.type().kind() < ValueKind::kQuantity) {
        continue;  // the common case, without building a value
      }
      Json absent = AbsentValue(field);
      if (!absent.is_discarded()) {
        object.emplace_hint(it, std::string(name), std::move(absent));
      }
      continue;
    }
    const Type field_type = field.type();
    Json& member = it->second;
    const Step step{&at, name, -1, true, field.Has(schema::kFromInline) ? type : Type()};
    if (!member.is_null()) {
      Value(field_type, type.short_name(), step, &member);
    } else if (!field.Has(schema::kPointer)) {
      member = AbsentValue(field);
    }
    if (member.is_array() && member.empty() && !field.Has(schema::kOmitEmpty)) {
      member = nullptr;  // an empty list does not survive the stored form
    }
    it = member.is_discarded() || IsOmitted(field, field_type, member) ? object.erase(it)
                                                                       : std::next(it);
  }
  while (it != object.end()) {
    Unknown(at, it->first);
    it = object.erase(it);
  }
}

void Normalizer::List(Type type, std::string_view owner, const Step& at, Json* value) {
  const Type element = type.element();
  std::int64_t index = 0;
  for (Json& item : value->get_ref<Json::array_t&>()) {
    const Step step{&at, {}, index++};
    if (!item.is_null()) {
      Value(element, owner, step, &item);
    } else if (!type.Has(schema::kPointerElement)) {
      item = ZeroValue(element);
    }
  }
}

void Normalizer::Map(Type type, std::string_view owner, const Step& at, Json* value) {
  const Type element = type.element();
  for (auto& [key, item] : value->get_ref<Json::object_t&>()) {
    const Step step{&at, key, -1, false};
    if (!item.is_null()) {
      Value(element, owner, step, &item);
    } else if (element.kind() == ValueKind::kBytes) {
      item = "";
    } else {
      item = ZeroValue(element);
    }
  }
}

void Normalizer::Value(Type type, std::string_view owner, const Step& at, Json* value) {
  switch (type.kind()) {
    case ValueKind::kStruct:
      if (!value->is_object()) {
        return TypeError(type, owner, at, *value);
      }
      return Struct(type, at, value);
    case ValueKind::kList:
      if (!value->is_array()) {
        return TypeError(type, owner, at, *value);
      }
      return List(type, owner, at, value);
    case ValueKind::kMap:
      if (!value->is_object()) {
        return TypeError(type, owner, at, *value);
      }
      return Map(type, owner, at, value);
    case ValueKind::kSchemaOrArray:
    case ValueKind::kSchemaOrBool:
    case ValueKind::kSchemaOrStrings:
      if (value->is_object()) {
        return Struct(type.element(), at, value);
      }
      if (value->is_array() && type.kind() == ValueKind::kSchemaOrArray) {
        for (Json& item : *value) {
          Value(type.element(), owner, at, &item);
        }
      }
      return;
    default: {
      std::string problem;
      switch (NormalizeScalar(type.kind(), value, &problem)) {
        case ScalarOutcome::kOk: return;
        case ScalarOutcome::kWrongType: return TypeError(type, owner, at, *value, problem);
        case ScalarOutcome::kProblem: return Fail(std::move(problem));
      }
    }
  }
}

// Custom resources: unknown members go, everything else stays as written.
class Pruner {
 public:
  explicit Pruner(Normalizer* normalizer) : normalizer_(normalizer) {}

  void Value(Type type, const Step& at, Json* value) {
    switch (type.kind()) {
      case ValueKind::kStruct:
        if (!type.Has(schema::kStructural)) {
          return normalizer_->Value(type, type.short_name(), at, value);  // metadata
        }
        if (value->is_object()) {
          Struct(type, at, value);
        }
        return;
      case ValueKind::kMap:
        if (value->is_object()) {
          for (auto& [key, item] : value->get_ref<Json::object_t&>()) {
            Value(type.element(), Step{&at, key, -1, false}, &item);
          }
        }
        return;
      case ValueKind::kList:
        if (value->is_array()) {
          std::int64_t index = 0;
          for (Json& item : *value) {
            Value(type.element(), Step{&at, {}, index++}, &item);
          }
        }
        return;
      default: return;
    }
  }

 private:
  static bool IsTypeMeta(std::string_view key) { return key == "apiVersion" || key == "kind"; }

  void Struct(Type type, const Step& at, Json* value) {
    const bool keep = type.Has(schema::kPreserveUnknown);
    const bool embedded = type.Has(schema::kEmbedded);
    auto& object = value->get_ref<Json::object_t&>();
    for (auto it = object.begin(); it != object.end();) {
      const Field field = type.FindField(it->first);
      if (field) {
        Value(field.type(), Step{&at, it->first}, &it->second);
      } else if (embedded && it->first == "metadata") {
        normalizer_->Value(schema::ObjectMetaType(), "ObjectMeta", Step{&at, it->first},
                           &it->second);
      } else if (!keep && !(embedded && IsTypeMeta(it->first))) {
        normalizer_->Unknown(at, it->first);
        it = object.erase(it);
        continue;
      }
      ++it;
    }
  }

  Normalizer* normalizer_;
};

}  // namespace

Result<void> NormalizeTyped(Type type, Json* object, std::vector<std::string>* unknown_fields) {
  Normalizer normalizer(unknown_fields);
  const Step root{};
  if (type.Has(schema::kStructural)) {
    Pruner(&normalizer).Value(type, root, object);
  } else {
    normalizer.Value(type, "", root, object);
  }
  if (!normalizer.error().empty()) {
    return BadRequest(normalizer.error());
  }
  return Ok();
}

Json ZeroValue(Type type) {
  switch (type.kind()) {
    case ValueKind::kString: return "";
    case ValueKind::kInt32:
    case ValueKind::kInt64:
    case ValueKind::kFloat:
    case ValueKind::kIntOrString: return 0;
    case ValueKind::kBool: return false;
    case ValueKind::kQuantity: return "0";
    case ValueKind::kDuration: return "0s";
    case ValueKind::kStruct: {
      Json object = Json::object();
      for (std::size_t i = 0; i < type.field_count(); ++i) {
        const Field field = type.field(i);
        if (field.name().empty()) {
          continue;
        }
        Json value = AbsentValue(field);
        if (!value.is_discarded()) {
          object[std::string(field.name())] = std::move(value);
        }
      }
      return object;
    }
    default: return nullptr;
  }
}

void DefaultStructural(Type type, Json* value) {
  switch (type.kind()) {
    case ValueKind::kStruct: {
      if (!type.Has(schema::kStructural) || !value->is_object()) {
        return;
      }
      auto& object = value->get_ref<Json::object_t&>();
      for (std::size_t i = 0; i < type.field_count(); ++i) {
        const Field field = type.field(i);
        auto it = object.find(field.name());
        const bool has_default = field.Has(schema::kHasDefault);
        if (it != object.end() && it->second.is_null() && has_default &&
            !field.type().Has(schema::kNullable)) {
          object.erase(it);
          it = object.end();
        }
        if (it == object.end()) {
          if (!has_default) {
            continue;
          }
          auto parsed = ParseJson(field.default_text());
          it = object.emplace(std::string(field.name()), *std::move(parsed)).first;
        }
        DefaultStructural(field.type(), &it->second);
      }
      return;
    }
    case ValueKind::kMap:
      if (value->is_object()) {
        for (auto& [key, item] : value->get_ref<Json::object_t&>()) {
          DefaultStructural(type.element(), &item);
        }
      }
      return;
    case ValueKind::kList:
      if (value->is_array()) {
        for (Json& item : *value) {
          DefaultStructural(type.element(), &item);
        }
      }
      return;
    default: return;
  }
}

std::string_view DefaultTextOf(Type type, std::string_view name) {
  if (type.kind() != ValueKind::kStruct) {
    return {};
  }
  const Field field = type.FindField(name);
  return field ? field.default_text() : std::string_view();
}

}  // namespace sublet::kube
