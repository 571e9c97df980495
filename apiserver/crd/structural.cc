#include "apiserver/crd/structural.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/crd/patterns.h"

namespace sublet::apiserver {
namespace {

using kube::FieldErrors;
using kube::Json;

enum class SchemaLevel { kRoot, kField, kItem };

constexpr int kSchemaDepthMax = 200;

std::string Key(const std::string& path, std::string_view field, std::string_view key) {
  return path + "." + std::string(field) + "[" + std::string(key) + "]";
}

bool Flag(const Json& schema, std::string_view name) { return kube::FindBool(schema, {name}); }

// anyOf: [{type: integer}, {type: string}], as int-or-string schemas are generated.
bool IsIntOrStringAnyOf(const Json& schema) {
  static const Json kPattern = Json::array({{{"type", "integer"}}, {{"type", "string"}}});
  const auto it = schema.find("anyOf");
  return it != schema.end() && *it == kPattern;
}

class Checker {
 public:
  explicit Checker(FieldErrors* errors) : errors_(errors) {}

  void Schema(const Json& schema, SchemaLevel level, const std::string& path, int depth) {
    if (!schema.is_object() || depth > kSchemaDepthMax) {
      return;
    }
    Forbidden(schema, path);
    Type(schema, level, path);
    Extensions(schema, path);
    ListTypes(schema, path);
    Children(schema, level, path, depth);
    Metadata(schema, level, path);
    const bool int_or_string = Flag(schema, "x-kubernetes-int-or-string");
    Values(schema, int_or_string && IsIntOrStringAnyOf(schema), int_or_string, path, depth);
    Default(schema, path);
  }

 private:
  // Members of JSON schema that CRDs may not use at all.
  void Forbidden(const Json& schema, const std::string& path) {
    static constexpr std::pair<const char*, const char*> kForbidden[] = {
        {"$ref", "$ref is not supported"},
        {"additionalItems", "additionalItems is not supported"},
        {"definitions", "definitions is not supported"},
        {"dependencies", "dependencies is not supported"},
        {"id", "id is not supported"},
        {"patternProperties", "patternProperties is not supported"},
    };
    for (const auto& [name, why] : kForbidden) {
      if (const auto it = schema.find(name);
          it != schema.end() && !it->is_null() && !(it->is_structured() && it->empty())) {
        errors_->Forbidden(path + "." + name, why);
      }
    }
    if (Flag(schema, "uniqueItems")) {
      errors_->Forbidden(path + ".uniqueItems",
                         "uniqueItems cannot be set to true since the runtime complexity becomes "
                         "quadratic");
    }
    const auto more = schema.find("additionalProperties");
    const auto properties = schema.find("properties");
    if (more != schema.end() && properties != schema.end() && !properties->empty()) {
      const bool allows = more->is_object() || (more->is_boolean() && more->get<bool>());
      if (allows) {
        errors_->Forbidden(path + ".additionalProperties",
                           "additionalProperties and properties are mutual exclusive");
      }
    }
    if (more != schema.end() && more->is_boolean() && !more->get<bool>()) {
      errors_->Forbidden(path + ".additionalProperties",
                         "additionalProperties cannot be set to false");
    }
  }

  void Type(const Json& schema, SchemaLevel level, const std::string& path) {
    const auto type = kube::FindString(schema, {"type"});
    const bool embedded = Flag(schema, "x-kubernetes-embedded-resource");
    if (embedded && type != "object") {
      if (type.empty()) {
        errors_->Required(path + ".type",
                          "must be object if x-kubernetes-embedded-resource is true");
      } else {
        errors_->Invalid(path + ".type", Json(std::string(type)),
                         "must be object if x-kubernetes-embedded-resource is true");
      }
    } else if (type.empty() && !Flag(schema, "x-kubernetes-int-or-string") &&
               !Flag(schema, "x-kubernetes-preserve-unknown-fields")) {
      static constexpr const char* kWhere[] = {"must not be empty at the root",
                                               "must not be empty for specified object fields",
                                               "must not be empty for specified array items"};
      errors_->Required(path + ".type", kWhere[static_cast<int>(level)]);
    }
    static constexpr const char* kTypes[] = {"array",  "boolean", "integer",
                                             "number", "object",  "string"};
    if (!type.empty() &&
        std::find(std::begin(kTypes), std::end(kTypes), type) == std::end(kTypes)) {
      errors_->NotSupported(path + ".type", Json(std::string(type)),
                            {"array", "boolean", "integer", "number", "object", "string"});
    }
    if (level == SchemaLevel::kRoot && !type.empty() && type != "object") {
      errors_->Invalid(path + ".type", Json(std::string(type)), "must be object at the root");
    }
    if (type == "array" && !schema.contains("items")) {
      errors_->Required(path + ".items", "must be specified");
    }
    if (embedded && schema.contains("additionalProperties")) {
      errors_->Forbidden(path + ".additionalProperties",
                         "must not be used if x-kubernetes-embedded-resource is set");
    }
    const auto properties = schema.find("properties");
    if (embedded && !Flag(schema, "x-kubernetes-preserve-unknown-fields") &&
        (properties == schema.end() || properties->empty())) {
      errors_->Required(path + ".properties",
                        "must not be empty if x-kubernetes-embedded-resource is true without "
                        "x-kubernetes-preserve-unknown-fields");
    }
  }

