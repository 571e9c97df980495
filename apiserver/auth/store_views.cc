#include "apiserver/auth/store_views.h"

#include <nlohmann/json.hpp>

#include "apiserver/registry/builtin.h"
#include "apiserver/registry/object_codec.h"
#include "base/log.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kRbac = "rbac.authorization.k8s.io";

std::string PrefixOf(std::string_view group, std::string_view resource) {
  return StoragePrefix({std::string(group), std::string(resource)});
}

std::string KeyOf(std::string_view group, std::string_view resource,
                  std::string_view namespace_name, std::string_view name) {
  std::string key = PrefixOf(group, resource);
  if (!namespace_name.empty()) {
    key.append(namespace_name).append("/");
  }
  return key.append(name);
}

bool NameIs(const kube::Json& reference, const char* member, std::string_view name) {
  return kube::FindString(reference, {member}) == name;
}

// Whether `value`, found under the key `under`, refers to the Secret or ConfigMap.
bool ReferenceIs(std::string_view under, const kube::Json& value, std::string_view resource,
                 std::string_view name) {
  if (resource == "secrets") {
    return ((under == "secretKeyRef" || under == "secretRef" || under == "secret" ||
             under == "imagePullSecrets" || under == "nodePublishSecretRef") &&
            NameIs(value, "name", name)) ||
           (under == "secret" && NameIs(value, "secretName", name));
  }
  return (under == "configMapKeyRef" || under == "configMapRef" || under == "configMap") &&
         NameIs(value, "name", name);
}

// Bounded by the depth that parsing allowed.
bool TreeRefersTo(std::string_view under, const kube::Json& value, std::string_view resource,
                  std::string_view name) {
  if (value.is_object()) {
    if (ReferenceIs(under, value, resource, name)) {
      return true;
    }
    for (const auto& [key, member] : value.items()) {
      if (TreeRefersTo(key, member, resource, name)) {
        return true;
      }
    }
  } else if (value.is_array()) {
    for (const auto& item : value) {
      if (TreeRefersTo(under, item, resource, name)) {
        return true;
      }
    }
  }
  return false;
}

