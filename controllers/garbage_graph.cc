#include "controllers/garbage_graph.h"

#include <algorithm>

namespace sublet::controllers {
namespace {

constexpr std::size_t kSeenMax = 1024;

std::string Identity(const DiscoveredResource& resource, const std::string& namespace_name,
                     const std::string& name) {
  return resource.resource.group + "/" + resource.resource.resource + "/" + namespace_name + "/" +
         name;
}

bool Has(const client::CachedObject& object, std::string_view finalizer) {
  return std::find(object.finalizers.begin(), object.finalizers.end(), finalizer) !=
         object.finalizers.end();
}

}  // namespace

bool GarbageGraph::Matters(const client::CachedObject& object) {
  return !object.owners.empty() || (object.deleting() && (Has(object, kForegroundFinalizer) ||
                                                          Has(object, kOrphanFinalizer)));
}

void GarbageGraph::Unlink(const GarbageNode& node, const std::vector<kube::OwnerReference>& kept) {
  for (const kube::OwnerReference& owner : node.owners) {
    const bool stays = std::any_of(kept.begin(), kept.end(),
                                   [&](const auto& other) { return other.uid == owner.uid; });
    const auto found = owners_.find(owner.uid);
    if (!stays && found != owners_.end()) {
      found->second.dependents.erase(node.uid);
      if (found->second.dependents.empty()) {
        owners_.erase(found);
      }
    }
  }
}

void GarbageGraph::NoteSeen(const DiscoveredResource& resource,
                            const client::CachedObject& object) {
  if (object.deleting()) {
    seen_.erase(object.uid);
    return;
  }
  if (const auto owner = owners_.find(object.uid); owner != owners_.end()) {
    owner->second.ended = false;
  }
  const auto [found, added] = seen_.try_emplace(object.uid);
  if (!added) {
    return;
  }
  found->second = Identity(resource, object.key.namespace_name, object.key.name);
  seen_order_.push_back(object.uid);
  if (seen_order_.size() > kSeenMax) {
    seen_.erase(seen_order_.front());
    seen_order_.pop_front();
  }
}

GarbageGraph::Work GarbageGraph::Put(const DiscoveredResource& resource,
                                     const client::CachedObject& object) {
  Work work;
  MutexLock lock(mutex_);
  NoteSeen(resource, object);
  if (const auto before = nodes_.extract(object.uid)) {
    // An owner that waits in the foreground looks again when a dependent stops blocking it.
    for (const kube::OwnerReference& owner : before.mapped().owners) {
      if (const auto node = nodes_.find(owner.uid);
          node != nodes_.end() && node->second.foreground) {
        work.push_back(owner.uid);
      }
    }
    Unlink(before.mapped(), object.owners);
  }
  if (!Matters(object)) {
    return work;
  }
  GarbageNode node;
  node.resource = resource;
  node.key = object.key;
  node.uid = object.uid;
  node.owners = object.owners;
  node.deleting = object.deleting();
  node.foreground = node.deleting && Has(object, kForegroundFinalizer);
  node.orphan = node.deleting && Has(object, kOrphanFinalizer);
  bool look = node.foreground || node.orphan;
  for (const kube::OwnerReference& owner : node.owners) {
    Owner& entry = owners_[owner.uid];
    entry.dependents.insert(node.uid);
    look |= !entry.verified;
    if (const auto above = nodes_.find(owner.uid); above != nodes_.end()) {
      look |= above->second.foreground || above->second.orphan;
    }
  }
  if (look) {
    work.push_back(node.uid);
  }
  nodes_[object.uid] = std::move(node);
  return work;
}

GarbageGraph::Work GarbageGraph::Remove(const std::string& uid) {
  Work work;
  MutexLock lock(mutex_);
  seen_.erase(uid);
  if (const auto found = nodes_.find(uid); found != nodes_.end()) {
    for (const kube::OwnerReference& owner : found->second.owners) {
      if (const auto node = nodes_.find(owner.uid);
          node != nodes_.end() && node->second.foreground) {
        work.push_back(owner.uid);
      }
    }
    Unlink(found->second, {});
    nodes_.erase(found);
  }
  if (const auto found = owners_.find(uid); found != owners_.end()) {
    found->second.verified = false;
    found->second.ended = true;
    work.insert(work.end(), found->second.dependents.begin(), found->second.dependents.end());
  }
  return work;
}

GarbageGraph::Work GarbageGraph::ForgetVerified() {
  Work work;
  MutexLock lock(mutex_);
  for (auto& [uid, owner] : owners_) {
    owner.verified = false;
  }
  seen_.clear();
  seen_order_.clear();
  for (const auto& [uid, node] : nodes_) {
    work.push_back(uid);
  }
  return work;
}

std::optional<GarbageNode> GarbageGraph::Find(const std::string& uid) const {
  MutexLock lock(mutex_);
  const auto found = nodes_.find(uid);
  return found != nodes_.end() ? std::optional(found->second) : std::nullopt;
}

std::vector<GarbageNode> GarbageGraph::DependentsOf(const std::string& owner_uid) const {
  std::vector<GarbageNode> out;
  MutexLock lock(mutex_);
  const auto found = owners_.find(owner_uid);
  if (found == owners_.end()) {
    return out;
  }
  for (const std::string& uid : found->second.dependents) {
    if (const auto node = nodes_.find(uid); node != nodes_.end()) {
      out.push_back(node->second);
    }
  }
  std::sort(out.begin(), out.end(), [](const GarbageNode& a, const GarbageNode& b) {
    return a.key != b.key ? a.key < b.key : a.uid < b.uid;
  });
  return out;
}

bool GarbageGraph::IsVerified(const std::string& owner_uid) const {
  MutexLock lock(mutex_);
  const auto found = owners_.find(owner_uid);
  return found != owners_.end() && found->second.verified;
}

bool GarbageGraph::VerifySeen(const kube::OwnerReference& reference,
                              const DiscoveredResource& resource,
                              const std::string& namespace_name) {
  MutexLock lock(mutex_);
  const auto seen = seen_.find(reference.uid);
  const auto owner = owners_.find(reference.uid);
  if (seen == seen_.end() || owner == owners_.end() ||
      seen->second != Identity(resource, namespace_name, reference.name)) {
    return false;
  }
  owner->second.verified = true;
  return true;
}

void GarbageGraph::SetVerified(const std::string& owner_uid) {
  MutexLock lock(mutex_);
  if (const auto found = owners_.find(owner_uid); found != owners_.end() && !found->second.ended) {
    found->second.verified = true;
  }
}

std::size_t GarbageGraph::size() const {
  MutexLock lock(mutex_);
  return nodes_.size();
}

}  // namespace sublet::controllers
