// Catalog: all resources the server serves at one moment. A new one is made when a CRD comes, goes
// or changes; readers keep the one they started with.
// Threads: a Catalog is immutable; CatalogHolder from any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/registry/resource.h"
#include "base/mutex.h"
#include "base/shared_slot.h"

namespace sublet::apiserver {

struct GroupEntry {
  std::string group;
  // Preferred first.
  std::vector<std::string> versions;
  bool is_custom = false;  // all of its resources come from CRDs
};

class Catalog {
 public:
  // `resources` in discovery order. Groups appear in the order of their first resource, core first.
  explicit Catalog(std::vector<ResourcePtr> resources, std::uint64_t generation);

  // nullptr when not served.
  const Resource* Find(std::string_view group, std::string_view version,
                       std::string_view resource) const;
  // Any served version of group/resource, the preferred one first. nullptr when none.
  const Resource* FindAnyVersion(std::string_view group, std::string_view resource) const;
  const Resource* FindKind(std::string_view group, std::string_view version,
                           std::string_view kind) const;
  bool HasGroupVersion(std::string_view group, std::string_view version) const;
  const GroupEntry* FindGroup(std::string_view group) const;

  const std::vector<ResourcePtr>& resources() const { return resources_; }
  const std::vector<GroupEntry>& groups() const { return groups_; }
  // The resources of one group version, in order.
  std::vector<ResourcePtr> ResourcesOf(std::string_view group, std::string_view version) const;
  // Grows with every change; keys caches of discovery and OpenAPI.
  std::uint64_t generation() const { return generation_; }
  // One resource per stored type, for walks over all objects.
  std::vector<ResourcePtr> StoredResources() const;

 private:
  std::vector<ResourcePtr> resources_;
  std::vector<GroupEntry> groups_;
  std::map<std::string, const Resource*, std::less<>> by_path_;  // "group/version/resource"
  std::uint64_t generation_;
};
using CatalogPtr = std::shared_ptr<const Catalog>;

class CatalogHolder {
 public:
  explicit CatalogHolder(std::vector<ResourcePtr> builtin);

  CatalogPtr Get() const { return current_.Load(); }

  // Replaces the resources that the custom resource definition `crd` ("foos.example.com") serves;
  // an empty list removes them.
  void SetCustom(const std::string& crd, std::vector<ResourcePtr> resources)
      SUBLET_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  const std::vector<ResourcePtr> builtin_;
  std::map<std::string, std::vector<ResourcePtr>> custom_ SUBLET_GUARDED_BY(mutex_);
  std::uint64_t generation_ SUBLET_GUARDED_BY(mutex_) = 1;
  SharedSlot<const Catalog> current_;
};

// Kubernetes' order of version names: v2 before v1 before v1beta2 before v1alpha1, others last by
// name. True when a comes before b.
bool VersionComesBefore(std::string_view a, std::string_view b);

}  // namespace sublet::apiserver
