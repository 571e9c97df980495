#include "apiserver/crd/definition.h"

#include <openssl/sha.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/crd/custom_strategy.h"
#include "apiserver/registry/builtin.h"
#include "apiserver/registry/catalog.h"
#include "kube/base64.h"
#include "kube/object.h"
#include "kube/schema/builder.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

std::vector<std::string> Texts(const Json& value, std::initializer_list<std::string_view> path) {
  std::vector<std::string> out;
  if (const Json* list = kube::Find(value, path); list != nullptr && list->is_array()) {
    for (const auto& item : *list) {
      if (item.is_string()) {
        out.push_back(item.get<std::string>());
      }
    }
  }
  return out;
}

// The first eight bytes of SHA-256 over "group/version/Kind", as discovery shows them.
std::string StorageVersionHash(const kube::GroupVersionKind& kind) {
  const std::string text = kind.group + "/" + kind.version + "/" + kind.kind;
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return kube::EncodeBase64({reinterpret_cast<const char*>(digest), 8});
}

std::vector<std::string> PathNames(const Json& version, std::string_view field) {
  const auto text = kube::FindString(version, {"subresources", "scale", field});
  if (text.empty()) {
    return {};
  }
  const auto path = JsonPath::Parse(text);
  return path.ok() ? path->Names() : std::vector<std::string>();
}

std::vector<PrinterColumn> ColumnsOf(const Json& version) {
  std::vector<PrinterColumn> columns;
  const Json* list = kube::Find(version, {"additionalPrinterColumns"});
  if (list != nullptr && list->is_array()) {
    for (const auto& item : *list) {
      const std::string path_text(kube::FindString(item, {"jsonPath"}));
      auto path = JsonPath::Parse(path_text);
      if (!path.ok()) {
        continue;
      }
      std::string description(kube::FindString(item, {"description"}));
      if (description.empty()) {
        description = "Custom resource definition column (in JSONPath format): " + path_text;
      }
      columns.push_back({{std::string(kube::FindString(item, {"name"})),
                          std::string(kube::FindString(item, {"type"})),
                          std::string(kube::FindString(item, {"format"})), std::move(description),
                          static_cast<int>(kube::FindInt(item, {"priority"}))},
                         std::move(*path)});
    }
  }
  if (columns.empty()) {
    auto path = JsonPath::Parse(".metadata.creationTimestamp");
    columns.push_back({{"Age", "date", "",
                        "Custom resource definition column (in JSONPath format): "
                        ".metadata.creationTimestamp",
                        0},
                       std::move(*path)});
  }
  return columns;
}

void AddSubresources(const Json& version, kube::Kind& kind, CustomStrategyData& data) {
  const Json* subresources = kube::Find(version, {"subresources"});
  if (subresources == nullptr || !subresources->is_object()) {
    return;
  }
  if (subresources->contains("status")) {
    kind.has_status = true;
    kind.subresources.push_back({"status", kind.gvk, {"get", "patch", "update"}});
  }
  if (const Json* scale = kube::Find(*subresources, {"scale"});
      scale != nullptr && scale->is_object()) {
    kind.subresources.push_back(
        {"scale", {"autoscaling", "v1", "Scale"}, {"get", "patch", "update"}});
    kube::ScalePaths paths;
    paths.spec_replicas = PathNames(version, "specReplicasPath");
    paths.status_replicas = PathNames(version, "statusReplicasPath");
    paths.selector = PathNames(version, "labelSelectorPath");
    kind.scale = paths;
    data.has_scale = true;
    data.scale = std::move(paths);
  }
}

std::shared_ptr<kube::Kind> MakeKind(const Json& definition, const Json& version) {
  auto kind = std::make_shared<kube::Kind>();
  const Json* accepted = kube::Find(definition, {"status", "acceptedNames"});
  const Json& names = accepted != nullptr && !kube::FindString(*accepted, {"plural"}).empty()
                          ? *accepted
                          : *kube::Find(definition, {"spec", "names"});
  const std::string group(kube::FindString(definition, {"spec", "group"}));
  kind->gvk = {group, std::string(kube::FindString(version, {"name"})),
               std::string(kube::FindString(names, {"kind"}))};
  kind->list_kind = kube::FindString(names, {"listKind"});
  kind->resource = kube::FindString(names, {"plural"});
  kind->singular = kube::FindString(names, {"singular"});
  kind->short_names = Texts(names, {"shortNames"});
  kind->categories = Texts(names, {"categories"});
  kind->namespaced = kube::FindString(definition, {"spec", "scope"}) == "Namespaced";
  kind->verbs = {"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"};
  kind->storage = {group, kind->resource};
  kind->is_custom = true;
  kind->has_generation = true;
  kind->allow_unconditional_update = false;
  return kind;
}

