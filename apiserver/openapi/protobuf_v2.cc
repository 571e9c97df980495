#include "apiserver/openapi/protobuf_v2.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "kube/json.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

void AppendVarint(std::uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void AppendBytes(int field, std::string_view bytes, std::string& out) {
  AppendVarint(static_cast<std::uint64_t>(field) << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  out += bytes;
}

void AppendBool(int field, bool value, std::string& out) {
  if (value) {
    AppendVarint(static_cast<std::uint64_t>(field) << 3, out);
    out += '\1';
  }
}

void AppendInt(int field, std::int64_t value, std::string& out) {
  AppendVarint(static_cast<std::uint64_t>(field) << 3, out);
  AppendVarint(static_cast<std::uint64_t>(value), out);
}

void AppendDouble(int field, double value, std::string& out) {
  AppendVarint(static_cast<std::uint64_t>(field) << 3 | 1, out);
  char raw[8];
  std::memcpy(raw, &value, sizeof(raw));
  out.append(raw, sizeof(raw));
}

void AppendText(int field, const Json& object, const char* name, std::string& out) {
  if (const auto it = object.find(name); it != object.end() && it->is_string()) {
    AppendBytes(field, it->get_ref<const std::string&>(), out);
  }
}

void AppendTexts(int field, const Json& object, const char* name, std::string& out) {
  if (const auto it = object.find(name); it != object.end() && it->is_array()) {
    for (const auto& item : *it) {
      if (item.is_string()) {
        AppendBytes(field, item.get_ref<const std::string&>(), out);
      }
    }
  }
}

// Any{yaml=2}: readers parse it as YAML, and JSON is YAML.
std::string AnyOf(const Json& value) {
  std::string out;
  AppendBytes(2, kube::Dump(value), out);
  return out;
}

void AppendExtensions(int field, const Json& object, std::string& out) {
  for (auto it = object.begin(); it != object.end(); ++it) {
    if (!it.key().starts_with("x-")) {
      continue;
    }
    std::string named;
    AppendBytes(1, it.key(), named);
    AppendBytes(2, AnyOf(it.value()), named);
    AppendBytes(field, named, out);
  }
}

std::string SchemaOf(const Json& schema);

void AppendNamedSchema(int field, std::string_view name, const Json& schema, std::string& out) {
  std::string named;
  AppendBytes(1, name, named);
  AppendBytes(2, SchemaOf(schema), named);
  AppendBytes(field, named, out);
}

void AppendLimits(const Json& schema, std::string& out) {
  static constexpr std::pair<const char*, int> kInts[] = {
      {"maxLength", 11}, {"minLength", 12},     {"maxItems", 14},
      {"minItems", 15},  {"maxProperties", 17}, {"minProperties", 18}};
  for (const auto& [name, field] : kInts) {
    if (const auto it = schema.find(name); it != schema.end() && it->is_number_integer()) {
      AppendInt(field, it->get<std::int64_t>(), out);
    }
  }
  static constexpr std::pair<const char*, int> kDoubles[] = {
      {"multipleOf", 6}, {"maximum", 7}, {"minimum", 9}};
  for (const auto& [name, field] : kDoubles) {
    if (const auto it = schema.find(name); it != schema.end() && it->is_number()) {
      AppendDouble(field, it->get<double>(), out);
    }
  }
}

std::string SchemaOf(const Json& schema) {
  std::string out;
  if (!schema.is_object()) {
    return out;
  }
  AppendText(1, schema, "$ref", out);
  AppendText(2, schema, "format", out);
  AppendText(4, schema, "description", out);
  if (const auto it = schema.find("default"); it != schema.end()) {
    AppendBytes(5, AnyOf(*it), out);
  }
  AppendLimits(schema, out);
  AppendText(13, schema, "pattern", out);
  AppendTexts(19, schema, "required", out);
  if (const auto it = schema.find("enum"); it != schema.end() && it->is_array()) {
    for (const auto& item : *it) {
      AppendBytes(20, AnyOf(item), out);
    }
  }
  if (const auto it = schema.find("additionalProperties"); it != schema.end()) {
    std::string item;
    if (it->is_boolean()) {
      AppendBool(2, it->get<bool>(), item);
    } else {
      AppendBytes(1, SchemaOf(*it), item);
    }
    AppendBytes(21, item, out);
  }
  if (const auto it = schema.find("type"); it != schema.end() && it->is_string()) {
    std::string item;
    AppendBytes(1, it->get_ref<const std::string&>(), item);
    AppendBytes(22, item, out);
  }
  if (const auto it = schema.find("items"); it != schema.end() && it->is_object()) {
    std::string item;
    AppendBytes(1, SchemaOf(*it), item);
    AppendBytes(23, item, out);
  }
  if (const auto it = schema.find("properties"); it != schema.end() && it->is_object()) {
    std::string properties;
    for (auto property = it->begin(); property != it->end(); ++property) {
      AppendNamedSchema(1, property.key(), property.value(), properties);
    }
    AppendBytes(25, properties, out);
  }
  AppendExtensions(31, schema, out);
  return out;
}

// ParametersItem{parameter=1{body_parameter=1 | non_body_parameter=2{query=3 | path=4}}}.
std::string ParameterItemOf(const Json& parameter) {
  const auto in = kube::FindString(parameter, {"in"});
  std::string message;
  std::string inner;
  if (in == "body") {
    AppendText(2, parameter, "name", message);
    AppendText(3, parameter, "in", message);
    AppendBool(4, kube::FindBool(parameter, {"required"}), message);
    if (const Json* schema = kube::Find(parameter, {"schema"})) {
      std::string ref = SchemaOf(*schema);
      AppendBytes(5, ref, message);
    }
    AppendBytes(1, message, inner);
  } else {
    const bool query = in == "query";
    AppendBool(1, kube::FindBool(parameter, {"required"}), message);
    AppendText(2, parameter, "in", message);
    AppendText(4, parameter, "name", message);
    AppendText(query ? 6 : 5, parameter, "type", message);
    AppendBool(query ? 20 : 19, kube::FindBool(parameter, {"uniqueItems"}), message);
    std::string non_body;
    AppendBytes(query ? 3 : 4, message, non_body);
    AppendBytes(2, non_body, inner);
  }
  std::string item;
  AppendBytes(1, inner, item);
  return item;
}

std::string ResponsesOf(const Json& responses) {
  std::string out;
  for (auto it = responses.begin(); it != responses.end(); ++it) {
    std::string response;
    AppendText(1, it.value(), "description", response);
    if (const Json* schema = kube::Find(it.value(), {"schema"})) {
      std::string item;
      AppendBytes(1, SchemaOf(*schema), item);
      AppendBytes(2, item, response);
    }
    std::string value;
    AppendBytes(1, response, value);
    std::string named;
    AppendBytes(1, it.key(), named);
    AppendBytes(2, value, named);
    AppendBytes(1, named, out);
  }
  return out;
}

void AppendParameters(int field, const Json& object, std::string& out) {
  if (const auto it = object.find("parameters"); it != object.end() && it->is_array()) {
    for (const auto& parameter : *it) {
      AppendBytes(field, ParameterItemOf(parameter), out);
    }
  }
}

std::string OperationOf(const Json& operation) {
  std::string out;
  AppendTexts(1, operation, "tags", out);
  AppendText(5, operation, "operationId", out);
  AppendTexts(6, operation, "produces", out);
  AppendTexts(7, operation, "consumes", out);
  AppendParameters(8, operation, out);
  if (const Json* responses = kube::Find(operation, {"responses"})) {
    AppendBytes(9, ResponsesOf(*responses), out);
  }
  AppendTexts(10, operation, "schemes", out);
  AppendExtensions(13, operation, out);
  return out;
}

std::string PathItemOf(const Json& item) {
  static constexpr std::pair<const char*, int> kMethods[] = {
      {"get", 2}, {"put", 3}, {"post", 4}, {"delete", 5}, {"patch", 8}};
  std::string out;
  for (const auto& [name, field] : kMethods) {
    if (const auto it = item.find(name); it != item.end()) {
      AppendBytes(field, OperationOf(*it), out);
    }
  }
  AppendParameters(9, item, out);
  return out;
}

}  // namespace

SpecSink ProtobufV2Writer::PathSink() {
  return [this](std::string_view name, std::string_view json) {
    const auto item = kube::ParseJson(json);
    if (!item.ok()) {
      return;
    }
    std::string named;
    AppendBytes(1, name, named);
    AppendBytes(2, PathItemOf(*item), named);
    AppendBytes(2, named, paths_);
  };
}

SpecSink ProtobufV2Writer::DefinitionSink() {
  return [this](std::string_view name, std::string_view json) {
    const auto schema = kube::ParseJson(json);
    if (schema.ok()) {
      AppendNamedSchema(1, name, *schema, definitions_);
    }
  };
}

std::string ProtobufV2Writer::Finish(std::string_view version) const {
  std::string info;
  AppendBytes(1, "Kubernetes", info);
  AppendBytes(2, version, info);
  std::string out;
  AppendBytes(1, "2.0", out);
  AppendBytes(2, info, out);
  AppendBytes(8, paths_, out);
  AppendBytes(9, definitions_, out);
  return out;
}

}  // namespace sublet::apiserver
