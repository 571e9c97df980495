// Compilation of a schema to nodes, equal ones shared.
#include <algorithm>
#include <deque>
#include <map>

#include "apiserver/crd/patterns.h"
#include "apiserver/crd/schema_node.h"
#include "apiserver/crd/schema_pool.h"
#include "apiserver/crd/schema_validator.h"

namespace sublet::apiserver {
namespace {

constexpr int kCompileDepthMax = 200;

NodeType TypeOf(std::string_view text) {
  static constexpr std::pair<std::string_view, NodeType> kTypes[] = {
      {"object", NodeType::kObject}, {"array", NodeType::kArray},
      {"string", NodeType::kString}, {"integer", NodeType::kInteger},
      {"number", NodeType::kNumber}, {"boolean", NodeType::kBoolean}};
  for (const auto& [name, type] : kTypes) {
    if (name == text) {
      return type;
    }
  }
  return NodeType::kAny;
}

std::optional<std::int64_t> Int(const kube::Json& schema, const char* name) {
  const auto it = schema.find(name);
  if (it == schema.end() || !it->is_number()) {
    return std::nullopt;
  }
  return it->is_number_float() ? static_cast<std::int64_t>(it->get<double>())
                               : it->get<std::int64_t>();
}

std::optional<double> Number(const kube::Json& schema, const char* name) {
  const auto it = schema.find(name);
  if (it == schema.end() || !it->is_number()) {
    return std::nullopt;
  }
  return it->get<double>();
}

std::vector<std::string> Texts(const kube::Json& schema, const char* name) {
  std::vector<std::string> out;
  if (const auto it = schema.find(name); it != schema.end() && it->is_array()) {
    for (const auto& item : *it) {
      if (item.is_string()) {
        out.push_back(item.get<std::string>());
      }
    }
  }
  return out;
}

class Compiler {
 public:
  Compiler(SchemaPool& pool, bool& has_rules) : pool_(pool), has_rules_(has_rules) {}

  Result<const SchemaNode*> Compile(const kube::Json& schema, int depth) {
    if (depth > kCompileDepthMax) {
      return Invalid("", "", "", {{"FieldValueInvalid", "schema is nested too deeply", ""}});
    }
    auto node = std::make_unique<SchemaNode>();
    if (!schema.is_object()) {
      return pool_.Intern(std::move(node));
    }
    ReadScalars(schema, *node);
    SUBLET_RETURN_IF_ERROR(ReadChildren(schema, *node, depth));
    SUBLET_RETURN_IF_ERROR(ReadLimits(schema, *node, depth));
    const auto rules = schema.find("x-kubernetes-validations");
    has_rules_ = has_rules_ || (rules != schema.end() && rules->is_array() && !rules->empty());
    return pool_.Intern(std::move(node));
  }

 private:
  void ReadScalars(const kube::Json& schema, SchemaNode& node) {
    node.type = TypeOf(kube::FindString(schema, {"type"}));
    if (kube::FindBool(schema, {"x-kubernetes-int-or-string"})) {
      node.type = NodeType::kIntOrString;
    }
    node.nullable = kube::FindBool(schema, {"nullable"});
    node.embedded = kube::FindBool(schema, {"x-kubernetes-embedded-resource"});
    node.format = kube::FindString(schema, {"format"});
    node.required = Texts(schema, "required");
    node.list_keys = Texts(schema, "x-kubernetes-list-map-keys");
    const auto list = kube::FindString(schema, {"x-kubernetes-list-type"});
    node.list_type = list == "map"   ? ListType::kMap
                     : list == "set" ? ListType::kSet
                                     : ListType::kAtomic;
  }

  Result<void> ReadChildren(const kube::Json& schema, SchemaNode& node, int depth) {
    if (const kube::Json* map = kube::Find(schema, {"properties"});
        map != nullptr && map->is_object()) {
      node.properties.reserve(map->size());
      for (auto it = map->begin(); it != map->end(); ++it) {
        SUBLET_TRY(const SchemaNode* child, Compile(it.value(), depth + 1));
        node.properties.emplace_back(it.key(), child);
      }
    }
    if (const kube::Json* more = kube::Find(schema, {"additionalProperties"})) {
      if (more->is_object()) {
        SUBLET_TRY(node.additional, Compile(*more, depth + 1));
      } else {
        node.forbids_additional = more->is_boolean() && !more->get<bool>();
      }
    }
    if (const kube::Json* items = kube::Find(schema, {"items"});
        items != nullptr && items->is_object()) {
      SUBLET_TRY(node.items, Compile(*items, depth + 1));
    }
    return Ok();
  }

  Result<void> ReadList(const kube::Json& schema, const char* name, int depth,
                        std::vector<const SchemaNode*>& out) {
    if (const auto it = schema.find(name); it != schema.end() && it->is_array()) {
      for (const auto& item : *it) {
        SUBLET_TRY(const SchemaNode* child, Compile(item, depth + 1));
        out.push_back(child);
      }
    }
    return Ok();
  }

