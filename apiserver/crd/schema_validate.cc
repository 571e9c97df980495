// Validation of a value against compiled nodes, with the sentences of Kubernetes' validator.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "apiserver/crd/formats.h"
#include "apiserver/crd/patterns.h"
#include "apiserver/crd/schema_node.h"
#include "apiserver/crd/schema_pool.h"
#include "apiserver/crd/schema_validator.h"

namespace sublet::apiserver {
namespace {

using kube::FieldErrors;
using kube::Json;

std::string_view TypeName(NodeType type) {
  switch (type) {
    case NodeType::kObject: return "object";
    case NodeType::kArray: return "array";
    case NodeType::kString: return "string";
    case NodeType::kInteger: return "integer";
    case NodeType::kNumber: return "number";
    case NodeType::kBoolean: return "boolean";
    case NodeType::kIntOrString: return "integer,string";
    case NodeType::kAny: break;
  }
  return "";
}

std::string_view ValueTypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object: return "object";
    case Json::value_t::array: return "array";
    case Json::value_t::string: return "string";
    case Json::value_t::boolean: return "boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "integer";
    case Json::value_t::number_float: return "number";
    default: return "null";
  }
}

bool IsIntegral(const Json& value) {
  if (value.is_number_integer()) {
    return true;
  }
  return value.is_number_float() && std::floor(value.get<double>()) == value.get<double>() &&
         std::fabs(value.get<double>()) < 9.2e18;
}

bool FitsType(const Json& value, NodeType type) {
  switch (type) {
    case NodeType::kObject: return value.is_object();
    case NodeType::kArray: return value.is_array();
    case NodeType::kString: return value.is_string();
    case NodeType::kBoolean: return value.is_boolean();
    case NodeType::kInteger: return IsIntegral(value);
    case NodeType::kNumber: return value.is_number();
    case NodeType::kIntOrString: return value.is_string() || IsIntegral(value);
    case NodeType::kAny: break;
  }
  return true;
}

// Number as Go prints a float64 with %v, integers without fraction.
std::string Show(double value) { return kube::Dump(Json(value)); }