bool AnyHas(const kube::Json* list, std::initializer_list<std::string_view> path,
            std::string_view name) {
  if (list != nullptr && list->is_array()) {
    for (const auto& item : *list) {
      if (kube::FindString(item, path) == name) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

StoreRbacSource::StoreRbacSource(storage::Store& store)
    : store_(store), pending_(std::make_shared<std::atomic<bool>>(true)) {
  using Kind = RbacChange::Kind;
  followed_.push_back({Kind::kClusterRole, PrefixOf(kRbac, "clusterroles"), nullptr});
  followed_.push_back({Kind::kRole, PrefixOf(kRbac, "roles"), nullptr});
  followed_.push_back({Kind::kClusterRoleBinding, PrefixOf(kRbac, "clusterrolebindings"), nullptr});
  followed_.push_back({Kind::kRoleBinding, PrefixOf(kRbac, "rolebindings"), nullptr});
}

RbacChange StoreRbacSource::ChangeOf(const Followed& followed, const std::string& key,
                                     const storage::ValuePtr& value) const {
  const bool namespaced =
      followed.kind == RbacChange::Kind::kRole || followed.kind == RbacChange::Kind::kRoleBinding;
  const KeyParts parts = SplitKey(key, followed.prefix.size(), namespaced);
  RbacChange change;
  change.kind = followed.kind;
  change.namespace_name = parts.namespace_name;
  change.name = parts.name;
  if (value) {
    change.object = std::make_shared<const kube::Json>(ParseStored(*value));
  }
  return change;
}

bool StoreRbacSource::Reload(std::vector<RbacChange>& out) {
  for (Followed& followed : followed_) {
    followed.subscription.reset();
    const auto list = store_.List(followed.prefix, "", 0, 0);
    if (!list.ok()) {
      return false;
    }
    for (const storage::Record& record : list->records) {
      out.push_back(ChangeOf(followed, record.key, record.value));
    }
    storage::WatchOptions options;
    options.prefix = followed.prefix;
    options.after = list->revision;
    options.on_ready = [pending = pending_] { pending->store(true, std::memory_order_release); };
    auto watch = store_.Watch(std::move(options));
    if (!watch.ok()) {
      return false;
    }
    followed.subscription = std::move(*watch);
  }
  return true;
}

bool StoreRbacSource::PullAll(std::vector<RbacChange>& out) {
  for (Followed& followed : followed_) {
    std::vector<storage::EventPtr> events;
    for (;;) {
      events.clear();
      const auto pulled = followed.subscription->Pull(events, 1024);
      if (!pulled.ok()) {
        return false;
      }
      if (*pulled == 0) {
        break;
      }
      for (const auto& event : events) {
        out.push_back(
            ChangeOf(followed, event->key,
                     event->type == storage::EventType::kDelete ? nullptr : event->value));
      }
    }
  }
  return true;
}

void StoreRbacSource::Drain(std::vector<RbacChange>& out, bool* reset) {
  pending_->store(false, std::memory_order_release);
  if (loaded_ && PullAll(out)) {
    return;
  }
  out.clear();
  *reset = true;
  loaded_ = Reload(out);
  if (!loaded_) {
    // Another try at the next question; until then only what was read counts.
    log::Warn("cannot follow roles and bindings in storage");
    pending_->store(true, std::memory_order_release);
    return;
  }
  // on_ready is only called after a Pull that found nothing.
  if (!PullAll(out)) {
    pending_->store(true, std::memory_order_release);
  }
}

std::optional<LiveObject> StoreTokenObjects::Find(std::string_view resource,
                                                  std::string_view namespace_name,
                                                  std::string_view name) const {
  const auto record = store_.Get(KeyOf("", resource, namespace_name, name));
  if (!record) {
    return std::nullopt;
  }
  const ObjectFacts& facts = FactsOf(*record->value);
  LiveObject object;
  object.uid = facts.uid;
  if (facts.deleting) {
    const kube::Json tree = ParseStored(*record->value);
    object.deleted_at = kube::FindTime(kube::FindString(tree, {"metadata", "deletionTimestamp"}));
  }
  if (resource == "pods") {
    object.node_name = FieldValue(*record->value, "spec.nodeName");
  }
  return object;
}

bool PodRefersTo(const kube::Json& pod, std::string_view resource, std::string_view name) {
  const kube::Json* spec = kube::Find(pod, {"spec"});
  if (spec == nullptr) {
    return false;
  }
  if (resource == "secrets" || resource == "configmaps") {
    return TreeRefersTo("", *spec, resource, name);
  }
  if (resource == "serviceaccounts") {
    return kube::FindString(*spec, {"serviceAccountName"}, "default") == name;
  }
  if (resource == "persistentvolumeclaims") {
    return AnyHas(kube::Find(*spec, {"volumes"}), {"persistentVolumeClaim", "claimName"}, name);
  }
  if (resource == "resourceclaims") {
    return AnyHas(kube::Find(*spec, {"resourceClaims"}), {"resourceClaimName"}, name) ||
           AnyHas(kube::Find(pod, {"status", "resourceClaimStatuses"}), {"resourceClaimName"},
                  name);
  }
  return false;
}

bool StoreNodeGraph::NodeUses(std::string_view node, std::string_view resource,
                              std::string_view namespace_name, std::string_view name) const {
  if (resource == "persistentvolumes") {
    const auto volume = store_.Get(KeyOf("", resource, "", name));
    if (!volume) {
      return false;
    }
    const kube::Json tree = ParseStored(*volume->value);
    return NodeUses(node, "persistentvolumeclaims",
                    kube::FindString(tree, {"spec", "claimRef", "namespace"}),
                    kube::FindString(tree, {"spec", "claimRef", "name"}));
  }
  if (namespace_name.empty()) {
    return false;
  }
  const auto pods = store_.List(KeyOf("", "pods", namespace_name, ""), "", 0, 0);
  if (!pods.ok()) {
    return false;
  }
  for (const storage::Record& record : pods->records) {
    if (FieldValue(*record.value, "spec.nodeName") == node &&
        PodRefersTo(ParseStored(*record.value), resource, name)) {
      return true;
    }
  }
  return false;
}

}  // namespace sublet::apiserver
