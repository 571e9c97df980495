#include "apiserver/crd/definition_strategy.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apiserver/crd/definition.h"
#include "apiserver/crd/json_path.h"
#include "apiserver/crd/structural.h"
#include "apiserver/text.h"
#include "kube/object.h"
#include "kube/validation_names.h"

namespace sublet::apiserver {
namespace {

using kube::FieldErrors;
using kube::Json;

const Json& VersionsOf(const Json& object) {
  static const Json kNone = Json::array();
  const Json* versions = kube::Find(object, {"spec", "versions"});
  return versions != nullptr && versions->is_array() ? *versions : kNone;
}

Json Text(std::string_view text) { return Json(std::string(text)); }

void CheckLabel(std::string_view value, const std::string& path, std::string_view before,
                FieldErrors* errors) {
  if (value.empty()) {
    return;
  }
  const auto problems = kube::IsDns1035Label(Lower(value) == value ? value : Lower(value));
  const bool mixed = !before.empty();
  const auto strict = mixed ? problems : kube::IsDns1035Label(value);
  if (!strict.empty()) {
    errors->Invalid(path, Text(value), std::string(before) + kube::Join(strict, ","));
  }
}

void CheckNames(const Json& names, FieldErrors* errors) {
  const std::string path = "spec.names";
  for (const char* field : {"plural", "singular", "kind", "listKind"}) {
    if (kube::FindString(names, {field}).empty()) {
      errors->Required(path + "." + field);
    }
  }
  constexpr std::string_view kMixed = "may have mixed case, but should otherwise match: ";
  CheckLabel(kube::FindString(names, {"plural"}), path + ".plural", "", errors);
  CheckLabel(kube::FindString(names, {"singular"}), path + ".singular", "", errors);
  CheckLabel(kube::FindString(names, {"kind"}), path + ".kind", kMixed, errors);
  CheckLabel(kube::FindString(names, {"listKind"}), path + ".listKind", kMixed, errors);
  for (const char* field : {"shortNames", "categories"}) {
    const Json* list = kube::Find(names, {field});
    for (std::size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i) {
      const std::string value = (*list)[i].is_string() ? (*list)[i].get<std::string>() : "";
      CheckLabel(value, path + "." + field + "[" + std::to_string(i) + "]", "", errors);
    }
  }
  const auto kind = kube::FindString(names, {"kind"});
  if (!kind.empty() && kind == kube::FindString(names, {"listKind"})) {
    errors->Invalid(path + ".listKind", Text(kind), "kind and listKind may not be the same");
  }
}

void CheckColumns(const Json& version, const std::string& path, FieldErrors* errors) {
  const Json* list = kube::Find(version, {"additionalPrinterColumns"});
  if (list == nullptr || !list->is_array()) {
    return;
  }
  static const std::set<std::string, std::less<>> kTypes = {"boolean", "date", "integer", "number",
                                                            "string"};
  static const std::set<std::string, std::less<>> kFormats = {
      "byte", "date", "date-time", "double", "float", "int32", "int64", "password", ""};
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "]";
    const auto type = kube::FindString((*list)[i], {"type"});
    const auto format = kube::FindString((*list)[i], {"format"});
    const auto json_path = kube::FindString((*list)[i], {"jsonPath"});
    if (kube::FindString((*list)[i], {"name"}).empty()) {
      errors->Required(at + ".name");
    }
    constexpr const char* kMust = "must be one of boolean,date,integer,number,string";
    if (type.empty()) {
      errors->Required(at + ".type", kMust);
    } else if (kTypes.count(type) == 0) {
      errors->Invalid(at + ".type", Text(type), kMust);
    }
    if (kFormats.count(format) == 0) {
      errors->Invalid(at + ".format", Text(format),
                      "must be one of byte,date,date-time,double,float,int32,int64,password");
    }
    if (json_path.empty()) {
      errors->Required(at + ".JSONPath");
    } else if (json_path.front() != '.') {
      errors->Invalid(at + ".JSONPath", Text(json_path),
                      "must be a simple json path starting with .");
    } else if (!JsonPath::Parse(json_path).ok()) {
      errors->Invalid(at + ".JSONPath", Text(json_path), "is an invalid json path");
    }
  }
}

void CheckScalePath(const Json& scale, std::string_view field, std::string_view root,
                    const std::string& path, FieldErrors* errors) {
  const auto text = kube::FindString(scale, {field});
  const bool optional = field == "labelSelectorPath";
  const std::string at = path + "." + std::string(field);
  if (text.empty()) {
    if (!optional) {
      errors->Required(at);
    }
    return;
  }
  const auto parsed = JsonPath::Parse(text);
  const bool plain = text.front() == '.' && parsed.ok() && parsed->IsPlain();
  if (!plain) {
    errors->Invalid(at, Text(text), "must be a simple json path starting with .");
    return;
  }
  const bool under_spec = text.starts_with(".spec.");
  const bool under_status = text.starts_with(".status.");
  if (root == ".spec."     ? !under_spec
      : root == ".status." ? !under_status
                           : !(under_spec || under_status)) {
    errors->Invalid(at, Text(text),
                    root.empty() ? "should be a json path under either .status or .spec"
                                 : "should be a json path under " +
                                       std::string(root.substr(0, root.size() - 1)));
  }
}

void CheckSubresources(const Json& version, const std::string& path, FieldErrors* errors) {
  const Json* scale = kube::Find(version, {"subresources", "scale"});
  if (scale == nullptr || !scale->is_object()) {
    return;
  }
  const std::string at = path + ".scale";
  CheckScalePath(*scale, "specReplicasPath", ".spec.", at, errors);
  CheckScalePath(*scale, "statusReplicasPath", ".status.", at, errors);
  CheckScalePath(*scale, "labelSelectorPath", "", at, errors);
}

void CheckSelectableFields(const Json& version, const std::string& path, FieldErrors* errors) {
  constexpr std::size_t kFieldsMax = 8;
  const Json* list = kube::Find(version, {"selectableFields"});
  if (list == nullptr || !list->is_array()) {
    return;
  }
  const Json* schema = kube::Find(version, {"schema", "openAPIV3Schema"});
  std::set<std::string> seen;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "].jsonPath";
    const std::string text(kube::FindString((*list)[i], {"jsonPath"}));
    if (text.empty()) {
      errors->Required(at);
      continue;
    }
    if (!seen.insert(text).second) {
      errors->Duplicate(at, Json(text));
    }
    const auto parsed = JsonPath::Parse(text);
    const Json* node = schema;
    if (parsed.ok() && parsed->IsPlain()) {
      for (const auto& name : parsed->Names()) {
        node = node == nullptr ? nullptr : kube::Find(*node, {"properties", name});
      }
    }
    if (!parsed.ok() || !parsed->IsPlain() || node == nullptr) {
      errors->Invalid(at, Json(text), "is an invalid path: does not refer to a valid field");
      continue;
    }
    if (text.starts_with(".metadata")) {
      errors->Invalid(at, Json(text), "must not point to fields in metadata");
    }
    const auto type = kube::FindString(*node, {"type"});
    if (type != "string" && type != "integer" && type != "boolean") {
      errors->Invalid(
          at, Json(text),
          "must point to a field of type string, boolean or integer. Enum string fields "
          "and strings with formats are allowed.");
    }
  }
  if (list->size() > kFieldsMax) {
    errors->TooMany(path, static_cast<std::int64_t>(list->size()),
                    static_cast<std::int64_t>(kFieldsMax));
  }
}

