#include "kube/schema/builder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sublet::kube::schema {

class Builder {
 public:
  Builder() : out_(std::make_shared<OwnedSchema>()) {
    out_->strings_.push_back('\0');
    strings_[""] = 0;
  }

  Result<std::shared_ptr<const OwnedSchema>> Run(const Json* schema) {
    const Json any = {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
    out_->root_ = Compile(schema != nullptr && schema->is_object() ? *schema : any, 0, true);
    if (too_deep_) {
      return {Status(Reason::kInvalid, "the schema is nested deeper than 200 levels")};
    }
    out_->types_.shrink_to_fit();
    out_->fields_.shrink_to_fit();
    out_->strings_.shrink_to_fit();
    out_->tables_ = {out_->types_, out_->fields_, out_->strings_.data()};
    return std::shared_ptr<const OwnedSchema>(std::move(out_));
  }

 private:
  static constexpr int kDepthMax = 200;

  std::uint32_t Text(std::string_view text) {
    const auto [it, inserted] =
        strings_.try_emplace(std::string(text), static_cast<std::uint32_t>(out_->strings_.size()));
    if (inserted) {
      out_->strings_.append(text).push_back('\0');
    }
    return it->second;
  }

  // Interns a type with its fields: equal ones share a row.
  std::uint32_t Add(TypeRow row, const std::vector<FieldRow>& fields) {
    std::string key(reinterpret_cast<const char*>(&row.kind), 1);
    const auto put = [&key](std::uint32_t value) {
      key.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    put(row.flags);
    put(row.element);
    put(row.keys);
    for (const FieldRow& field : fields) {
      put(field.name);
      put(field.type);
      put(field.flags);
      put(field.default_text);
    }
    const auto [it, inserted] =
        rows_.try_emplace(std::move(key), static_cast<std::uint32_t>(out_->types_.size()));
    if (inserted) {
      row.first_field = static_cast<std::uint32_t>(out_->fields_.size());
      row.field_count = static_cast<std::uint32_t>(fields.size());
      out_->fields_.insert(out_->fields_.end(), fields.begin(), fields.end());
      out_->types_.push_back(row);
    }
    return it->second;
  }

  static ValueKind Scalar(const Json& schema) {
    if (FindBool(schema, {"x-kubernetes-int-or-string"})) {
      return ValueKind::kIntOrString;
    }
    const std::string_view type = FindString(schema, {"type"});
    if (type == "string") {
      return ValueKind::kString;
    }
    if (type == "integer") {
      return ValueKind::kInt64;
    }
    if (type == "number") {
      return ValueKind::kFloat;
    }
    return type == "boolean" ? ValueKind::kBool : ValueKind::kAny;
  }

  std::uint32_t Compile(const Json& schema, int depth, bool is_root) {
    if (depth > kDepthMax) {
      too_deep_ = true;
      return Add({.kind = 0,
                  .flags = kStructural,
                  .element = 0,
                  .first_field = 0,
                  .field_count = 0,
                  .name = 0,
                  .keys = 0},
                 {});
    }
    TypeRow row{.kind = static_cast<std::uint8_t>(Scalar(schema)),
                .flags = kStructural,
                .element = 0,
                .first_field = 0,
                .field_count = 0,
                .name = 0,
                .keys = 0};
    if (FindBool(schema, {"nullable"})) {
      row.flags |= kNullable;
    }
    const std::string_view type = FindString(schema, {"type"});
    const Json* items = Find(schema, {"items"});
    if (type == "array" && items != nullptr && items->is_object()) {
      return List(schema, *items, row, depth);
    }
    if (type == "object" || is_root) {
      return Object(schema, row, depth, is_root);
    }
    if (FindBool(schema, {"x-kubernetes-preserve-unknown-fields"})) {
      row.flags |= kPreserveUnknown;
    }
    return Add(row, {});
  }

  std::uint32_t List(const Json& schema, const Json& items, TypeRow row, int depth) {
    row.kind = static_cast<std::uint8_t>(ValueKind::kList);
    const std::string_view list_type = FindString(schema, {"x-kubernetes-list-type"});
    row.flags |= list_type == "map" ? kListMap : list_type == "set" ? kListSet : kAtomic;
    std::string keys;
    if (const Json* list = Find(schema, {"x-kubernetes-list-map-keys"});
        list != nullptr && list->is_array()) {
      for (const Json& one : *list) {
        if (one.is_string()) {
          keys.append(keys.empty() ? "" : ",").append(one.get_ref<const std::string&>());
        }
      }
    }
    row.keys = Text(keys);
    row.element = Compile(items, depth + 1, false);
    return Add(row, {});
  }

  std::uint32_t Object(const Json& schema, TypeRow row, int depth, bool is_root) {
    if (FindString(schema, {"x-kubernetes-map-type"}) == "atomic") {
      row.flags |= kAtomic;
    }
    if (FindBool(schema, {"x-kubernetes-preserve-unknown-fields"})) {
      row.flags |= kPreserveUnknown;
    }
    const Json* properties = Find(schema, {"properties"});
    const Json* additional = Find(schema, {"additionalProperties"});
    const bool has_properties = properties != nullptr && properties->is_object();
    if (!is_root && additional != nullptr && !has_properties) {
      if (additional->is_object()) {
        row.kind = static_cast<std::uint8_t>(ValueKind::kMap);
        row.element = Compile(*additional, depth + 1, false);
        return Add(row, {});
      }
      if (additional->is_boolean() && additional->get<bool>()) {
        row.flags |= kPreserveUnknown;
      }
    }
    row.kind = static_cast<std::uint8_t>(ValueKind::kStruct);
    const bool embedded = is_root || FindBool(schema, {"x-kubernetes-embedded-resource"});
    if (embedded) {
      row.flags |= is_root ? kRootObject : kEmbedded;
    }
    std::vector<FieldRow> fields;
    if (has_properties) {
      for (const auto& [name, child] : properties->items()) {
        if (!(embedded && IsMeta(name))) {
          fields.push_back(MakeField(schema, name, child, depth));
        }
      }
    }
    if (embedded) {
      AddMeta(&fields);
    }
    std::sort(fields.begin(), fields.end(), [this](const FieldRow& a, const FieldRow& b) {
      return std::string_view(out_->strings_.data() + a.name) <
             std::string_view(out_->strings_.data() + b.name);
    });
    return Add(row, fields);
  }

  static bool IsMeta(std::string_view name) {
    return name == "apiVersion" || name == "kind" || name == "metadata";
  }

  void AddMeta(std::vector<FieldRow>* fields) {
    const std::uint32_t text = Add({.kind = static_cast<std::uint8_t>(ValueKind::kString),
                                    .flags = kStructural,
                                    .element = 0,
                                    .first_field = 0,
                                    .field_count = 0,
                                    .name = 0,
                                    .keys = 0},
                                   {});
    for (const char* name : {"apiVersion", "kind"}) {
      fields->push_back({.name = Text(name),
                         .type = text,
                         .flags = 0,
                         .number = 0,
                         .default_text = 0,
                         .merge_key = 0});
    }
    fields->push_back({.name = Text("metadata"),
                       .type = kObjectMetaType,
                       .flags = 0,
                       .number = 0,
                       .default_text = 0,
                       .merge_key = 0});
  }

  FieldRow MakeField(const Json& parent, const std::string& name, const Json& schema, int depth) {
    FieldRow field{
        .name = Text(name), .type = 0, .flags = 0, .number = 0, .default_text = 0, .merge_key = 0};
    field.type = Compile(schema, depth + 1, false);
    if (const Json* list = Find(parent, {"required"});
        list != nullptr && list->is_array() &&
        std::find(list->begin(), list->end(), name) != list->end()) {
      field.flags |= kRequired;
    }
    if (const Json* value = Find(schema, {"default"})) {
      field.flags |= kHasDefault;
      field.default_text = Text(Dump(*value));
    }
    return field;
  }

  std::shared_ptr<OwnedSchema> out_;
  std::unordered_map<std::string, std::uint32_t> strings_;
  std::unordered_map<std::string, std::uint32_t> rows_;
  bool too_deep_ = false;
};

std::size_t OwnedSchema::bytes() const {
  return types_.capacity() * sizeof(TypeRow) + fields_.capacity() * sizeof(FieldRow) +
         strings_.capacity();
}

Result<std::shared_ptr<const OwnedSchema>> CompileCrdSchema(const Json* schema) {
  return Builder().Run(schema);
}

}  // namespace sublet::kube::schema
