// GarbageGraph: who owns whom, for the garbage collector. Holds only what takes part: objects that
// name owners, and objects that are being deleted with a collector's finalizer. Of everything else it
// remembers the last few that passed, so that a dependent that comes with its owner needs no question
// to the server.
// Threads: any; synchronises itself.
#pragma once

#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "client/informer.h"
#include "controllers/discovery.h"

namespace sublet::controllers {

inline constexpr std::string_view kForegroundFinalizer = "foregroundDeletion";
inline constexpr std::string_view kOrphanFinalizer = "orphan";

struct GarbageNode {
  DiscoveredResource resource;
  kube::ObjectKey key;
  std::string uid;
  std::vector<kube::OwnerReference> owners;
  bool deleting = false;
  bool foreground = false;  // waits for its dependents
  bool orphan = false;      // lets its dependents go
};

class GarbageGraph {
 public:
  // What to look at again after a change: uids of nodes.
  using Work = std::vector<std::string>;

  // Whether an object of this shape is worth a node.
  static bool Matters(const client::CachedObject& object);

  Work Put(const DiscoveredResource& resource, const client::CachedObject& object);
  // `uid` is gone, whether or not it had a node.
  Work Remove(const std::string& uid);
  // Every owner has to be verified again (events may have been missed).
  Work ForgetVerified();

  std::optional<GarbageNode> Find(const std::string& uid) const;
  std::vector<GarbageNode> DependentsOf(const std::string& owner_uid) const;
  bool IsVerified(const std::string& owner_uid) const;
  // Verifies the owner that `reference` names, of this resource and namespace ("" = none), by having
  // seen it pass. False: it was not seen lately, or its end was.
  bool VerifySeen(const kube::OwnerReference& reference, const DiscoveredResource& resource,
                  const std::string& namespace_name);
  // The server said that it exists. Does nothing when its end has passed meanwhile.
  void SetVerified(const std::string& owner_uid);
  std::size_t size() const;

 private:
  struct Owner {
    bool verified = false;  // it was seen to exist, and its end has not been seen
    bool ended = false;     // its end has been seen
    std::unordered_set<std::string> dependents;
  };
  // Takes the node from its owners, but for those in `kept`: what was found out about them stays.
  void Unlink(const GarbageNode& node, const std::vector<kube::OwnerReference>& kept)
      SUBLET_REQUIRES(mutex_);
  void NoteSeen(const DiscoveredResource& resource, const client::CachedObject& object)
      SUBLET_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<std::string, GarbageNode> nodes_ SUBLET_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Owner> owners_ SUBLET_GUARDED_BY(mutex_);
  // Objects that passed lately, by uid: what each is (resource, namespace and name).
  std::unordered_map<std::string, std::string> seen_ SUBLET_GUARDED_BY(mutex_);
  std::deque<std::string> seen_order_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::controllers
