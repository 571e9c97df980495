#include "apiserver/auth/authorizer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "apiserver/auth/authenticator.h"
#include "apiserver/auth/node_rules.h"
#include "kube/field_error.h"

namespace sublet::apiserver {
namespace {

using RuleList = std::vector<CompiledRule>;
using RuleListPtr = std::shared_ptr<const RuleList>;

// A subject's share in one binding.
struct Grant {
  RuleListPtr rules;           // null: the role does not exist
  std::string namespace_name;  // "" = everywhere
  std::string reason;          // of a decision that rests on it; the error when rules are missing
};

std::string Key(std::string_view namespace_name, std::string_view name) {
  std::string key(namespace_name);
  return key.append("/").append(name);
}

RuleListPtr Compile(const kube::Json& role) {
  auto rules = std::make_shared<RuleList>();
  for (PolicyRule& rule : ParseRules(kube::Find(role, {"rules"}))) {
    rules->emplace_back(std::move(rule));
  }
  return rules;
}

// "U:name" or "G:name"; "" for a subject of an unknown kind.
std::string SubjectKey(const kube::Json& subject, std::string_view binding_namespace) {
  const auto kind = kube::FindString(subject, {"kind"});
  const std::string name(kube::FindString(subject, {"name"}));
  if (kind == "User") {
    return "U:" + name;
  }
  if (kind == "Group") {
    return "G:" + name;
  }
  if (kind == "ServiceAccount") {
    const auto own = kube::FindString(subject, {"namespace"}, binding_namespace);
    return own.empty() ? "" : "U:" + std::string(kAccountPrefix) + std::string(own) + ":" + name;
  }
  return "";
}

std::string DescribeSubject(const kube::Json& subject, std::string_view binding_namespace) {
  const std::string kind(kube::FindString(subject, {"kind"}));
  std::string name(kube::FindString(subject, {"name"}));
  if (kind == "ServiceAccount") {
    name += "/" + std::string(kube::FindString(subject, {"namespace"}, binding_namespace));
  }
  return kind + " " + kube::GoQuote(name);
}

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return out;
}

}  // namespace

struct Authorizer::Objects {
  std::map<std::string, RuleListPtr> cluster_roles;
  std::map<std::string, RuleListPtr> roles;  // namespace/name
  std::map<std::string, std::shared_ptr<const kube::Json>> cluster_bindings;
  std::map<std::string, std::shared_ptr<const kube::Json>> bindings;

  void Apply(const RbacChange& change);
  RuleListPtr Find(std::string_view kind, std::string_view name,
                   std::string_view namespace_name) const {
    const auto& from = kind == "ClusterRole" ? cluster_roles : roles;
    const auto found =
        from.find(kind == "ClusterRole" ? std::string(name) : Key(namespace_name, name));
    return found == from.end() ? nullptr : found->second;
  }
};

void Authorizer::Objects::Apply(const RbacChange& change) {
  const std::string key = Key(change.namespace_name, change.name);
  const auto put = [&](auto& into, const std::string& at, auto value) {
    if (change.object) {
      into[at] = std::move(value);
    } else {
      into.erase(at);
    }
  };
  switch (change.kind) {
    case RbacChange::Kind::kClusterRole:
      put(cluster_roles, change.name, change.object ? Compile(*change.object) : nullptr);
      return;
    case RbacChange::Kind::kRole:
      put(roles, key, change.object ? Compile(*change.object) : nullptr);
      return;
    case RbacChange::Kind::kClusterRoleBinding:
      put(cluster_bindings, change.name, change.object);
      return;
    case RbacChange::Kind::kRoleBinding: put(bindings, key, change.object); return;
  }
}

struct Authorizer::Index {
  std::unordered_map<std::string, std::vector<Grant>> grants;  // by subject key
  std::map<std::string, RuleListPtr> cluster_roles;
  std::map<std::string, RuleListPtr> roles;