  Result<void> ReadLimits(const kube::Json& schema, SchemaNode& node, int depth) {
    static constexpr const char* kFields[] = {
        "minimum",  "maximum",       "multipleOf",    "minLength",   "maxLength", "minItems",
        "maxItems", "minProperties", "maxProperties", "uniqueItems", "pattern",   "enum",
        "allOf",    "anyOf",         "oneOf",         "not"};
    if (std::none_of(std::begin(kFields), std::end(kFields),
                     [&](const char* field) { return schema.contains(field); })) {
      return Ok();
    }
    auto limits = std::make_unique<NodeLimits>();
    limits->minimum = Number(schema, "minimum");
    limits->maximum = Number(schema, "maximum");
    limits->multiple_of = Number(schema, "multipleOf");
    limits->exclusive_minimum = kube::FindBool(schema, {"exclusiveMinimum"});
    limits->exclusive_maximum = kube::FindBool(schema, {"exclusiveMaximum"});
    limits->min_length = Int(schema, "minLength");
    limits->max_length = Int(schema, "maxLength");
    limits->min_items = Int(schema, "minItems");
    limits->max_items = Int(schema, "maxItems");
    limits->min_properties = Int(schema, "minProperties");
    limits->max_properties = Int(schema, "maxProperties");
    limits->unique_items = kube::FindBool(schema, {"uniqueItems"});
    limits->pattern = kube::FindString(schema, {"pattern"});
    if (!limits->pattern.empty()) {
      SUBLET_RETURN_IF_ERROR(CheckPattern(limits->pattern));
    }
    if (const auto it = schema.find("enum"); it != schema.end() && it->is_array()) {
      limits->enum_values.assign(it->begin(), it->end());
    }
    SUBLET_RETURN_IF_ERROR(ReadList(schema, "allOf", depth, limits->all_of));
    SUBLET_RETURN_IF_ERROR(ReadList(schema, "anyOf", depth, limits->any_of));
    SUBLET_RETURN_IF_ERROR(ReadList(schema, "oneOf", depth, limits->one_of));
    if (const kube::Json* other = kube::Find(schema, {"not"})) {
      SUBLET_TRY(limits->not_node, Compile(*other, depth + 1));
    }
    node.limits = std::move(limits);
    return Ok();
  }

  SchemaPool& pool_;
  bool& has_rules_;
};

// A text that is equal for equal nodes; children are already shared, so their addresses do.
std::string Fingerprint(const SchemaNode& node) {
  std::string key;
  const auto add = [&key](std::string_view text) {
    key += text;
    key += '\x1f';
  };
  const auto add_number = [&](auto value) { add(std::to_string(value)); };
  const auto add_node = [&](const SchemaNode* child) {
    add_number(reinterpret_cast<std::uintptr_t>(child));
  };
  const auto add_optional = [&](const auto& value) {
    if (value) {
      add_number(*value);
    } else {
      add("-");
    }
  };
  add_number(static_cast<int>(node.type) * 64 + static_cast<int>(node.list_type) * 16 +
             (node.nullable ? 1 : 0) + (node.embedded ? 2 : 0) + (node.forbids_additional ? 4 : 0));
  add(node.format);
  for (const auto* list : {&node.list_keys, &node.required}) {
    for (const auto& text : *list) {
      add(text);
    }
    add("|");
  }
  for (const auto& [name, child] : node.properties) {
    add(name);
    add_node(child);
  }
  add_node(node.additional);
  add_node(node.items);
  if (node.limits == nullptr) {
    return key;
  }
  const NodeLimits& limits = *node.limits;
  add_optional(limits.minimum);
  add_optional(limits.maximum);
  add_optional(limits.multiple_of);
  add_number((limits.exclusive_minimum ? 1 : 0) + (limits.exclusive_maximum ? 2 : 0) +
             (limits.unique_items ? 4 : 0));
  for (const auto* value : {&limits.min_length, &limits.max_length, &limits.min_items,
                            &limits.max_items, &limits.min_properties, &limits.max_properties}) {
    add_optional(*value);
  }
  add(limits.pattern);
  for (const auto& value : limits.enum_values) {
    add(kube::Dump(value));
  }
  for (const auto* list : {&limits.all_of, &limits.any_of, &limits.one_of}) {
    add("|");
    for (const auto* child : *list) {
      add_node(child);
    }
  }
  add_node(limits.not_node);
  return key;
}

}  // namespace

const SchemaNode* SchemaPool::Intern(std::unique_ptr<SchemaNode> node) {
  node->properties.shrink_to_fit();
  auto [it, fresh] = index_.try_emplace(Fingerprint(*node), nullptr);
  if (fresh) {
    nodes_.push_back(std::move(node));
    it->second = nodes_.back().get();
  }
  return it->second;
}

SchemaValidator::SchemaValidator() : pool_(std::make_unique<Pool>()) {}
SchemaValidator::~SchemaValidator() = default;
std::size_t SchemaValidator::node_count() const { return pool_->size(); }

Result<std::shared_ptr<const SchemaValidator>> SchemaValidator::Compile(const kube::Json& schema) {
  std::shared_ptr<SchemaValidator> validator(new SchemaValidator());
  SUBLET_TRY(validator->root_,
             Compiler(*validator->pool_, validator->has_rules_).Compile(schema, 0));
  validator->pool_->Seal();
  return std::shared_ptr<const SchemaValidator>(std::move(validator));
}

}  // namespace sublet::apiserver