  void Extensions(const Json& schema, const std::string& path) {
    if (const auto it = schema.find("x-kubernetes-preserve-unknown-fields");
        it != schema.end() && it->is_boolean() && !it->get<bool>()) {
      errors_->Invalid(path + ".x-kubernetes-preserve-unknown-fields", *it,
                       "must be true or undefined");
    }
    const bool int_or_string = Flag(schema, "x-kubernetes-int-or-string");
    if (int_or_string && Flag(schema, "x-kubernetes-preserve-unknown-fields")) {
      errors_->Invalid(path + ".x-kubernetes-preserve-unknown-fields", Json(true),
                       "must be false if x-kubernetes-int-or-string is true");
    }
    if (int_or_string && Flag(schema, "x-kubernetes-embedded-resource")) {
      errors_->Invalid(path + ".x-kubernetes-embedded-resource", Json(true),
                       "must be false if x-kubernetes-int-or-string is true");
    }
    if (int_or_string && !kube::FindString(schema, {"type"}).empty()) {
      errors_->Invalid(path + ".type", schema["type"],
                       "must be empty if x-kubernetes-int-or-string is true");
    }
  }

  void ListTypes(const Json& schema, const std::string& path) {
    const auto type = kube::FindString(schema, {"type"});
    const auto list = kube::FindString(schema, {"x-kubernetes-list-type"});
    const Json* keys = kube::Find(schema, {"x-kubernetes-list-map-keys"});
    const bool has_keys = keys != nullptr && keys->is_array() && !keys->empty();
    if (!list.empty() && type != "array") {
      if (type.empty()) {
        errors_->Required(path + ".type", "must be array if x-kubernetes-list-type is specified");
      } else {
        errors_->Invalid(path + ".type", Json(std::string(type)),
                         "must be array if x-kubernetes-list-type is specified");
      }
    }
    if (!list.empty() && list != "atomic" && list != "set" && list != "map") {
      errors_->NotSupported(path + ".x-kubernetes-list-type", Json(std::string(list)),
                            {"atomic", "map", "set"});
    }
    if (has_keys && list != "map") {
      if (list.empty()) {
        errors_->Required(path + ".x-kubernetes-list-type",
                          "must be map if x-kubernetes-list-map-keys is non-empty");
      } else {
        errors_->Invalid(path + ".x-kubernetes-list-type", Json(std::string(list)),
                         "must be map if x-kubernetes-list-map-keys is non-empty");
      }
    }
    if (list == "map") {
      ListMap(schema, has_keys ? *keys : Json::array(), path);
    }
    if (list == "set" && kube::FindBool(schema, {"items", "nullable"})) {
      errors_->Forbidden(path + ".items.nullable",
                         "cannot be nullable when x-kubernetes-list-type is set");
    }
    const auto map_type = kube::FindString(schema, {"x-kubernetes-map-type"});
    if (!map_type.empty() && type != "object") {
      errors_->Invalid(path + ".type", Json(std::string(type)),
                       "must be object if x-kubernetes-map-type is specified");
    }
    if (!map_type.empty() && map_type != "atomic" && map_type != "granular") {
      errors_->NotSupported(path + ".x-kubernetes-map-type", Json(std::string(map_type)),
                            {"atomic", "granular"});
    }
  }

