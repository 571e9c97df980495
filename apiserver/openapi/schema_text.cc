#include "apiserver/openapi/schema_text.h"

#include "kube/json.h"
#include "kube/schema/builtin_schema.h"

namespace sublet::apiserver {
namespace {

using kube::schema::Field;
using kube::schema::Type;
using kube::schema::ValueKind;

// Scalars that stand as definitions of their own, so that tools can name them.
bool IsNamedScalar(ValueKind kind) {
  switch (kind) {
    case ValueKind::kQuantity:
    case ValueKind::kTime:
    case ValueKind::kMicroTime:
    case ValueKind::kDuration:
    case ValueKind::kIntOrString:
    case ValueKind::kFieldsV1:
    case ValueKind::kRawExtension:
    case ValueKind::kJson:
    case ValueKind::kSchemaOrArray:
    case ValueKind::kSchemaOrBool:
    case ValueKind::kSchemaOrStrings: return true;
    default: return false;
  }
}

std::string_view ScalarText(ValueKind kind, SpecVersion version) {
  const bool v3 = version == SpecVersion::kV3;
  switch (kind) {
    case ValueKind::kString: return "\"type\":\"string\"";
    case ValueKind::kInt32: return "\"type\":\"integer\",\"format\":\"int32\"";
    case ValueKind::kInt64: return "\"type\":\"integer\",\"format\":\"int64\"";
    case ValueKind::kFloat: return "\"type\":\"number\",\"format\":\"double\"";
    case ValueKind::kBool: return "\"type\":\"boolean\"";
    case ValueKind::kBytes: return "\"type\":\"string\",\"format\":\"byte\"";
    case ValueKind::kQuantity:
      return v3 ? "\"oneOf\":[{\"type\":\"string\"},{\"type\":\"number\"}]" : "\"type\":\"string\"";
    case ValueKind::kTime:
    case ValueKind::kMicroTime: return "\"type\":\"string\",\"format\":\"date-time\"";
    case ValueKind::kDuration: return "\"type\":\"string\"";
    case ValueKind::kIntOrString:
      return v3 ? "\"format\":\"int-or-string\",\"oneOf\":[{\"type\":\"integer\"},{\"type\":"
                  "\"string\"}]"
                : "\"type\":\"string\",\"format\":\"int-or-string\"";
    case ValueKind::kFieldsV1:
    case ValueKind::kRawExtension: return "\"type\":\"object\"";
    default: return "";
  }
}

struct Description {
  std::string_view field;
  std::string_view text;
};

// What `kubectl explain` shows of metadata. Other built-in types have no texts.
constexpr Description kMetadataTexts[] = {
    {"annotations",
     "Annotations are values that tools keep with the object; nothing selects by them."},
    {"creationTimestamp",
     "CreationTimestamp is a timestamp of the server: when the object was made."},
    {"deletionGracePeriodSeconds", "Seconds that the object has to end after it was deleted."},
    {"deletionTimestamp",
     "DeletionTimestamp is when the object will be gone; set once it is deleted."},
    {"finalizers", "Names of those who have work to do before the object may go."},
    {"generateName",
     "GenerateName is a prefix to which the server adds a suffix when name is empty."},
    {"generation", "Generation counts the changes of what is wanted."},
    {"labels", "Labels are values by which objects are selected."},
    {"managedFields", "ManagedFields says which client set which field."},
    {"name", "Name is unique within a namespace (or the cluster) and cannot be changed."},
    {"namespace", "Namespace in which the name is unique; empty for what belongs to the cluster."},
    {"ownerReferences", "Objects that this one depends on; without any of them it is collected."},
    {"resourceVersion", "ResourceVersion changes with every write; compare it for equality only."},
    {"selfLink", "SelfLink is no longer filled."},
    {"uid", "UID is unique in time and space."},
};

std::string_view MetadataText(std::string_view field) {
  for (const Description& row : kMetadataTexts) {
    if (row.field == field) {
      return row.text;
    }
  }
  return {};
}

void AppendText(std::string_view name, std::string_view value, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  kube::AppendJsonString(value, &out);
}

}  // namespace

std::string CustomDefinitionName(const kube::GroupVersionKind& kind) {
  std::string name;
  std::string_view rest = kind.group;
  while (!rest.empty()) {
    const auto dot = rest.rfind('.');
    name += std::string(rest.substr(dot == std::string_view::npos ? 0 : dot + 1)) + ".";
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(0, dot);
  }
  return name + kind.version + "." + kind.kind;
}

SchemaText::SchemaText(SpecVersion version, const Catalog& catalog)
    : version_(version), catalog_(catalog) {}

std::string SchemaText::Ref(std::string_view name) const {
  std::string out = version_ == SpecVersion::kV3 ? "{\"$ref\":\"#/components/schemas/"
                                                 : "{\"$ref\":\"#/definitions/";
  out += name;
  out += "\"}";
  return out;
}

bool SchemaText::IsNamed(Type type) const {
  return !type.name().empty() && (type.kind() == ValueKind::kStruct || IsNamedScalar(type.kind()));
}

void SchemaText::NeedType(Type type) {
  if (needed_.emplace(std::string(type.name()), type).second) {
    unread_.push_back(type);
  }
}

std::string SchemaText::Need(const kube::GroupVersionKind& kind) {
  const Type type = kube::schema::FindType(kind.group, kind.version, kind.kind);
  if (!type) {
    return "";
  }
  NeedType(type);
  return std::string(type.name());
}

void SchemaText::AppendType(Type type, std::string_view default_text, std::string& out) {
  if (IsNamed(type)) {
    NeedType(type);
    if (version_ == SpecVersion::kV2) {
      const std::string ref = Ref(type.name());
      out += std::string_view(ref).substr(1, ref.size() - 2);
      return;
    }
    out += "\"allOf\":[" + Ref(type.name()) + "]";
    if (!default_text.empty()) {
      out += ",\"default\":";
      out += default_text;
    }
    return;
  }
  switch (type.kind()) {
    case ValueKind::kList:
      out += "\"type\":\"array\",\"items\":{";
      AppendType(type.element(), type.element().kind() == ValueKind::kStruct ? "{}" : "", out);
      out += "}";
      break;
    case ValueKind::kMap:
      out += "\"type\":\"object\",\"additionalProperties\":{";
      AppendType(type.element(), "", out);
      out += "}";
      break;
    case ValueKind::kStruct: out += "\"type\":\"object\""; break;
    default: {
      const auto text = ScalarText(type.kind(), version_);
      out += text;
      if (!default_text.empty() && !text.empty()) {
        out += ",\"default\":";
        out += default_text;
      }
    }
  }
}

void SchemaText::AppendProperty(const Field& field, std::string_view description,
                                std::string& out) {
  const Type type = field.type();
  kube::AppendJsonString(field.name(), &out);
  out += ":{";
  const std::size_t before = out.size();
  AppendType(type, field.default_text(), out);
  std::string extra;
  if (type.kind() == ValueKind::kList) {
    if (type.Has(kube::schema::kListMap)) {
      AppendText("x-kubernetes-list-type", "map", extra);
      extra += ",\"x-kubernetes-list-map-keys\":[\"";
      for (const char c : type.list_keys()) {
        extra += c == ',' ? std::string("\",\"") : std::string(1, c);
      }
      extra += "\"]";
    } else if (type.Has(kube::schema::kListSet)) {
      AppendText("x-kubernetes-list-type", "set", extra);
    } else if (type.Has(kube::schema::kAtomic)) {
      AppendText("x-kubernetes-list-type", "atomic", extra);
    }
  } else if (type.kind() == ValueKind::kMap && type.Has(kube::schema::kAtomic)) {
    AppendText("x-kubernetes-map-type", "atomic", extra);
  }
  std::string strategy;
  if (field.Has(kube::schema::kPatchMerge)) {
    strategy = "merge";
  } else if (field.Has(kube::schema::kPatchReplace)) {
    strategy = "replace";
  }
  if (field.Has(kube::schema::kRetainKeys)) {
    strategy += strategy.empty() ? "retainKeys" : ",retainKeys";
  }
  if (!strategy.empty()) {
    AppendText("x-kubernetes-patch-strategy", strategy, extra);
  }
  if (!field.merge_key().empty()) {
    AppendText("x-kubernetes-patch-merge-key", field.merge_key(), extra);
  }
  if (!description.empty()) {
    AppendText("description", description, extra);
  }
  if (out.size() == before && !extra.empty()) {
    extra.erase(0, 1);
  }
  out += extra;
  out += "}";
}

void SchemaText::AppendKinds(Type type, std::string& out) const {
  const auto name = type.short_name();
  std::string list;
  const auto add = [&](std::string_view group, std::string_view version, std::string_view kind) {
    list += list.empty() ? "{\"group\":\"" : ",{\"group\":\"";
    list += group;
    list += "\",\"kind\":\"";
    list += kind;
    list += "\",\"version\":\"";
    list += version;
    list += "\"}";
  };
  if (name == "DeleteOptions" || name == "WatchEvent") {
    for (const auto& group : catalog_.groups()) {
      for (const auto& version : group.versions) {
        add(group.group, version, name);
      }
    }
  } else if (name == "Status" || name == "APIGroup" || name == "APIGroupList" ||
             name == "APIResourceList" || name == "APIVersions") {
    add("", "v1", name);
  } else {
    for (const auto& row : kube::schema::kBuiltinKinds) {
      const auto group = kube::schema::BuiltinText(row.group);
      if (row.type == type.index() && group != "meta.k8s.io") {
        add(group, kube::schema::BuiltinText(row.version), kube::schema::BuiltinText(row.kind));
      }
    }
  }
  if (!list.empty()) {
    out += ",\"x-kubernetes-group-version-kind\":[" + list + "]";
  }
}

void SchemaText::AppendDefinition(Type type, std::string& out) {
  out += "{";
  if (type.kind() != ValueKind::kStruct) {
    out += ScalarText(type.kind(), version_);
    out += "}";
    return;
  }
  out += "\"type\":\"object\"";
  const bool is_metadata = type.short_name() == "ObjectMeta";
  std::string properties;
  std::string required;
  for (std::size_t i = 0; i < type.field_count(); ++i) {
    const Field field = type.field(i);
    if (field.Has(kube::schema::kInline) || field.name().empty()) {
      continue;
    }
    if (!properties.empty()) {
      properties += ",";
    }
    AppendProperty(field, is_metadata ? MetadataText(field.name()) : std::string_view(),
                   properties);
    if (field.Has(kube::schema::kRequired)) {
      required += (required.empty() ? "\"" : ",\"") + std::string(field.name()) + "\"";
    }
  }
  if (!properties.empty()) {
    out += ",\"properties\":{" + properties + "}";
  }
  if (!required.empty()) {
    out += ",\"required\":[" + required + "]";
  }
  if (type.Has(kube::schema::kAtomic)) {
    AppendText("x-kubernetes-map-type", "atomic", out);
  }
  AppendKinds(type, out);
  out += "}";
}

void SchemaText::EmitDefinitions(const SpecSink& sink) {
  std::string text;
  while (!unread_.empty()) {
    const Type type = unread_.back();
    unread_.pop_back();
    text.clear();
    AppendDefinition(type, text);
    sink(type.name(), text);
  }
}

}  // namespace sublet::apiserver