// True when every version says the same for `field`: Kubernetes then speaks of one shared field.
bool IsShared(const Json& versions, std::initializer_list<std::string_view> field) {
  const Json* first = versions.empty() ? nullptr : kube::Find(versions[0], field);
  return first != nullptr && std::all_of(versions.begin(), versions.end(), [&](const Json& one) {
           const Json* other = kube::Find(one, field);
           return other != nullptr && *other == *first;
         });
}

void CheckSchemas(const Json& versions, FieldErrors* errors) {
  const bool shared = IsShared(versions, {"schema"});
  for (std::size_t i = 0; i < versions.size(); ++i) {
    const std::string at = "spec.versions[" + std::to_string(i) + "].schema.openAPIV3Schema";
    const Json* schema = kube::Find(versions[i], {"schema", "openAPIV3Schema"});
    if (schema == nullptr || schema->is_null()) {
      errors->Required(at);
    } else if (!shared || i == 0) {
      const std::string root = shared ? "spec.validation.openAPIV3Schema" : at;
      const auto type = kube::FindString(*schema, {"type"});
      if (kube::Find(versions[i], {"subresources", "status"}) != nullptr && !type.empty() &&
          type != "object") {
        errors->Invalid(root + ".type", Text(type),
                        "only \"object\" is allowed as the type at the root of the schema if the "
                        "status subresource is enabled");
      }
      ValidateStructuralSchema(*schema, shared ? "spec.validation.openAPIV3Schema" : at, errors);
    }
  }
}