  void ListMap(const Json& schema, const Json& keys, const std::string& path) {
    if (keys.empty()) {
      errors_->Required(path + ".x-kubernetes-list-map-keys",
                        "must not be empty if x-kubernetes-list-type is map");
    }
    const Json* items = kube::Find(schema, {"items"});
    if (items == nullptr) {
      errors_->Required(path + ".items", "must have a schema if x-kubernetes-list-type is map");
      return;
    }
    if (kube::FindString(*items, {"type"}) != "object") {
      errors_->Invalid(path + ".items.type", Json(std::string(kube::FindString(*items, {"type"}))),
                       "must be object if parent array's x-kubernetes-list-type is map");
    }
    if (Flag(*items, "nullable")) {
      errors_->Forbidden(path + ".items.nullable",
                         "cannot be nullable when x-kubernetes-list-type is map");
    }
    std::vector<std::string> required;
    if (const Json* list = kube::Find(*items, {"required"}); list != nullptr && list->is_array()) {
      for (const auto& name : *list) {
        required.push_back(name.is_string() ? name.get<std::string>() : "");
      }
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::string key = keys[i].is_string() ? keys[i].get<std::string>() : "";
      const std::string key_path = path + ".x-kubernetes-list-map-keys[" + std::to_string(i) + "]";
      const Json* property = kube::Find(*items, {"properties", key});
      if (property == nullptr) {
        errors_->Invalid(key_path, keys[i], "entries must all be names of item properties");
        continue;
      }
      const auto type = kube::FindString(*property, {"type"});
      if (type == "array" || type == "object") {
        errors_->Invalid(Key(path + ".items", "properties", key) + ".type", Json(std::string(type)),
                         "must be a scalar type if parent array's x-kubernetes-list-type is map");
      }
      const bool is_required = std::find(required.begin(), required.end(), key) != required.end();
      if (!is_required && !property->contains("default")) {
        errors_->Required(Key(path + ".items", "properties", key) + ".default",
                          "this property is in x-kubernetes-list-map-keys, so it must have a "
                          "default or be a required property");
      }
      if (Flag(*property, "nullable")) {
        errors_->Forbidden(Key(path + ".items", "properties", key) + ".nullable",
                           "this property is in x-kubernetes-list-map-keys, so it cannot be "
                           "nullable");
      }
    }
  }

  void Children(const Json& schema, SchemaLevel level, const std::string& path, int depth) {
    if (const Json* map = kube::Find(schema, {"properties"}); map != nullptr && map->is_object()) {
      for (auto it = map->begin(); it != map->end(); ++it) {
        const bool root_metadata = level == SchemaLevel::kRoot && it.key() == "metadata";
        if (!root_metadata) {
          Schema(it.value(), SchemaLevel::kField, Key(path, "properties", it.key()), depth + 1);
        }
      }
    }
    if (const Json* items = kube::Find(schema, {"items"})) {
      if (items->is_array()) {
        errors_->Forbidden(path + ".items", "items must be a schema object and not an array");
      } else {
        Schema(*items, SchemaLevel::kItem, path + ".items", depth + 1);
      }
    }
    if (const Json* more = kube::Find(schema, {"additionalProperties"})) {
      if (level == SchemaLevel::kRoot) {
        errors_->Forbidden(path + ".additionalProperties", "must not be used at the root");
      }
      Schema(*more, SchemaLevel::kField, path + ".additionalProperties", depth + 1);
    }
  }

  void Metadata(const Json& schema, SchemaLevel level, const std::string& path) {
    const bool checked =
        level == SchemaLevel::kRoot || Flag(schema, "x-kubernetes-embedded-resource");
    if (!checked) {
      return;
    }
    for (const char* field : {"kind", "apiVersion"}) {
      const Json* property = kube::Find(schema, {"properties", field});
      if (property != nullptr && kube::FindString(*property, {"type"}) != "string") {
        errors_->Invalid(Key(path, "properties", field) + ".type",
                         Json(std::string(kube::FindString(*property, {"type"}))),
                         "must be string");
      }
    }
    const Json* metadata = kube::Find(schema, {"properties", "metadata"});
    if (metadata == nullptr) {
      return;
    }
    const std::string metadata_path = Key(path, "properties", "metadata");
    if (kube::FindString(*metadata, {"type"}) != "object") {
      errors_->Invalid(metadata_path + ".type",
                       Json(std::string(kube::FindString(*metadata, {"type"}))), "must be object");
    }
    if (level != SchemaLevel::kRoot) {
      return;
    }
    bool only_names = true;
    for (auto it = metadata->begin(); it != metadata->end(); ++it) {
      if (it.key() == "properties" && it->is_object()) {
        for (auto property = it->begin(); property != it->end(); ++property) {
          only_names = only_names && (property.key() == "name" || property.key() == "generateName");
        }
      } else if (it.key() != "type" && it.key() != "default" && it.key() != "description") {
        only_names = false;
      }
    }
    if (!only_names) {
      errors_->Forbidden(metadata_path,
                         "must not specify anything other than name and generateName, but metadata "
                         "is implicitly specified");
    }
  }