  void Add(const Objects& objects, const kube::Json& binding, std::string_view kind,
           std::string_view namespace_name);
  // Calls visit(grant) for each grant of the user that counts in the namespace, until it is true.
  template <typename Visit>
  void ForEach(const User& user, std::string_view namespace_name, Visit visit) const {
    const auto look = [&](const std::string& key) {
      const auto found = grants.find(key);
      if (found == grants.end()) {
        return false;
      }
      for (const Grant& grant : found->second) {
        if ((grant.namespace_name.empty() ||
             (!namespace_name.empty() && grant.namespace_name == namespace_name)) &&
            visit(grant)) {
          return true;
        }
      }
      return false;
    };
    std::string key;
    key.reserve(96);
    key.assign("U:").append(user.name);
    if (look(key)) {
      return;
    }
    for (const std::string& group : user.groups) {
      key.assign("G:").append(group);
      if (look(key)) {
        return;
      }
    }
  }
};

void Authorizer::Index::Add(const Objects& objects, const kube::Json& binding,
                            std::string_view kind, std::string_view namespace_name) {
  const auto name = kube::FindString(binding, {"metadata", "name"});
  const auto role_kind = kube::FindString(binding, {"roleRef", "kind"});
  const auto role_name = kube::FindString(binding, {"roleRef", "name"});
  const kube::Json* subjects = kube::Find(binding, {"subjects"});
  if (subjects == nullptr || !subjects->is_array()) {
    return;
  }
  const RuleListPtr rules = objects.Find(role_kind, role_name, namespace_name);
  const std::string own_name = namespace_name.empty()
                                   ? std::string(name)
                                   : std::string(name) + "/" + std::string(namespace_name);
  for (const kube::Json& subject : *subjects) {
    const std::string key = SubjectKey(subject, namespace_name);
    if (key.empty()) {
      continue;
    }
    Grant grant{rules, std::string(namespace_name), ""};
    if (rules) {
      grant.reason = "RBAC: allowed by " + std::string(kind) + " " + kube::GoQuote(own_name) +
                     " of " + std::string(role_kind) + " " + kube::GoQuote(role_name) + " to " +
                     DescribeSubject(subject, namespace_name);
    } else {
      const bool is_cluster_role = role_kind == "ClusterRole";
      grant.reason = std::string(is_cluster_role ? "clusterrole" : "role") +
                     ".rbac.authorization.k8s.io " + kube::GoQuote(role_name) + " not found";
    }
    grants[key].push_back(std::move(grant));
  }
}

Authorizer::Authorizer(RbacSource& source, const NodeGraph* graph)
    : source_(source),
      graph_(graph),
      node_rules_(CompileNodeRules()),
      objects_(std::make_unique<Objects>()),
      index_(std::make_shared<const Index>()) {}
Authorizer::~Authorizer() = default;

Authorizer::IndexPtr Authorizer::Current() const {
  if (!source_.HasChanges()) {
    return index_.load();
  }
  MutexLock lock(mutex_);
  std::vector<RbacChange> changes;
  bool reset = false;
  source_.Drain(changes, &reset);
  if (changes.empty() && !reset) {
    return index_.load();
  }
  if (reset) {
    *objects_ = {};
  }
  for (const RbacChange& change : changes) {
    objects_->Apply(change);
  }
  auto index = std::make_shared<Index>();
  index->cluster_roles = objects_->cluster_roles;
  index->roles = objects_->roles;
  for (const auto& [name, binding] : objects_->cluster_bindings) {
    index->Add(*objects_, *binding, "ClusterRoleBinding", "");
  }
  for (const auto& [key, binding] : objects_->bindings) {
    index->Add(*objects_, *binding, "RoleBinding", key.substr(0, key.find('/')));
  }
  index_.store(index);
  return index;
}

bool IsMaster(const User& user) {
  return std::find(user.groups.begin(), user.groups.end(), kMastersGroup) != user.groups.end();
}

