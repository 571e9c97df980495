#include "apiserver/registry/catalog.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

namespace sublet::apiserver {
namespace {

struct VersionParts {
  bool is_kube = false;  // v<major>[alpha|beta<minor>]
  int stage = 2;         // 2 GA, 1 beta, 0 alpha
  int major = 0;
  int minor = 0;
};

VersionParts ParseVersion(std::string_view text) {
  VersionParts parts;
  if (text.size() < 2 || text[0] != 'v') {
    return parts;
  }
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size();
  auto result = std::from_chars(at, end, parts.major);
  if (result.ec != std::errc() || parts.major == 0) {
    return parts;
  }
  std::string_view rest(result.ptr, static_cast<std::size_t>(end - result.ptr));
  if (rest.empty()) {
    parts.is_kube = true;
    return parts;
  }
  if (rest.starts_with("alpha")) {
    parts.stage = 0;
    rest.remove_prefix(5);
  } else if (rest.starts_with("beta")) {
    parts.stage = 1;
    rest.remove_prefix(4);
  } else {
    return parts;
  }
  result = std::from_chars(rest.data(), end, parts.minor);
  parts.is_kube = result.ec == std::errc() && result.ptr == end && parts.minor > 0;
  return parts;
}

std::string PathKey(std::string_view group, std::string_view version, std::string_view resource) {
  std::string key;
  key.reserve(group.size() + version.size() + resource.size() + 2);
  key += group;
  key += '/';
  key += version;
  key += '/';
  key += resource;
  return key;
}

}  // namespace

bool VersionComesBefore(std::string_view a, std::string_view b) {
  const VersionParts left = ParseVersion(a);
  const VersionParts right = ParseVersion(b);
  if (left.is_kube != right.is_kube) {
    return left.is_kube;
  }
  if (!left.is_kube) {
    return a < b;
  }
  return std::tie(left.stage, left.major, left.minor) >
         std::tie(right.stage, right.major, right.minor);
}

Catalog::Catalog(std::vector<ResourcePtr> resources, std::uint64_t generation)
    : resources_(std::move(resources)), generation_(generation) {
  for (const auto& resource : resources_) {
    by_path_.emplace(PathKey(resource->group(), resource->version(), resource->plural()),
                     resource.get());
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const GroupEntry& entry) {
      return entry.group == resource->group();
    });
    if (group == groups_.end()) {
      groups_.push_back({resource->group(), {}, true});
      group = groups_.end() - 1;
    }
    if (resource->type == nullptr || !resource->type->is_custom) {
      group->is_custom = false;
    }
    auto& versions = group->versions;
    if (std::find(versions.begin(), versions.end(), resource->version()) == versions.end()) {
      versions.push_back(resource->version());
    }
  }
  for (auto& group : groups_) {
    std::stable_sort(group.versions.begin(), group.versions.end(), VersionComesBefore);
  }
}

const Resource* Catalog::Find(std::string_view group, std::string_view version,
                              std::string_view resource) const {
  const auto it = by_path_.find(PathKey(group, version, resource));
  return it == by_path_.end() ? nullptr : it->second;
}

const Resource* Catalog::FindAnyVersion(std::string_view group, std::string_view resource) const {
  if (const GroupEntry* entry = FindGroup(group)) {
    for (const auto& version : entry->versions) {
      if (const Resource* found = Find(group, version, resource)) {
        return found;
      }
    }
  }
  return nullptr;
}

const Resource* Catalog::FindKind(std::string_view group, std::string_view version,
                                  std::string_view kind) const {
  for (const auto& resource : resources_) {
    if (resource->kind_name() == kind && resource->group() == group &&
        resource->version() == version) {
      return resource.get();
    }
  }
  return nullptr;
}

const GroupEntry* Catalog::FindGroup(std::string_view group) const {
  for (const auto& entry : groups_) {
    if (entry.group == group) {
      return &entry;
    }
  }
  return nullptr;
}

bool Catalog::HasGroupVersion(std::string_view group, std::string_view version) const {
  const GroupEntry* entry = FindGroup(group);
  return entry != nullptr && std::find(entry->versions.begin(), entry->versions.end(), version) !=
                                 entry->versions.end();
}

std::vector<ResourcePtr> Catalog::ResourcesOf(std::string_view group,
                                              std::string_view version) const {
  std::vector<ResourcePtr> found;
  for (const auto& resource : resources_) {
    if (resource->group() == group && resource->version() == version) {
      found.push_back(resource);
    }
  }
  return found;
}

std::vector<ResourcePtr> Catalog::StoredResources() const {
  std::vector<ResourcePtr> found;
  std::set<std::string_view> seen;
  for (const auto& resource : resources_) {
    if (resource->type != nullptr && seen.insert(resource->type->prefix).second) {
      found.push_back(resource);
    }
  }
  return found;
}

CatalogHolder::CatalogHolder(std::vector<ResourcePtr> builtin)
    : builtin_(builtin), current_(std::make_shared<const Catalog>(std::move(builtin), 1)) {}

void CatalogHolder::SetCustom(const std::string& crd, std::vector<ResourcePtr> resources) {
  MutexLock lock(mutex_);
  if (resources.empty()) {
    if (custom_.erase(crd) == 0) {
      return;
    }
  } else {
    custom_[crd] = std::move(resources);
  }
  std::vector<ResourcePtr> all = builtin_;
  // CRD groups stand after the built-in ones, by name, as Kubernetes orders them.
  std::vector<ResourcePtr> custom;
  for (const auto& [name, list] : custom_) {
    custom.insert(custom.end(), list.begin(), list.end());
  }
  std::stable_sort(custom.begin(), custom.end(), [](const ResourcePtr& a, const ResourcePtr& b) {
    return a->group() < b->group();
  });
  all.insert(all.end(), custom.begin(), custom.end());
  current_.Store(std::make_shared<const Catalog>(std::move(all), ++generation_));
}

}  // namespace sublet::apiserver
