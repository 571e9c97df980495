#include "apiserver/registry/builtin.h"

#include <algorithm>
#include <array>
#include <map>

#include "apiserver/crd/definition_strategy.h"
#include "apiserver/registry/object_codec.h"
#include "kube/kinds/registry.h"

namespace sublet::apiserver {
namespace {

// How long an Event lives. Source: kube-apiserver --event-ttl.
constexpr std::int64_t kEventTtlSeconds = 3600;

struct TypeRule {
  std::string_view group;
  std::string_view resource;
};

// DELETE of these answers with the object instead of a Status. Source: ReturnDeletedObject in
// k8s.io/kubernetes pkg/registry.
constexpr TypeRule kReturnsDeleted[] = {
    {"", "namespaces"},
    {"", "persistentvolumeclaims"},
    {"", "persistentvolumes"},
    {"", "pods"},
    {"", "podtemplates"},
    {"", "resourcequotas"},
    {"", "serviceaccounts"},
    {"", "services"},
    {"resource.k8s.io", "deviceclasses"},
    {"resource.k8s.io", "resourceclaims"},
    {"resource.k8s.io", "resourceclaimtemplates"},
    {"resource.k8s.io", "resourceslices"},
    {"storage.k8s.io", "csidrivers"},
    {"storage.k8s.io", "csinodes"},
    {"storage.k8s.io", "storageclasses"},
    {"storage.k8s.io", "volumeattachments"},
    {"storage.k8s.io", "volumeattributesclasses"},
};

bool Returns(const kube::Kind& kind) {
  return std::any_of(std::begin(kReturnsDeleted), std::end(kReturnsDeleted),
                     [&](const TypeRule& rule) {
                       return rule.group == kind.gvk.group && rule.resource == kind.resource;
                     });
}

std::shared_ptr<const StoredType> MakeType(const kube::Kind& kind) {
  auto type = std::make_shared<StoredType>();
  type->name = kind.storage;
  type->storage_group = kind.stored_as.group;
  type->storage_version = kind.stored_as.version;
  type->kind = kind.stored_as.kind;
  type->namespaced = kind.namespaced;
  type->prefix = StoragePrefix(kind.storage);
  // Field values are those of the stored version.
  const auto stored =
      kube::FindBuiltinKind(kind.stored_as.group, kind.stored_as.version, kind.stored_as.kind);
  type->strategy = stored->strategy;
  for (const auto field : stored->strategy->SelectableFields()) {
    type->fields.emplace_back(field);
  }
  if (kind.storage.group.empty() && kind.storage.resource == "events") {
    type->ttl_seconds = kEventTtlSeconds;
    type->short_history = true;
  }
  if (kind.storage.group == "coordination.k8s.io" && kind.storage.resource == "leases") {
    type->short_history = true;
  }
  return type;
}

}  // namespace

std::string StoragePrefix(const kube::GroupResource& name) {
  return "/registry/" + (name.group.empty() ? std::string("core") : name.group) + "/" +
         name.resource + "/";
}

std::vector<ResourcePtr> BuiltinResources() {
  std::vector<ResourcePtr> resources;
  std::map<kube::GroupResource, std::shared_ptr<const StoredType>> types;
  for (const auto& builtin : kube::BuiltinKinds()) {
    kube::KindPtr kind = builtin;
    if (kind->gvk.group == "apiextensions.k8s.io") {
      // The definition kind's own logic stands here, because only the API server knows it.
      auto copy = std::make_shared<kube::Kind>(*builtin);
      copy->strategy = std::make_shared<const DefinitionStrategy>();
      kind = std::move(copy);
    }
    auto resource = std::make_shared<Resource>(kind);
    if (kind->has_metadata) {
      auto& type = types[kind->storage];
      if (type == nullptr) {
        type = MakeType(*kind);
      }
      resource->type = type;
    }
    resource->graceful_delete = kind->gvk.group.empty() && kind->resource == "pods";
    resource->returns_deleted_object = Returns(*kind);
    if (resource->Is("", "endpoints")) {
      resource->deprecation_warning =
          "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
    } else if (resource->Is("", "componentstatuses")) {
      resource->deprecation_warning = "v1 ComponentStatus is deprecated in v1.19+";
    }
    resources.push_back(std::move(resource));
  }
  return resources;
}

std::function<std::shared_ptr<const storage::Attachment>(std::string_view, std::string_view)>
MakeAttachmentFactory(const std::vector<ResourcePtr>& builtin) {
  auto types =
      std::make_shared<std::map<std::string, std::shared_ptr<const StoredType>, std::less<>>>();
  for (const auto& resource : builtin) {
    if (resource->type != nullptr) {
      types->emplace(resource->type->prefix, resource->type);
    }
  }
  return [types](std::string_view key, std::string_view bytes) {
    // "/registry/<group>/<resource>/": the fourth slash ends the prefix.
    std::size_t end = 0;
    for (int i = 0; i < 4 && end != std::string_view::npos; ++i) {
      end = key.find('/', i == 0 ? 0 : end + 1);
    }
    const StoredType* type = nullptr;
    if (end != std::string_view::npos) {
      if (const auto it = types->find(key.substr(0, end + 1)); it != types->end()) {
        type = it->second.get();
      }
    }
    return std::static_pointer_cast<const storage::Attachment>(ScanFacts(bytes, type));
  };
}

}  // namespace sublet::apiserver