// Code points.
std::int64_t RuneCount(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::string Child(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

// metadata of the whole object is judged elsewhere.
bool IsRootMetadata(const std::string& path, std::string_view name) {
  return path.empty() && name == "metadata";
}

// One run over a value. Errors beyond a bound are not collected: a broken list of a million items
// must not make a million sentences.
class Run {
 public:
  explicit Run(FieldErrors* errors) : errors_(errors) {}

  // `old` is null when there is nothing to compare with.
  void Value(const SchemaNode& node, const Json& value, const Json* old, const std::string& path) {
    if (errors_->size() >= kErrorsMax || (old != nullptr && *old == value)) {
      return;
    }
    if (value.is_null()) {
      if (node.type != NodeType::kAny && !node.nullable) {
        WrongType(path, TypeName(node.type), "null");
      }
      Enum(node, value, path);
      return;
    }
    if (!FitsType(value, node.type)) {
      // Strings with a format skip the type check upstream only when no number is expected; the
      // outcome for users is the same sentence.
      WrongType(path, TypeName(node.type), ValueTypeName(value));
      return;
    }
    ++matches_;
    if (node.limits != nullptr) {
      Combinations(node, value, path);
    }
    switch (value.type()) {
      case Json::value_t::object: Object(node, value, old, path); break;
      case Json::value_t::array: Array(node, value, old, path); break;
      case Json::value_t::string: String(node, value, path); break;
      default:
        if (value.is_number()) {
          Number(node, value, path);
        }
    }
    Enum(node, value, path);
  }

  int matches() const { return matches_; }

 private:
  static constexpr std::size_t kErrorsMax = 100;

  void WrongType(const std::string& path, std::string_view wanted, std::string_view actual) {
    errors_->TypeInvalid(
        path, Json(std::string(actual)),
        path + " in body must be of type " + std::string(wanted) + ": " + kube::GoQuote(actual));
    if (wanted == "integer" && actual == "number") {
      Unplaced("Checked value must be of type integer (default format) in " + path);
    }
  }

  // Errors without a place of their own; Kubernetes prints a nil path.
  void Unplaced(const std::string& text) { errors_->Invalid(std::string("<nil>"), Json(""), text); }

  void Object(const SchemaNode& node, const Json& value, const Json* old, const std::string& path) {
    if (node.limits != nullptr) {
      const auto size = static_cast<std::int64_t>(value.size());
      const NodeLimits& limits = *node.limits;
      if (limits.min_properties && size < *limits.min_properties) {
        errors_->Invalid(path, Json(size),
                         path + " in body should have at least " +
                             std::to_string(*limits.min_properties) + " properties");
      }
      if (limits.max_properties && size > *limits.max_properties) {
        errors_->TooMany(path, size, *limits.max_properties);
      }
    }
    for (auto it = value.begin(); it != value.end(); ++it) {
      if (IsRootMetadata(path, it.key())) {
        continue;
      }
      const SchemaNode* child = node.FindProperty(it.key());
      if (child == nullptr) {
        child = node.additional;
        if (child == nullptr && node.forbids_additional) {
          errors_->Invalid(path, Json(it.key()),
                           path + "." + it.key() + " in body is a forbidden property");
        }
      }
      if (child != nullptr) {
        const Json* before = nullptr;
        if (old != nullptr && old->is_object()) {
          const auto found = old->find(it.key());
          before = found == old->end() ? nullptr : &*found;
        }
        Value(*child, it.value(), before, Child(path, it.key()));
      }
    }
    for (const auto& name : node.required) {
      if (!value.contains(name)) {
        errors_->Required(Child(path, name));
      }
    }
  }

  void Array(const SchemaNode& node, const Json& value, const Json* old, const std::string& path) {
    if (node.items != nullptr) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        Value(*node.items, value[i], OldItem(node, value[i], old),
              path + "[" + std::to_string(i) + "]");
      }
    }
    if (node.limits == nullptr) {
      return;
    }
    const NodeLimits& limits = *node.limits;
    const auto size = static_cast<std::int64_t>(value.size());
    if (limits.min_items && size < *limits.min_items) {
      errors_->Invalid(
          path, Json(size),
          path + " in body should have at least " + std::to_string(*limits.min_items) + " items");
    }
    if (limits.max_items && size > *limits.max_items) {
      errors_->TooMany(path, size, *limits.max_items);
    }
    if (limits.unique_items) {
      std::set<std::string> seen;
      for (const auto& item : value) {
        if (!seen.insert(kube::Dump(item)).second) {
          errors_->Invalid(path, Json(""), path + " in body shouldn't contain duplicates");
          break;
        }
      }
    }
  }

  // The stored item with the same keys: only lists of type map can be followed.
  static const Json* OldItem(const SchemaNode& node, const Json& item, const Json* old) {
    if (old == nullptr || !old->is_array() || node.list_type != ListType::kMap ||
        !item.is_object()) {
      return nullptr;
    }
    for (const auto& candidate : *old) {
      const bool same =
          candidate.is_object() &&
          std::all_of(node.list_keys.begin(), node.list_keys.end(), [&](const std::string& key) {
            const auto a = candidate.find(key);
            const auto b = item.find(key);
            return (a == candidate.end()) == (b == item.end()) &&
                   (a == candidate.end() || *a == *b);
          });
      if (same) {
        return &candidate;
      }
    }
    return nullptr;
  }

  void String(const SchemaNode& node, const Json& value, const std::string& path) {
    const auto& text = value.get_ref<const std::string&>();
    if (node.limits != nullptr) {
      const NodeLimits& limits = *node.limits;
      const std::int64_t length =
          limits.max_length || limits.min_length ? RuneCount(text) : std::int64_t{0};
      if (limits.max_length && length > *limits.max_length) {
        return errors_->TooLong(path, static_cast<int>(*limits.max_length));
      }
      if (limits.min_length && length < *limits.min_length) {
        return errors_->Invalid(path, value,
                                path + " in body should be at least " +
                                    std::to_string(*limits.min_length) + " chars long");
      }
      if (!limits.pattern.empty() && !MatchesPattern(limits.pattern, text)) {
        return errors_->Invalid(path, value,
                                path + " in body should match '" + limits.pattern + "'");
      }
    }
    if (!node.format.empty() && node.type != NodeType::kIntOrString &&
        !MatchesFormat(node.format, text)) {
      errors_->TypeInvalid(
          path, value,
          path + " in body must be of type " + node.format + ": " + kube::GoQuote(text));
    }
  }

  void Number(const SchemaNode& node, const Json& value, const std::string& path) {
    const double number = value.get<double>();
    if (node.type == NodeType::kInteger && node.format == "int32" &&
        (number < -2147483648.0 || number > 2147483647.0)) {
      Unplaced("Checked value must be of type integer with format int32 in " + path);
    }
    if (node.limits == nullptr) {
      return;
    }
    const NodeLimits& limits = *node.limits;
    if (limits.multiple_of && *limits.multiple_of > 0) {
      const double quotient = number / *limits.multiple_of;
      if (std::fabs(quotient - std::round(quotient)) > 1e-9) {
        errors_->Invalid(path, value,
                         path + " in body should be a multiple of " + Show(*limits.multiple_of));
      }
    }
    if (limits.maximum &&
        (limits.exclusive_maximum ? number >= *limits.maximum : number > *limits.maximum)) {
      errors_->Invalid(path, value,
                       path + " in body should be less than " +
                           (limits.exclusive_maximum ? "" : "or equal to ") +
                           Show(*limits.maximum));
    }
    if (limits.minimum &&
        (limits.exclusive_minimum ? number <= *limits.minimum : number < *limits.minimum)) {
      errors_->Invalid(path, value,
                       path + " in body should be greater than " +
                           (limits.exclusive_minimum ? "" : "or equal to ") +
                           Show(*limits.minimum));
    }
  }

  void Enum(const SchemaNode& node, const Json& value, const std::string& path) {
    if (node.limits == nullptr || node.limits->enum_values.empty()) {
      return;
    }
    const auto& allowed = node.limits->enum_values;
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) {
      return;
    }
    std::vector<std::string> shown;
    for (const auto& item : allowed) {
      shown.push_back(item.is_string() ? item.get<std::string>() : kube::Dump(item));
    }
    const std::vector<std::string_view> views(shown.begin(), shown.end());
    errors_->NotSupported(path, value, views);
  }

  // Judges `value` by one alternative; its errors are kept apart.
  struct Trial {
    FieldErrors errors;
    int matches = 0;
  };
  static Trial Try(const SchemaNode& node, const Json& value, const std::string& path) {
    Trial trial;
    Run run(&trial.errors);
    run.Value(node, value, nullptr, path);
    trial.matches = run.matches();
    return trial;
  }

  void Merge(FieldErrors& from) {
    for (auto& cause : from.Take()) {
      errors_->Add(std::move(cause));
    }
  }

  void Combinations(const SchemaNode& node, const Json& value, const std::string& path) {
    const NodeLimits& limits = *node.limits;
    AnyOf(limits, value, path);
    OneOf(limits, value, path);
    std::size_t valid = 0;
    for (const SchemaNode* part : limits.all_of) {
      Trial trial = Try(*part, value, path);
      valid += trial.errors.empty() ? 1 : 0;
      Merge(trial.errors);
    }
    if (valid != limits.all_of.size()) {
      Unplaced(kube::GoQuote(path) + " must validate all the schemas (allOf)" +
               (valid == 0 ? ". None validated" : ""));
    }
    if (limits.not_node != nullptr && Try(*limits.not_node, value, path).errors.empty()) {
      Unplaced(kube::GoQuote(path) + " must not validate the schema (not)");
    }
  }

  void AnyOf(const NodeLimits& limits, const Json& value, const std::string& path) {
    if (limits.any_of.empty()) {
      return;
    }
    Trial best;
    bool has_best = false;
    for (const SchemaNode* part : limits.any_of) {
      Trial trial = Try(*part, value, path);
      if (trial.errors.empty()) {
        return;
      }
      if (!has_best || trial.matches > best.matches) {
        best = std::move(trial);
        has_best = true;
      }
    }
    Unplaced(kube::GoQuote(path) + " must validate at least one schema (anyOf)");
    Merge(best.errors);
  }

  void OneOf(const NodeLimits& limits, const Json& value, const std::string& path) {
    if (limits.one_of.empty()) {
      return;
    }
    Trial best;
    bool has_best = false;
    int valid = 0;
    for (const SchemaNode* part : limits.one_of) {
      Trial trial = Try(*part, value, path);
      if (trial.errors.empty()) {
        ++valid;
      } else if (valid == 0 && (!has_best || trial.matches > best.matches)) {
        best = std::move(trial);
        has_best = true;
      }
    }
    if (valid == 1) {
      return;
    }
    Unplaced(kube::GoQuote(path) + " must validate one and only one schema (oneOf). " +
             (valid == 0 ? "Found none valid"
                         : "Found " + std::to_string(valid) + " valid alternatives"));
    if (valid == 0) {
      Merge(best.errors);
    }
  }

  FieldErrors* const errors_;
  int matches_ = 0;
};