  void Values(const Json& schema, bool skip_any_of, bool may_skip_first_all_of,
              const std::string& path, int depth) {
    for (const char* field : {"anyOf", "allOf", "oneOf"}) {
      const auto it = schema.find(field);
      if (it == schema.end() || !it->is_array() ||
          (skip_any_of && std::string_view(field) == "anyOf")) {
        continue;
      }
      for (std::size_t i = 0; i < it->size(); ++i) {
        const bool skip_inner = may_skip_first_all_of && std::string_view(field) == "allOf" &&
                                i == 0 && IsIntOrStringAnyOf((*it)[i]);
        Nested((*it)[i], skip_inner, path + "." + field + "[" + std::to_string(i) + "]", depth + 1);
      }
    }
    if (const Json* other = kube::Find(schema, {"not"})) {
      Nested(*other, false, path + ".not", depth + 1);
    }
    const std::string pattern(kube::FindString(schema, {"pattern"}));
    if (!pattern.empty()) {
      if (const auto checked = CheckPattern(pattern); !checked.ok()) {
        errors_->Invalid(
            path + ".pattern", Json(pattern),
            "must be a valid regular expression, but isn't: " + checked.error().message());
      }
    }
  }

  // Inside anyOf, allOf, oneOf and not only values may be restricted, not the structure.
  void Nested(const Json& schema, bool skip_any_of, const std::string& path, int depth) {
    if (!schema.is_object() || depth > kSchemaDepthMax) {
      return;
    }
    static constexpr std::pair<const char*, const char*> kForbidden[] = {
        {"type", "must be empty to be structural"},
        {"additionalProperties", "must be undefined to be structural"},
        {"default", "must be undefined to be structural"},
        {"title", "must be empty to be structural"},
        {"description", "must be empty to be structural"},
        {"nullable", "must be false to be structural"},
        {"x-kubernetes-preserve-unknown-fields", "must be false to be structural"},
        {"x-kubernetes-embedded-resource", "must be false to be structural"},
        {"x-kubernetes-int-or-string", "must be false to be structural"},
        {"x-kubernetes-list-map-keys", "must be empty to be structural"},
        {"x-kubernetes-list-type", "must be undefined to be structural"},
        {"x-kubernetes-map-type", "must be undefined to be structural"},
        {"x-kubernetes-validations", "must be empty to be structural"},
    };
    for (const auto& [name, why] : kForbidden) {
      const auto it = schema.find(name);
      if (it != schema.end() && !it->is_null() && *it != Json(false) && *it != Json("") &&
          !(it->is_structured() && it->empty())) {
        errors_->Forbidden(path + "." + name, why);
      }
    }
    Values(schema, skip_any_of, false, path, depth);
    if (const Json* map = kube::Find(schema, {"properties"}); map != nullptr && map->is_object()) {
      for (auto it = map->begin(); it != map->end(); ++it) {
        if (it.key() == "metadata") {
          errors_->Forbidden(Key(path, "properties", "metadata"),
                             "must not be specified in a nested context");
        }
        Nested(it.value(), false, Key(path, "properties", it.key()), depth + 1);
      }
    }
    if (const Json* items = kube::Find(schema, {"items"})) {
      Nested(*items, false, path + ".items", depth + 1);
    }
  }

  // A default must have the type it stands for.
  void Default(const Json& schema, const std::string& path) {
    const auto it = schema.find("default");
    if (it == schema.end()) {
      return;
    }
    const auto type = kube::FindString(schema, {"type"});
    const bool fits =
        type.empty() || (type == "object" && it->is_object()) ||
        (type == "array" && it->is_array()) || (type == "string" && it->is_string()) ||
        (type == "boolean" && it->is_boolean()) || (type == "integer" && it->is_number_integer()) ||
        (type == "number" && it->is_number()) || (it->is_null() && Flag(schema, "nullable"));
    if (!fits) {
      const std::string_view actual = it->is_object()           ? "object"
                                      : it->is_array()          ? "array"
                                      : it->is_string()         ? "string"
                                      : it->is_boolean()        ? "boolean"
                                      : it->is_null()           ? "null"
                                      : it->is_number_integer() ? "integer"
                                                                : "number";
      errors_->TypeInvalid(
          path + ".default", Json(std::string(actual)),
          " in body must be of type " + std::string(type) + ": " + kube::GoQuote(actual));
    }
  }

  FieldErrors* const errors_;
};

}  // namespace

void ValidateStructuralSchema(const Json& schema, const std::string& path, FieldErrors* errors) {
  Checker(errors).Schema(schema, SchemaLevel::kRoot, path, 0);
}

}  // namespace sublet::apiserver