Decision Authorizer::AuthorizeNode(const Attributes& attributes) const {
  constexpr std::string_view kPrefix = "system:node:";
  const User& user = *attributes.user;
  if (!user.name.starts_with(kPrefix) ||
      std::find(user.groups.begin(), user.groups.end(), "system:nodes") == user.groups.end()) {
    return {};
  }
  const auto node = std::string_view(user.name).substr(kPrefix.size());
  const auto related = AskNodeGraph(attributes, node, graph_);
  if (related.has_value()) {
    return {*related, ""};
  }
  const std::uint32_t bit = CompiledRule::VerbBit(attributes.verb);
  return {std::any_of(node_rules_.begin(), node_rules_.end(),
                      [&](const CompiledRule& rule) { return rule.Allows(attributes, bit); }),
          ""};
}

Decision Authorizer::Authorize(const Attributes& attributes, bool want_reason) const {
  const User& user = *attributes.user;
  if (IsMaster(user)) {
    return {true, ""};
  }
  if (Decision node = AuthorizeNode(attributes); node.allowed) {
    return node;
  }
  const IndexPtr index = Current();
  const std::uint32_t bit = CompiledRule::VerbBit(attributes.verb);
  const Grant* allowed_by = nullptr;
  std::vector<std::string> errors;
  index->ForEach(user, attributes.namespace_name, [&](const Grant& grant) {
    if (!grant.rules) {
      errors.push_back(grant.reason);
      return false;
    }
    for (const CompiledRule& rule : *grant.rules) {
      if (rule.Allows(attributes, bit)) {
        allowed_by = &grant;
        return true;
      }
    }
    return false;
  });
  if (allowed_by != nullptr) {
    return {true, want_reason ? allowed_by->reason : ""};
  }
  if (errors.empty()) {
    return {};
  }
  return {false,
          "RBAC: " + (errors.size() == 1 ? errors.front() : "[" + kube::Join(errors, ", ") + "]")};
}

UserRules Authorizer::RulesOf(const User& user, std::string_view namespace_name) const {
  UserRules out;
  std::vector<std::string> errors;
  Current()->ForEach(user, namespace_name, [&](const Grant& grant) {
    if (!grant.rules) {
      errors.push_back(grant.reason);
      return false;
    }
    for (const CompiledRule& rule : *grant.rules) {
      out.rules.push_back(rule.rule());
    }
    return false;
  });
  out.errors = kube::Join(errors, ", ");
  return out;
}

Result<std::vector<PolicyRule>> Authorizer::RulesOfRole(std::string_view kind,
                                                        std::string_view name,
                                                        std::string_view namespace_name) const {
  const IndexPtr index = Current();
  const bool is_cluster_role = kind == "ClusterRole";
  const auto& from = is_cluster_role ? index->cluster_roles : index->roles;
  const auto found = from.find(is_cluster_role ? std::string(name) : Key(namespace_name, name));
  if (found == from.end()) {
    return NotFound({"rbac.authorization.k8s.io", is_cluster_role ? "clusterroles" : "roles"},
                    name);
  }
  std::vector<PolicyRule> rules;
  for (const CompiledRule& rule : *found->second) {
    rules.push_back(rule.rule());
  }
  return rules;
}

Result<void> Authorizer::ConfirmNoEscalation(const User& user, std::string_view namespace_name,
                                             const std::vector<PolicyRule>& wanted,
                                             std::string_view resource,
                                             std::string_view name) const {
  const UserRules held = RulesOf(user, namespace_name);
  const auto missing = MissingRules(held.rules, wanted);
  if (missing.empty() || IsMaster(user)) {
    return {};
  }
  std::string groups;
  for (const auto& group : user.groups) {
    groups += (groups.empty() ? "" : " ") + kube::GoQuote(group);
  }
  std::string why = "user " + kube::GoQuote(user.name) + " (groups=[" + groups +
                    "]) is attempting to grant RBAC permissions not currently held:\n" +
                    kube::Join(missing, "\n");
  if (!held.errors.empty()) {
    why += "; resolution errors: [" + held.errors + "]";
  }
  return Forbidden({"rbac.authorization.k8s.io", resource}, name, why);
}

