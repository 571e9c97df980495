#include "controllers/garbage_collector.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "controllers/garbage_graph.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

const ResourceKind kDefinitions{{"apiextensions.k8s.io", "v1", "customresourcedefinitions"},
                                "CustomResourceDefinition"};
constexpr char kDiscoverName[] = "*discover*";  // no uid looks like this
constexpr std::chrono::milliseconds kDiscoveryWait{200};
constexpr std::chrono::milliseconds kOwnerPasses{50};

// Kept in no graph: many, short-lived, never owners.
bool IsIgnored(const DiscoveredResource& resource) {
  return resource.resource.resource == "events" || !resource.Has("delete") ||
         !resource.Has("list") || !resource.Has("watch");
}

class GarbageCollector final : public Controller {
 public:
  explicit GarbageCollector(const Context& context)
      : client_(context.client),
        informers_(context.client),
        definitions_(context, kDefinitions),
        queue_(context.manager.Add(
            {.name = "garbage-collector",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 2})) {
    // A CRD that becomes established, changes or goes changes what there is to watch.
    definitions_.informer().AddHandler([this](const ObjectPtr&, const ObjectPtr&) {
      queue_.AddAfter({"", kDiscoverName}, kDiscoveryWait);
    });
    queue_.Add({"", kDiscoverName});
    informers_.Start();
  }
  ~GarbageCollector() override { informers_.Stop(); }

 private:
  struct Watched {
    DiscoveredResource resource;
    client::Informer* informer = nullptr;
  };

