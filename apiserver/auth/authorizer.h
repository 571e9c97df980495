// Authorizer: may this user do that. RBAC over the stored roles and bindings, members of
// system:masters before it, nodes beside it. Threads: any. Questions take well under 2 µs once the
// rules are compiled; the first question after a change of roles or bindings compiles them again
// (about 1 ms for the default ones) on its thread, so whoever has written a role sees it in its
// next request. Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac, pkg/registry/rbac.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/auth/policy_rule.h"
#include "base/mutex.h"
#include "base/result.h"

namespace sublet::apiserver {

// One role or binding as it is stored now; `object` null = deleted.
struct RbacChange {
  enum class Kind : std::uint8_t { kClusterRole, kRole, kClusterRoleBinding, kRoleBinding };
  Kind kind = Kind::kClusterRole;
  std::string namespace_name;
  std::string name;
  std::shared_ptr<const kube::Json> object;
};

// Where roles and bindings come from. Threads: HasChanges any; Drain one at a time.
class RbacSource {
 public:
  virtual ~RbacSource() = default;
  // Cheap: asked for every request.
  virtual bool HasChanges() const = 0;
  // Appends what changed since the last call. `reset` is set when `out` is all there is.
  virtual void Drain(std::vector<RbacChange>& out, bool* reset) = 0;
};

struct Decision {
  bool allowed = false;
  // Why: Kubernetes' "RBAC: allowed by ...", or what was wrong while looking.
  std::string reason;
};

// Which objects a node's kubelet may read besides what every node may.
class NodeGraph {
 public:
  virtual ~NodeGraph() = default;
  // True when a pod bound to `node` in the namespace refers to the object. resource: secrets,
  // configmaps, persistentvolumeclaims, serviceaccounts; persistentvolumes have namespace "".
  virtual bool NodeUses(std::string_view node, std::string_view resource,
                        std::string_view namespace_name, std::string_view name) const = 0;
};

struct UserRules {
  std::vector<PolicyRule> rules;
  std::string errors;  // roles that could not be resolved
};

class Authorizer {
 public:
  // `graph` may be null: then nodes read no secrets. Both outlive this.
  explicit Authorizer(RbacSource& source, const NodeGraph* graph = nullptr);
  ~Authorizer();

  // `want_reason` false spares the text (every request of the pipeline).
  Decision Authorize(const Attributes& attributes, bool want_reason = false) const;
  bool Allows(const Attributes& attributes) const { return Authorize(attributes).allowed; }

  // Everything the user may do in a namespace ("" = cluster scope only).
  UserRules RulesOf(const User& user, std::string_view namespace_name) const;
  // The rules behind a roleRef. Errors: NotFound.
  Result<std::vector<PolicyRule>> RulesOfRole(std::string_view kind, std::string_view name,
                                              std::string_view namespace_name) const;

  // May `user` write these roles or bindings without gaining rights? `object` is the new state,
  // `old` the stored one or null. Errors: Forbidden with Kubernetes' text, NotFound (roleRef).
  Result<void> CheckRoleWrite(const User& user, const kube::Json& object,
                              const kube::Json* old) const;
  Result<void> CheckBindingWrite(const User& user, const kube::Json& object,
                                 const kube::Json* old) const;

 private:
  struct Index;
  using IndexPtr = std::shared_ptr<const Index>;
  IndexPtr Current() const SUBLET_EXCLUDES(mutex_);
  Decision AuthorizeNode(const Attributes& attributes) const;
  Result<void> ConfirmNoEscalation(const User& user, std::string_view namespace_name,
                                   const std::vector<PolicyRule>& wanted, std::string_view resource,
                                   std::string_view name) const;

  RbacSource& source_;
  const NodeGraph* const graph_;
  const std::vector<CompiledRule> node_rules_;
  mutable Mutex mutex_;
  struct Objects;
  mutable std::unique_ptr<Objects> objects_ SUBLET_GUARDED_BY(mutex_);
  mutable std::atomic<IndexPtr> index_;
};

// The 403 of a refused request, with Kubernetes' exact text.
Status ForbiddenStatus(const Attributes& attributes, std::string_view reason);
bool IsMaster(const User& user);

}  // namespace sublet::apiserver
