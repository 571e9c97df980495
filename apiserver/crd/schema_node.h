// SchemaNode: one compiled sub-schema. Private to crd/.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kube/json.h"

namespace sublet::apiserver {

enum class NodeType : std::uint8_t {
  kAny,
  kObject,
  kArray,
  kString,
  kInteger,
  kNumber,
  kBoolean,
  kIntOrString
};
enum class ListType : std::uint8_t { kAtomic, kSet, kMap };

// Constraints that few nodes have.
struct NodeLimits {
  std::optional<double> minimum, maximum, multiple_of;
  bool exclusive_minimum = false;
  bool exclusive_maximum = false;
  std::optional<std::int64_t> min_length, max_length, min_items, max_items, min_properties,
      max_properties;
  bool unique_items = false;
  std::string pattern;
  std::vector<kube::Json> enum_values;
  std::vector<const struct SchemaNode*> all_of, any_of, one_of;
  const struct SchemaNode* not_node = nullptr;
};

struct SchemaNode {
  NodeType type = NodeType::kAny;
  ListType list_type = ListType::kAtomic;
  bool nullable = false;
  bool embedded = false;            // x-kubernetes-embedded-resource
  bool forbids_additional = false;  // additionalProperties: false
  std::string format;
  std::vector<std::string> list_keys;
  std::vector<std::string> required;
  std::vector<std::pair<std::string, const SchemaNode*>> properties;  // by name
  const SchemaNode* additional = nullptr;
  const SchemaNode* items = nullptr;
  std::unique_ptr<NodeLimits> limits;

  const SchemaNode* FindProperty(std::string_view name) const;
};

}  // namespace sublet::apiserver
