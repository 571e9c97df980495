#include "controllers/garbage_graph.h"

#include <algorithm>

namespace sublet::controllers {
namespace {

bool Has(const client::CachedObject& object, std::string_view finalizer) {
  return std::find(object.finalizers.begin(), object.finalizers.end(), finalizer) !=
         object.finalizers.end();
}

}  // namespace

bool GarbageGraph::Matters(const client::CachedObject& object) {
  return !object.owners.empty() || (object.deleting() && (Has(object, kForegroundFinalizer) ||
                                                          Has(object, kOrphanFinalizer)));
}

void GarbageGraph::Unlink(const GarbageNode& node) {
  for (const kube::OwnerReference& owner : node.owners) {
    const auto found = owners_.find(owner.uid);
    if (found != owners_.end()) {
      found->second.dependents.erase(node.uid);
      if (found->second.dependents.empty()) {
        owners_.erase(found);
      }
    }
  }
}

GarbageGraph::Work GarbageGraph::Put(const DiscoveredResource& resource,
                                     const client::CachedObject& object) {
  Work work;
  MutexLock lock(mutex_);
  const auto found = nodes_.find(object.uid);
  if (found != nodes_.end()) {
    // An owner that waits in the foreground looks again when a dependent stops blocking it.
    for (const kube::OwnerReference& owner : found->second.owners) {
      if (const auto node = nodes_.find(owner.uid);
          node != nodes_.end() && node->second.foreground) {
        work.push_back(owner.uid);
      }
    }
    Unlink(found->second);
    nodes_.erase(found);
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
  if (const auto found = nodes_.find(uid); found != nodes_.end()) {
    for (const kube::OwnerReference& owner : found->second.owners) {
      if (const auto node = nodes_.find(owner.uid);
          node != nodes_.end() && node->second.foreground) {
        work.push_back(owner.uid);
      }
    }
    Unlink(found->second);
    nodes_.erase(found);
  }
  if (const auto found = owners_.find(uid); found != owners_.end()) {
    found->second.verified = false;
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

void GarbageGraph::SetVerified(const std::string& owner_uid) {
  MutexLock lock(mutex_);
  if (const auto found = owners_.find(owner_uid); found != owners_.end()) {
    found->second.verified = true;
  }
}

std::size_t GarbageGraph::size() const {
  MutexLock lock(mutex_);
  return nodes_.size();
}

}  // namespace sublet::controllers