  void AddWork(const GarbageGraph::Work& work) {
    for (const std::string& uid : work) {
      queue_.Add({"", uid});
    }
  }

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    if (key.name == kDiscoverName) {
      return Rediscover();
    }
    const auto node = graph_.Find(key.name);
    if (!node) {
      return Outcome::Done();
    }
    if (node->orphan) {
      return OrphanDependents(*node);
    }
    if (node->foreground) {
      return WaitForDependents(*node);
    }
    return AttemptToDelete(*node);
  }

  // Watches what is new, drops what is gone.
  Result<Outcome> Rediscover() {
    SUBLET_TRY(const std::vector<DiscoveredResource> resources, Discover(client_));
    std::map<kube::GroupVersionResource, Watched> wanted;
    MutexLock lock(mutex_);
    for (const DiscoveredResource& resource : resources) {
      if (IsIgnored(resource)) {
        continue;
      }
      const auto found = watched_.find(resource.resource);
      if (found != watched_.end()) {
        wanted.insert(watched_.extract(found));
      } else {
        wanted[resource.resource] = {resource, &Watch(resource)};
      }
    }
    for (auto& [resource, gone] : watched_) {
      informers_.Remove(*gone.informer);
    }
    watched_ = std::move(wanted);
    return Outcome::Done();
  }

  client::Informer& Watch(const DiscoveredResource& resource) {
    client::InformerOptions options;
    options.resource = resource.resource;
    options.kind = resource.kind;
    options.keep_bytes = false;
    options.keep = GarbageGraph::Matters;
    options.on_relist = [this] { AddWork(graph_.ForgetVerified()); };
    client::Informer& informer = informers_.For(options);
    informer.AddHandler([this, resource](const ObjectPtr& before, const ObjectPtr& after) {
      if (before && (!after || after->uid != before->uid)) {
        AddWork(graph_.Remove(before->uid));
      }
      if (!after) {
        return;
      }
      const auto work = graph_.Put(resource, *after);
      if (before || after->deleting()) {
        AddWork(work);
        return;
      }
      // What is new came with its owner, or after it: the owner's own event is about to pass.
      for (const std::string& uid : work) {
        queue_.AddAfter({"", uid}, kOwnerPasses);
      }
    });
    return informer;
  }

  client::Target TargetOf(const GarbageNode& node) const {
    return {node.resource.resource, node.key.namespace_name, node.key.name, ""};
  }

  // The live object of a node; nothing when it is gone or another has its name.
  Result<std::optional<Json>> Live(const GarbageNode& node) const {
    auto live = client_.Get(TargetOf(node));
    if (!live.ok()) {
      if (live.error().Is(Reason::kNotFound)) {
        return std::optional<Json>();
      }
      return std::move(live).error();
    }
    if (kube::UidOf(*live) != node.uid) {
      return std::optional<Json>();
    }
    return std::optional<Json>(std::move(*live));
  }

  enum class OwnerState { kPresent, kGone, kWaiting };

  std::optional<DiscoveredResource> ResourceOf(const kube::OwnerReference& owner) const {
    const kube::GroupVersion version = kube::GroupVersion::Parse(owner.api_version);
    MutexLock lock(mutex_);
    for (const auto& [key, watched] : watched_) {
      if (watched.resource.kind == owner.kind && key.group == version.group) {
        return watched.resource;
      }
    }
    return std::nullopt;
  }

  Result<OwnerState> Ask(const GarbageNode& node, const kube::OwnerReference& owner) {
    if (const auto above = graph_.Find(owner.uid); above && above->foreground) {
      return OwnerState::kWaiting;
    }
    if (graph_.IsVerified(owner.uid)) {
      return OwnerState::kPresent;
    }
    const auto resource = ResourceOf(owner);
    if (!resource) {
      // An owner of a kind we do not know may come back with its CRD: better too much than too
      // little is kept.
      return Status(Reason::kServiceUnavailable,
                    "no resource of kind " + owner.kind + " in " + owner.api_version);
    }
    // An owner in another namespace is none.
    const std::string name_space = resource->namespaced ? node.key.namespace_name : "";
    if (graph_.VerifySeen(owner, *resource, name_space)) {
      return OwnerState::kPresent;
    }
    auto live = client_.Get({resource->resource, name_space, owner.name, ""});
    if (!live.ok()) {
      if (live.error().Is(Reason::kNotFound)) {
        return OwnerState::kGone;
      }
      return std::move(live).error();
    }
    if (kube::UidOf(*live) != owner.uid) {
      return OwnerState::kGone;
    }
    if (kube::IsDeleting(*live) && kube::HasFinalizer(*live, kForegroundFinalizer)) {
      return OwnerState::kWaiting;
    }
    graph_.SetVerified(owner.uid);
    return OwnerState::kPresent;
  }

  Result<Outcome> AttemptToDelete(const GarbageNode& node) {
    if (node.deleting) {
      return Outcome::Done();
    }
    std::vector<std::string> useless;  // owners that are gone or going
    bool waiting = false;
    std::size_t present = 0;
    for (const kube::OwnerReference& owner : node.owners) {
      auto state = Ask(node, owner);
      if (!state.ok()) {
        if (state.error().Is(Reason::kServiceUnavailable)) {
          return Outcome::After(std::chrono::seconds(30));
        }
        return std::move(state).error();
      }
      if (*state == OwnerState::kPresent) {
        ++present;
      } else {
        useless.push_back(owner.uid);
        waiting |= *state == OwnerState::kWaiting;
      }
    }
    if (node.owners.empty() || useless.empty()) {
      return Outcome::Done();
    }
    if (present > 0) {
      return RemoveOwners(node, useless);
    }
    SUBLET_TRY(const std::optional<Json> live, Live(node));
    if (!live) {
      return Outcome::Done();
    }
    if (kube::OwnersOf(*live).size() != node.owners.size()) {
      return Outcome::Done();  // newer than the graph; its event brings it back here
    }
    // With dependents of its own it passes the foreground on.
    const bool foreground = waiting && !graph_.DependentsOf(node.uid).empty();
    client::DeleteOptions options;
    options.uid = node.uid;
    options.resource_version = kube::ResourceVersionOf(*live);
    options.propagation_policy = foreground                                        ? "Foreground"
                                 : kube::HasFinalizer(*live, kOrphanFinalizer)     ? "Orphan"
                                 : kube::HasFinalizer(*live, kForegroundFinalizer) ? "Foreground"
                                                                                   : "Background";
    if (foreground && IsInCircle(node)) {
      SUBLET_TRY(options.resource_version, Unblock(node, *live));
    }
    const auto deleted = client_.Delete(TargetOf(node), options);
    if (!deleted.ok() && !deleted.error().Is(Reason::kNotFound)) {
      return deleted.error();
    }
    return Outcome::Done();
  }

  // One that waits for this node while this node is about to wait for it.
  bool IsInCircle(const GarbageNode& node) const {
    const auto dependents = graph_.DependentsOf(node.uid);
    return std::any_of(dependents.begin(), dependents.end(),
                       [](const GarbageNode& dependent) { return dependent.foreground; });
  }

  // Its owners do not wait for it any more. Returns the new resourceVersion.
  Result<std::string> Unblock(const GarbageNode& node, const Json& live) {
    Json references = live["metadata"]["ownerReferences"];
    for (Json& reference : references) {
      reference["blockOwnerDeletion"] = false;
    }
    const Json patch = {{"metadata",
                         {{"uid", node.uid},
                          {"resourceVersion", kube::ResourceVersionOf(live)},
                          {"ownerReferences", std::move(references)}}}};
    SUBLET_TRY(const Json patched, client_.Patch(TargetOf(node), client::PatchType::kMerge, patch));
    return std::string(kube::ResourceVersionOf(patched));
  }

  // Takes the named owners out of the object's references.
  Result<Outcome> RemoveOwners(const GarbageNode& node, const std::vector<std::string>& uids) {
    SUBLET_TRY(const std::optional<Json> live, Live(node));
    if (!live) {
      return Outcome::Done();
    }
    Json changed = *live;
    bool removed = false;
    for (const std::string& uid : uids) {
      removed |= kube::RemoveOwner(&changed, uid);
    }
    if (!removed) {
      return Outcome::Done();
    }
    return PatchMetadata(node, *live, "ownerReferences", changed);
  }

  Result<Outcome> PatchMetadata(const GarbageNode& node, const Json& live, const char* member,
                                const Json& changed) {
    const Json* value = kube::Find(changed, {"metadata", member});
    const Json patch = {{"metadata",
                         {{"uid", node.uid},
                          {"resourceVersion", kube::ResourceVersionOf(live)},
                          {member, value != nullptr ? *value : Json()}}}};
    const auto patched = client_.Patch(TargetOf(node), client::PatchType::kMerge, patch);
    if (!patched.ok() && !patched.error().Is(Reason::kNotFound)) {
      return patched.error();
    }
    return Outcome::Done();
  }

  Result<Outcome> RemoveFinalizer(const GarbageNode& node, std::string_view finalizer) {
    SUBLET_TRY(const std::optional<Json> live, Live(node));
    if (!live) {
      return Outcome::Done();
    }
    Json changed = *live;
    if (!kube::RemoveFinalizer(&changed, finalizer)) {
      return Outcome::Done();
    }
    return PatchMetadata(node, *live, "finalizers", changed);
  }

  // Until every kind has been listed the graph may lack dependents.
  bool AllSynced() const {
    MutexLock lock(mutex_);
    return !watched_.empty() &&
           std::all_of(watched_.begin(), watched_.end(),
                       [](const auto& entry) { return entry.second.informer->synced(); });
  }

  Result<Outcome> OrphanDependents(const GarbageNode& node) {
    if (!AllSynced()) {
      return Outcome::After(kDiscoveryWait);
    }
    for (const GarbageNode& dependent : graph_.DependentsOf(node.uid)) {
      SUBLET_RETURN_IF_ERROR(RemoveOwners(dependent, {node.uid}));
    }
    return RemoveFinalizer(node, kOrphanFinalizer);
  }

  Result<Outcome> WaitForDependents(const GarbageNode& node) {
    if (!AllSynced()) {
      return Outcome::After(kDiscoveryWait);
    }
    bool blocked = false;
    for (const GarbageNode& dependent : graph_.DependentsOf(node.uid)) {
      const bool blocks = std::any_of(
          dependent.owners.begin(), dependent.owners.end(),
          [&](const auto& owner) { return owner.uid == node.uid && owner.block_owner_deletion; });
      blocked |= blocks;
      if (!dependent.deleting) {
        queue_.Add({"", dependent.uid});
      }
    }
    return blocked ? Outcome::Done() : RemoveFinalizer(node, kForegroundFinalizer);
  }

  const client::Client client_;
  GarbageGraph graph_;
  client::InformerFactory informers_;
  const Collection definitions_;
  client::WorkQueue& queue_;
  mutable Mutex mutex_;
  std::map<kube::GroupVersionResource, Watched> watched_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Controller> MakeGarbageCollector(const Context& context) {
  return std::make_unique<GarbageCollector>(context);
}

}  // namespace sublet::controllers