// x-kubernetes-list-type set and map: no two items alike; and embedded resources name their kind.
class Shape {
 public:
  explicit Shape(FieldErrors* errors) : errors_(errors) {}

  void Value(const SchemaNode& node, const Json& value, const std::string& path, bool is_root) {
    if (value.is_array()) {
      if (node.list_type == ListType::kSet) {
        Unique(value, path, [](const Json& item) { return item; });
      } else if (node.list_type == ListType::kMap) {
        Unique(value, path, [&](const Json& item) { return KeysOf(node, item); });
      }
      for (std::size_t i = 0; node.items != nullptr && i < value.size(); ++i) {
        Value(*node.items, value[i], path + "[" + std::to_string(i) + "]", false);
      }
      return;
    }
    if (!value.is_object()) {
      return;
    }
    if (node.embedded && !is_root) {
      Embedded(value, path);
    }
    for (auto it = value.begin(); it != value.end(); ++it) {
      if (IsRootMetadata(path, it.key())) {
        continue;
      }
      if (const SchemaNode* child = node.FindProperty(it.key())) {
        Value(*child, it.value(), Child(path, it.key()), false);
      } else if (node.additional != nullptr) {
        Value(*node.additional, it.value(), path + "[" + it.key() + "]", false);
      }
    }
  }

