#include "apiserver/discovery/documents.h"

#include <nlohmann/json.hpp>

namespace sublet::apiserver {
namespace {

kube::Json GroupVersionEntry(std::string_view group, std::string_view version) {
  const kube::GroupVersion name{std::string(group), std::string(version)};
  return {{"groupVersion", name.ApiVersion()}, {"version", name.version}};
}

kube::Json ResourceEntry(const Resource& resource) {
  const kube::Kind& kind = *resource.kind;
  kube::Json entry = {{"name", kind.resource},
                      {"singularName", kind.singular},
                      {"namespaced", kind.namespaced},
                      {"kind", kind.gvk.kind},
                      {"verbs", kind.verbs}};
  if (!kind.short_names.empty()) {
    entry["shortNames"] = kind.short_names;
  }
  if (!kind.categories.empty()) {
    entry["categories"] = kind.categories;
  }
  if (!kind.storage_version_hash.empty()) {
    entry["storageVersionHash"] = kind.storage_version_hash;
  }
  return entry;
}

kube::Json SubresourceEntry(const Resource& resource, const kube::Subresource& sub) {
  const kube::Kind& kind = *resource.kind;
  kube::Json entry = {{"name", kind.resource + "/" + sub.name},
                      {"singularName", ""},
                      {"namespaced", kind.namespaced},
                      {"kind", sub.kind.kind},
                      {"verbs", sub.verbs}};
  if (sub.kind.group != kind.gvk.group || sub.kind.version != kind.gvk.version) {
    if (!sub.kind.group.empty()) {
      entry["group"] = sub.kind.group;
    }
    entry["version"] = sub.kind.version;
  }
  return entry;
}

kube::Json ResponseKind(const kube::GroupVersionKind& kind) {
  return {{"group", kind.group}, {"version", kind.version}, {"kind", kind.kind}};
}

kube::Json AggregatedResource(const Resource& resource) {
  const kube::Kind& kind = *resource.kind;
  kube::Json entry = {{"resource", kind.resource},
                      {"responseKind", ResponseKind(kind.gvk)},
                      {"scope", kind.namespaced ? "Namespaced" : "Cluster"},
                      {"singularResource", kind.singular},
                      {"verbs", kind.verbs}};
  if (!kind.short_names.empty()) {
    entry["shortNames"] = kind.short_names;
  }
  if (!kind.categories.empty()) {
    entry["categories"] = kind.categories;
  }
  for (const auto& sub : kind.subresources) {
    entry["subresources"].push_back({{"subresource", sub.name},
                                     {"responseKind", ResponseKind(sub.kind)},
                                     {"verbs", sub.verbs}});
  }
  return entry;
}

}  // namespace

kube::Json ApiVersionsDocument(std::string_view server_address) {
  return {{"kind", "APIVersions"},
          {"versions", {"v1"}},
          {"serverAddressByClientCIDRs",
           {{{"clientCIDR", "0.0.0.0/0"}, {"serverAddress", std::string(server_address)}}}}};
}

kube::Json ApiGroupDocument(const GroupEntry& group, bool is_standalone) {
  kube::Json document = {{"name", group.group}, {"versions", kube::Json::array()}};
  for (const auto& version : group.versions) {
    document["versions"].push_back(GroupVersionEntry(group.group, version));
  }
  document["preferredVersion"] = GroupVersionEntry(group.group, group.versions.front());
  if (is_standalone) {
    document["kind"] = "APIGroup";
    document["apiVersion"] = "v1";
  }
  return document;
}

kube::Json ApiGroupListDocument(const Catalog& catalog) {
  kube::Json groups = kube::Json::array();
  for (const auto& group : catalog.groups()) {
    if (!group.group.empty()) {
      groups.push_back(ApiGroupDocument(group, false));
    }
  }
  return {{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", std::move(groups)}};
}

kube::Json ApiResourceListDocument(const Catalog& catalog, std::string_view group,
                                   std::string_view version) {
  kube::Json resources = kube::Json::array();
  for (const auto& resource : catalog.ResourcesOf(group, version)) {
    resources.push_back(ResourceEntry(*resource));
    for (const auto& sub : resource->kind->subresources) {
      resources.push_back(SubresourceEntry(*resource, sub));
    }
  }
  const kube::GroupVersion name{std::string(group), std::string(version)};
  kube::Json document = {{"kind", "APIResourceList"},
                         {"groupVersion", name.ApiVersion()},
                         {"resources", std::move(resources)}};
  if (!group.empty()) {
    document["apiVersion"] = "v1";
  }
  return document;
}

kube::Json AggregatedDocument(const Catalog& catalog, bool core, std::string_view version) {
  kube::Json items = kube::Json::array();
  for (const auto& group : catalog.groups()) {
    if (group.group.empty() != core) {
      continue;
    }
    kube::Json versions = kube::Json::array();
    for (const auto& name : group.versions) {
      kube::Json resources = kube::Json::array();
      for (const auto& resource : catalog.ResourcesOf(group.group, name)) {
        resources.push_back(AggregatedResource(*resource));
      }
      versions.push_back(
          {{"version", name}, {"resources", std::move(resources)}, {"freshness", "Current"}});
    }
    kube::Json metadata = {{"creationTimestamp", nullptr}};
    if (!group.group.empty()) {
      metadata["name"] = group.group;
    }
    items.push_back({{"metadata", std::move(metadata)}, {"versions", std::move(versions)}});
  }
  return {{"kind", "APIGroupDiscoveryList"},
          {"apiVersion", "apidiscovery.k8s.io/" + std::string(version)},
          {"metadata", kube::Json::object()},
          {"items", std::move(items)}};
}

}  // namespace sublet::apiserver