std::string FnvText(const std::string& text) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  return std::to_string(hash);
}

}  // namespace

bool IsProtectedGroup(std::string_view group) {
  return group == "k8s.io" || group == "kubernetes.io" || group.ends_with(".k8s.io") ||
         group.ends_with(".kubernetes.io");
}

bool HasDefaults(const Json& schema) {
  if (!schema.is_object()) {
    return false;
  }
  if (schema.contains("default")) {
    return true;
  }
  for (const char* word : {"properties", "items", "additionalProperties"}) {
    const auto it = schema.find(word);
    if (it == schema.end()) {
      continue;
    }
    const bool named = std::string_view(word) == "properties" && it->is_object();
    if (named ? std::any_of(it->begin(), it->end(), HasDefaults) : HasDefaults(*it)) {
      return true;
    }
  }
  return false;
}

std::string DeprecationWarning(const Json& version, std::string_view group, std::string_view kind) {
  if (!kube::FindBool(version, {"deprecated"})) {
    return "";
  }
  if (const auto text = kube::FindString(version, {"deprecationWarning"}); !text.empty()) {
    return std::string(text);
  }
  return std::string(group) + "/" + std::string(kube::FindString(version, {"name"})) + " " +
         std::string(kind) + " is deprecated";
}

Result<std::vector<ResourcePtr>> MakeCustomResources(const Json& definition,
                                                     std::uint32_t schema_id) {
  std::vector<ResourcePtr> resources;
  const Json* versions = kube::Find(definition, {"spec", "versions"});
  if (versions == nullptr || !versions->is_array()) {
    return resources;
  }
  std::string storage_version;
  for (const auto& version : *versions) {
    if (kube::FindBool(version, {"storage"})) {
      storage_version = kube::FindString(version, {"name"});
    }
  }
  for (const auto& version : *versions) {
    if (!kube::FindBool(version, {"served"})) {
      continue;
    }
    auto kind = MakeKind(definition, version);
    kind->stored_as = {kind->gvk.group, storage_version, kind->gvk.kind};
    kind->storage_version_hash = StorageVersionHash(kind->stored_as);
    const Json* schema = kube::Find(version, {"schema", "openAPIV3Schema"});
    SUBLET_TRY(auto owned, kube::schema::CompileCrdSchema(schema));
    kind->type = owned->root();
    kind->type_owner = owned;
    CustomStrategyData data;
    data.type = kind->type;
    if (schema != nullptr) {
      SUBLET_TRY(data.validator, SchemaValidator::Compile(*schema));
    }
    data.columns = ColumnsOf(version);
    AddSubresources(version, *kind, data);
    if (const Json* list = kube::Find(version, {"selectableFields"});
        list != nullptr && list->is_array()) {
      for (const auto& item : *list) {
        std::string_view path = kube::FindString(item, {"jsonPath"});
        data.selectable.emplace_back(path.starts_with('.') ? path.substr(1) : path);
      }
    }
    auto version_type = std::make_shared<StoredType>();
    version_type->fields = data.selectable;
    kind->strategy = std::make_shared<const CustomStrategy>(std::move(data));
    version_type->name = kind->storage;
    version_type->storage_group = kind->gvk.group;
    version_type->storage_version = storage_version;
    version_type->kind = kind->gvk.kind;
    version_type->namespaced = kind->namespaced;
    version_type->prefix = StoragePrefix(kind->storage);
    version_type->schema_id = schema_id;
    version_type->is_custom = true;
    const std::string group = kind->gvk.group;
    const std::string kind_name = kind->gvk.kind;
    auto resource = std::make_shared<Resource>(std::move(kind));
    resource->type = std::move(version_type);
    resource->crd = std::string(kube::NameOf(definition));
    resource->defaults_on_read = schema != nullptr && HasDefaults(*schema);
    resource->deprecation_warning = DeprecationWarning(version, group, kind_name);
    resource->schema_hash = FnvText(kube::Dump(version));
    resources.push_back(std::move(resource));
  }
  std::stable_sort(resources.begin(), resources.end(),
                   [](const ResourcePtr& a, const ResourcePtr& b) {
                     return VersionComesBefore(a->version(), b->version());
                   });
  return resources;
}

}  // namespace sublet::apiserver