void CheckVersions(const Json& object, FieldErrors* errors) {
  const Json& versions = VersionsOf(object);
  const bool columns_shared = IsShared(versions, {"additionalPrinterColumns"});
  const bool sub_shared = IsShared(versions, {"subresources"});
  const bool fields_shared = IsShared(versions, {"selectableFields"});
  std::set<std::string> names;
  std::size_t storage = 0;
  for (std::size_t i = 0; i < versions.size(); ++i) {
    const Json& version = versions[i];
    const std::string at = "spec.versions[" + std::to_string(i) + "]";
    const std::string name(kube::FindString(version, {"name"}));
    names.insert(name);
    storage += kube::FindBool(version, {"storage"}) ? 1 : 0;
    if (const auto problems = kube::IsDns1035Label(name); !problems.empty()) {
      errors->Invalid(at + ".name", Json(name), kube::Join(problems, ","));
      if (i == 0) {
        errors->Invalid(std::string("spec.version"), Json(name), kube::Join(problems, ","));
      }
    }
    const auto warning = kube::FindString(version, {"deprecationWarning"});
    if (!warning.empty() && !kube::FindBool(version, {"deprecated"})) {
      errors->Invalid(at + ".deprecationWarning", Text(warning),
                      "can only be set for deprecated versions");
    }
    if (i == 0 || !columns_shared) {
      CheckColumns(
          version,
          columns_shared ? "spec.additionalPrinterColumns" : at + ".additionalPrinterColumns",
          errors);
    }
    if (i == 0 || !sub_shared) {
      CheckSubresources(version, sub_shared ? "spec.subresources" : at + ".subresources", errors);
    }
    if (i == 0 || !fields_shared) {
      CheckSelectableFields(
          version, fields_shared ? "spec.selectableFields" : at + ".selectableFields", errors);
    }
  }
  if (names.size() != versions.size()) {
    errors->Invalid(std::string("spec.versions"), versions, "must contain unique version names");
  }
  if (storage != 1) {
    errors->Invalid(std::string("spec.versions"), versions,
                    "must have exactly one version marked as storage version");
  }
}

void CheckConversion(const Json& object, FieldErrors* errors) {
  const Json* conversion = kube::Find(object, {"spec", "conversion"});
  if (conversion == nullptr || !conversion->is_object()) {
    return;
  }
  const auto strategy = kube::FindString(*conversion, {"strategy"});
  const std::string path = "spec.conversion";
  if (strategy.empty()) {
    errors->Required(path + ".strategy");
  } else if (strategy != "None" && strategy != "Webhook") {
    errors->NotSupported(path + ".strategy", Text(strategy), {"None", "Webhook"});
  }
  const bool has_webhook = kube::Find(*conversion, {"webhook"}) != nullptr;
  if (strategy == "None" && has_webhook) {
    errors->Forbidden(path + ".webhookClientConfig",
                      "should not be set when strategy is not set to Webhook");
  }
  if (strategy == "Webhook" && kube::Find(*conversion, {"webhook", "clientConfig"}) == nullptr) {
    errors->Required(path + ".webhookClientConfig", "required when strategy is set to Webhook");
  }
}

