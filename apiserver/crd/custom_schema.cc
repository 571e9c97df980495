// The schema of a custom resource as OpenAPI documents show it, made from the stored definition
// when asked for: no tree of it outlives the answer.
#include <nlohmann/json.hpp>

#include "apiserver/openapi/open_api.h"
#include "apiserver/registry/builtin.h"
#include "apiserver/registry/object_codec.h"

namespace sublet::apiserver {
namespace {

// What OpenAPI v2 cannot say, or says otherwise. Source: k8s.io/apiextensions-apiserver
// pkg/controller/openapi/v2.
void StripForV2(kube::Json& schema) {
  if (!schema.is_object()) {
    return;
  }
  for (const char* field :
       {"oneOf", "anyOf", "not", "nullable", "x-kubernetes-validations", "allOf"}) {
    schema.erase(field);
  }
  const bool preserve = kube::FindBool(schema, {"x-kubernetes-preserve-unknown-fields"}) ||
                        kube::FindBool(schema, {"x-kubernetes-int-or-string"});
  if (preserve) {
    schema.erase("items");
    schema.erase("properties");
    if (kube::FindBool(schema, {"x-kubernetes-int-or-string"})) {
      schema.erase("type");
    }
  }
  for (const char* field : {"properties", "patternProperties"}) {
    if (kube::Json* map = kube::Find(schema, {field}); map != nullptr && map->is_object()) {
      for (auto& item : *map) {
        StripForV2(item);
      }
    }
  }
  for (const char* field : {"items", "additionalProperties"}) {
    if (kube::Json* item = kube::Find(schema, {field})) {
      StripForV2(*item);
    }
  }
}

kube::Json SchemaOfVersion(const kube::Json& definition, std::string_view version) {
  const kube::Json* versions = kube::Find(definition, {"spec", "versions"});
  if (versions != nullptr && versions->is_array()) {
    for (const auto& item : *versions) {
      if (kube::FindString(item, {"name"}) == version) {
        const kube::Json* schema = kube::Find(item, {"schema", "openAPIV3Schema"});
        return schema != nullptr ? *schema : kube::Json::object();
      }
    }
  }
  return kube::Json::object();
}

}  // namespace

std::string CustomSchemaText(const Resource& resource, const ApiContext& context,
                             SpecVersion version, std::string_view metadata_ref) {
  kube::Json schema = kube::Json::object();
  const auto record = context.store->Get(
      StoragePrefix({"apiextensions.k8s.io", "customresourcedefinitions"}) + resource.crd);
  if (record) {
    schema = SchemaOfVersion(ParseStored(*record->value), resource.version());
  }
  const bool preserve_root = kube::FindBool(schema, {"x-kubernetes-preserve-unknown-fields"});
  if (version == SpecVersion::kV2) {
    if (preserve_root) {
      schema = {{"type", "object"}};
    } else {
      StripForV2(schema);
    }
  }
  schema["type"] = "object";
  if (!(version == SpecVersion::kV2 && preserve_root)) {
    auto& properties = schema["properties"];
    properties["apiVersion"] = {
        {"type", "string"},
        {"description",
         "APIVersion defines in which version of its schema the object is written."}};
    properties["kind"] = {{"type", "string"},
                          {"description", "Kind names the schema of the object."}};
    if (auto ref = kube::ParseJson(metadata_ref); ref.ok()) {
      properties["metadata"] = version == SpecVersion::kV3
                                   ? kube::Json{{"allOf", kube::Json::array({std::move(*ref)})}}
                                   : std::move(*ref);
      properties["metadata"]["description"] =
          "Standard object's metadata: name, labels and what the server keeps.";
    }
  }
  schema["x-kubernetes-group-version-kind"] =
      kube::Json::array({{{"group", resource.group()},
                          {"kind", resource.kind_name()},
                          {"version", resource.version()}}});
  return kube::Dump(schema);
}

}  // namespace sublet::apiserver