 private:
  static Json KeysOf(const SchemaNode& node, const Json& item) {
    Json keys = Json::object();
    if (item.is_object()) {
      for (const auto& key : node.list_keys) {
        if (const auto it = item.find(key); it != item.end()) {
          keys[key] = *it;
        }
      }
    }
    return keys;
  }

  template <typename KeyOf>
  void Unique(const Json& list, const std::string& path, KeyOf key_of) {
    std::map<std::string, int> seen;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Json key = key_of(list[i]);
      if (++seen[kube::Dump(key)] == 2) {
        errors_->Duplicate(path + "[" + std::to_string(i) + "]", key);
      }
    }
  }

  void Embedded(const Json& value, const std::string& path) {
    for (const char* field : {"apiVersion", "kind"}) {
      const auto it = value.find(field);
      if (it == value.end() || (it->is_string() && it->get_ref<const std::string&>().empty())) {
        errors_->Required(Child(path, field), "must not be empty");
      }
    }
  }

  FieldErrors* const errors_;
};

}  // namespace

const SchemaNode* SchemaNode::FindProperty(std::string_view name) const {
  const auto it =
      std::lower_bound(properties.begin(), properties.end(), name,
                       [](const auto& entry, std::string_view text) { return entry.first < text; });
  return it != properties.end() && it->first == name ? it->second : nullptr;
}

void SchemaValidator::Validate(const Json& object, const Json* old, FieldErrors* errors) const {
  Run(errors).Value(*root_, object, old, "");
  if (old != nullptr) {
    // Lists that were not unique before may stay so.
    FieldErrors old_errors;
    Shape(&old_errors).Value(*root_, *old, "", true);
    if (!old_errors.empty()) {
      return;
    }
  }
  Shape(errors).Value(*root_, object, "", true);
}

void SchemaValidator::ValidateStatus(const Json& object, const Json* old,
                                     FieldErrors* errors) const {
  const SchemaNode* node = root_->FindProperty("status");
  const auto status = object.find("status");
  if (node == nullptr || status == object.end()) {
    return;
  }
  const Json* before = old == nullptr ? nullptr : kube::Find(*old, {"status"});
  Run(errors).Value(*node, *status, before, "status");
  Shape(errors).Value(*node, *status, "status", false);
}

}  // namespace sublet::apiserver