void CheckStoredVersions(const Json& object, FieldErrors* errors) {
  const Json* stored = kube::Find(object, {"status", "storedVersions"});
  const std::string path = "status.storedVersions";
  if (stored == nullptr || !stored->is_array() || stored->empty()) {
    errors->Invalid(path, Json(), "must have at least one stored version");
    return;
  }
  for (const auto& version : VersionsOf(object)) {
    const std::string name(kube::FindString(version, {"name"}));
    if (kube::FindBool(version, {"storage"}) &&
        std::find(stored->begin(), stored->end(), Json(name)) == stored->end()) {
      errors->Invalid(path, *stored, "must have the storage version " + name);
    }
  }
  for (std::size_t i = 0; i < stored->size(); ++i) {
    const auto& versions = VersionsOf(object);
    const bool known = std::any_of(versions.begin(), versions.end(), [&](const Json& version) {
      return Text(kube::FindString(version, {"name"})) == (*stored)[i];
    });
    if (!known && (*stored)[i].is_string()) {
      const auto name = (*stored)[i].get<std::string>();
      errors->Invalid(path + "[" + std::to_string(i) + "]", (*stored)[i],
                      "missing from spec.versions; " + name +
                          " was previously a storage version, and must remain in spec.versions "
                          "until a storage migration ensures no data remains persisted in " +
                          name + " and removes " + name + " from status.storedVersions");
    }
  }
}

bool IsUrl(std::string_view text) {
  const auto scheme = text.find("://");
  return scheme != std::string_view::npos && scheme > 0 && text.size() > scheme + 3;
}

void CheckApprovalAnnotation(const Json& object, const Json* old, FieldErrors* errors) {
  if (!IsProtectedGroup(kube::FindString(object, {"spec", "group"}))) {
    return;
  }
  const auto value = kube::AnnotationOf(object, kApprovalAnnotation);
  if (old != nullptr && kube::AnnotationOf(*old, kApprovalAnnotation) == value) {
    return;
  }
  const std::string path = "metadata.annotations[" + std::string(kApprovalAnnotation) + "]";
  constexpr std::string_view kSee = ", see https://github.com/kubernetes/enhancements/pull/1111";
  const std::string must =
      "protected groups must have approval annotation \"" + std::string(kApprovalAnnotation) + "\"";
  if (value.empty()) {
    errors->Required(path, must + std::string(kSee));
  } else if (!value.starts_with("unapproved") && !IsUrl(value)) {
    errors->Invalid(
        path, Text(value),
        must + " with either a URL or a reason starting with \"unapproved\"" + std::string(kSee));
  }
}

void CheckSpec(const Json& object, const Json* old, FieldErrors* errors) {
  const std::string group(kube::FindString(object, {"spec", "group"}));
  if (group.empty()) {
    errors->Required(std::string("spec.group"));
  } else if (const auto problems = kube::IsDns1123Subdomain(group); !problems.empty()) {
    errors->Invalid(std::string("spec.group"), Json(group), kube::Join(problems, ","));
  } else if (group.find('.') == std::string::npos) {
    errors->Invalid(std::string("spec.group"), Json(group),
                    "should be a domain with at least one dot");
  }
  const auto scope = kube::FindString(object, {"spec", "scope"});
  if (scope.empty()) {
    errors->Required(std::string("spec.scope"));
  } else if (scope != "Cluster" && scope != "Namespaced") {
    errors->NotSupported(std::string("spec.scope"), Text(scope), {"Cluster", "Namespaced"});
  }
  CheckSchemas(VersionsOf(object), errors);
  CheckVersions(object, errors);
  const Json* names = kube::Find(object, {"spec", "names"});
  CheckNames(names != nullptr ? *names : Json::object(), errors);
  CheckConversion(object, errors);
  CheckStoredVersions(object, errors);
  CheckApprovalAnnotation(object, old, errors);
  if (kube::FindBool(object, {"spec", "preserveUnknownFields"})) {
    const Json& versions = VersionsOf(object);
    if (std::any_of(versions.begin(), versions.end(), [](const Json& version) {
          const Json* schema = kube::Find(version, {"schema", "openAPIV3Schema"});
          return schema != nullptr && HasDefaults(*schema);
        })) {
      errors->Invalid(std::string("spec.preserveUnknownFields"), Json(true),
                      "must be false in order to use defaults in the schema");
    }
    errors->Invalid(std::string("spec.preserveUnknownFields"), Json(true),
                    "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
                    "spec.versions[*].schema instead");
  }
}

void AddStoredVersion(Json* object) {
  Json& stored = kube::EnsureArray(&kube::EnsureObject(object, "status"), "storedVersions");
  for (const auto& version : VersionsOf(*object)) {
    const Json name = Text(kube::FindString(version, {"name"}));
    if (kube::FindBool(version, {"storage"}) &&
        std::find(stored.begin(), stored.end(), name) == stored.end()) {
      stored.push_back(name);
    }
  }
}