Result<void> Authorizer::CheckRoleWrite(const User& user, const kube::Json& object,
                                        const kube::Json* old) const {
  const bool is_cluster_role = kube::FindString(object, {"kind"}) == "ClusterRole";
  const auto resource = is_cluster_role ? "clusterroles" : "roles";
  const auto name = kube::FindString(object, {"metadata", "name"});
  const auto namespace_name =
      is_cluster_role ? std::string_view() : kube::FindString(object, {"metadata", "namespace"});
  const auto aggregation_of = [](const kube::Json& role) {
    const kube::Json* rule = kube::Find(role, {"aggregationRule"});
    return rule == nullptr ? kube::Json() : *rule;
  };
  const kube::Json aggregation = aggregation_of(object);
  auto wanted = ParseRules(kube::Find(object, {"rules"}));
  if (old != nullptr && aggregation == aggregation_of(*old) &&
      wanted == ParseRules(kube::Find(*old, {"rules"}))) {
    return {};
  }
  Attributes escalate{.user = &user,
                      .verb = "escalate",
                      .group = "rbac.authorization.k8s.io",
                      .version = "v1",
                      .resource = resource,
                      .namespace_name = namespace_name,
                      .name = name};
  if (Allows(escalate)) {
    return {};
  }
  SUBLET_RETURN_IF_ERROR(ConfirmNoEscalation(user, namespace_name, wanted, resource, name));
  // What labels will select is not known now: aggregation needs every right.
  if (is_cluster_role && !aggregation.is_null() &&
      (old == nullptr || aggregation != aggregation_of(*old))) {
    return ConfirmNoEscalation(
        user, "", {{{"*"}, {"*"}, {"*"}, {}, {}}, {{"*"}, {}, {}, {}, {"*"}}}, resource, name);
  }
  return {};
}

Result<void> Authorizer::CheckBindingWrite(const User& user, const kube::Json& object,
                                           const kube::Json* old) const {
  const bool is_cluster = kube::FindString(object, {"kind"}) == "ClusterRoleBinding";
  const auto namespace_name =
      is_cluster ? std::string_view() : kube::FindString(object, {"metadata", "namespace"});
  const auto same = [&](const char* member) {
    const kube::Json* a = kube::Find(object, {member});
    const kube::Json* b = kube::Find(*old, {member});
    return (a == nullptr || b == nullptr) ? a == b : *a == *b;
  };
  if (old != nullptr && same("roleRef") && same("subjects")) {
    return {};
  }
  const auto role_kind = kube::FindString(object, {"roleRef", "kind"});
  const auto role_name = kube::FindString(object, {"roleRef", "name"});
  const Attributes bind{.user = &user,
                        .verb = "bind",
                        .group = "rbac.authorization.k8s.io",
                        .version = "v1",
                        .resource = role_kind == "ClusterRole" ? "clusterroles" : "roles",
                        .namespace_name = namespace_name,
                        .name = role_name};
  if (Allows(bind)) {
    return {};
  }
  SUBLET_TRY(const auto wanted, RulesOfRole(role_kind, role_name, namespace_name));
  return ConfirmNoEscalation(user, namespace_name, wanted,
                             is_cluster ? "clusterrolebindings" : "rolebindings",
                             kube::FindString(object, {"metadata", "name"}));
}

Status ForbiddenStatus(const Attributes& attributes, std::string_view reason) {
  std::string text =
      "User " + kube::GoQuote(attributes.user->name) + " cannot " + std::string(attributes.verb);
  if (!attributes.is_resource) {
    text += " path " + kube::GoQuote(attributes.path);
  } else {
    std::string resource(attributes.resource);
    if (!attributes.subresource.empty()) {
      resource.append("/").append(attributes.subresource);
    }
    text +=
        " resource " + kube::GoQuote(resource) + " in API group " + kube::GoQuote(attributes.group);
    text += attributes.namespace_name.empty()
                ? " at the cluster scope"
                : " in the namespace " + kube::GoQuote(attributes.namespace_name);
  }
  text = Escape(text);
  if (!reason.empty()) {
    text.append(": ").append(reason);
  }
  if (!attributes.is_resource) {
    StatusDetails details;
    return Status(Reason::kForbidden, "forbidden: " + text).With(std::move(details));
  }
  return Forbidden({attributes.group, attributes.resource}, attributes.name, text);
}

}  // namespace sublet::apiserver
