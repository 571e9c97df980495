// What identity and authorization look up in storage: roles and bindings (RbacSource), the objects
// tokens are bound to (TokenObjects), and which objects a node's pods use (NodeGraph).
// Threads: as the interfaces say. The store outlives all of them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "apiserver/auth/authorizer.h"
#include "apiserver/auth/service_account_tokens.h"
#include "storage/store.h"

namespace sublet::apiserver {

// Follows the four RBAC prefixes. Events are pulled by whoever asks the authorizer next, so a right
// given by an acknowledged write holds for every later request; no thread runs for it.
class StoreRbacSource final : public RbacSource {
 public:
  explicit StoreRbacSource(storage::Store& store);
  bool HasChanges() const override { return pending_->load(std::memory_order_acquire); }
  void Drain(std::vector<RbacChange>& out, bool* reset) override;

 private:
  struct Followed {
    RbacChange::Kind kind;
    std::string prefix;
    std::unique_ptr<storage::Subscription> subscription;
  };
  bool Reload(std::vector<RbacChange>& out);
  // False when the subscription fell behind.
  bool PullAll(std::vector<RbacChange>& out);
  RbacChange ChangeOf(const Followed& followed, const std::string& key,
                      const storage::ValuePtr& value) const;

  storage::Store& store_;
  std::vector<Followed> followed_;
  bool loaded_ = false;
  const std::shared_ptr<std::atomic<bool>> pending_;
};

class StoreTokenObjects final : public TokenObjects {
 public:
  explicit StoreTokenObjects(const storage::Store& store) : store_(store) {}
  std::optional<LiveObject> Find(std::string_view resource, std::string_view namespace_name,
                                 std::string_view name) const override;

 private:
  const storage::Store& store_;
};

// Looks through the pods of one namespace at each question: kubelets ask rarely (once per Secret
// and pod start), and no index has to be kept for them.
class StoreNodeGraph final : public NodeGraph {
 public:
  explicit StoreNodeGraph(const storage::Store& store) : store_(store) {}
  bool NodeUses(std::string_view node, std::string_view resource, std::string_view namespace_name,
                std::string_view name) const override;

 private:
  const storage::Store& store_;
};

// True when `pod` refers to the object; `resource` as NodeGraph says. Pure.
bool PodRefersTo(const kube::Json& pod, std::string_view resource, std::string_view name);

}  // namespace sublet::apiserver