bool HasRules(const Json& schema) {
  if (schema.is_object()) {
    const auto it = schema.find("x-kubernetes-validations");
    if (it != schema.end() && it->is_array() && !it->empty()) {
      return true;
    }
  }
  return schema.is_structured() && std::any_of(schema.begin(), schema.end(), HasRules);
}

}  // namespace

void DefinitionStrategy::Default(Json* object) const {
  Json* spec = kube::Find(*object, {"spec"});
  if (spec == nullptr || !spec->is_object()) {
    return;
  }
  if (Json* names = kube::Find(*spec, {"names"}); names != nullptr && names->is_object()) {
    const std::string kind(kube::FindString(*names, {"kind"}));
    if (kube::FindString(*names, {"singular"}).empty() && !kind.empty()) {
      (*names)["singular"] = Lower(kind);
    }
    if (kube::FindString(*names, {"listKind"}).empty() && !kind.empty()) {
      (*names)["listKind"] = kind + "List";
    }
  }
  Json& conversion = kube::EnsureObject(spec, "conversion");
  if (kube::FindString(conversion, {"strategy"}).empty()) {
    conversion["strategy"] = "None";
  }
  if (Json* service = kube::Find(conversion, {"webhook", "clientConfig", "service"});
      service != nullptr && service->is_object() && !service->contains("port")) {
    (*service)["port"] = 443;
  }
}

void DefinitionStrategy::PrepareCreate(const kube::WriteContext&, Json* object) const {
  (*object)["status"] = {{"conditions", nullptr},
                         {"acceptedNames", {{"plural", ""}, {"kind", ""}}},
                         {"storedVersions", Json::array()}};
  AddStoredVersion(object);
}

void DefinitionStrategy::PrepareUpdate(const kube::WriteContext&, const Json&, Json* object) const {
  AddStoredVersion(object);
}

void DefinitionStrategy::ValidateCreate(const Json& object, FieldErrors* errors) const {
  const std::string name(kube::NameOf(object));
  const std::string wanted = std::string(kube::FindString(object, {"spec", "names", "plural"})) +
                             "." + std::string(kube::FindString(object, {"spec", "group"}));
  if (name != wanted) {
    errors->Invalid(std::string("metadata.name"), Json(name),
                    "must be spec.names.plural+\".\"+spec.group");
  }
  CheckSpec(object, nullptr, errors);
}

void DefinitionStrategy::ValidateUpdate(const Json& object, const Json& old,
                                        FieldErrors* errors) const {
  CheckSpec(object, &old, errors);
  const auto immutable = [&](std::initializer_list<std::string_view> path,
                             const std::string& text) {
    const Json* before = kube::Find(old, path);
    const Json* after = kube::Find(object, path);
    if (before != nullptr && (after == nullptr || *after != *before)) {
      errors->Invalid(text, after != nullptr ? *after : Json(), "field is immutable");
    }
  };
  immutable({"spec", "group"}, "spec.group");
  if (kube::IsConditionTrue(old, "Established")) {
    immutable({"spec", "scope"}, "spec.scope");
    immutable({"spec", "names", "kind"}, "spec.names.kind");
  }
  immutable({"spec", "names", "plural"}, "spec.names.plural");
}

// Differs: rules and conversion webhooks are stored and shown but not run; whoever writes them is
// told so.
void DefinitionStrategy::Warn(const Json& object, const Json*,
                              std::vector<std::string>* warnings) const {
  bool rules = false;
  for (const auto& version : VersionsOf(object)) {
    const Json* schema = kube::Find(version, {"schema", "openAPIV3Schema"});
    rules = rules || (schema != nullptr && HasRules(*schema));
  }
  if (rules) {
    warnings->push_back(
        "x-kubernetes-validations rules are accepted but not yet enforced by this server");
  }
  if (kube::FindString(object, {"spec", "conversion", "strategy"}) == "Webhook") {
    warnings->push_back(
        "spec.conversion.webhook is accepted but conversion webhooks are not yet called by this "
        "server: versions differ in apiVersion only");
  }
}

}  // namespace sublet::apiserver
