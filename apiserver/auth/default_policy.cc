#include "apiserver/auth/default_policy.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kObjects =
#include "apiserver/auth/default_policy.inc"
    ;
constexpr char kAutoUpdate[] = "rbac.authorization.kubernetes.io/autoupdate";
constexpr char kRbacGroup[] = "rbac.authorization.k8s.io";

// "User/x", "Group/x", "ServiceAccount/ns/x".
kube::Json ExpandSubject(std::string_view text) {
  const auto slash = text.find('/');
  const std::string kind(text.substr(0, slash));
  const auto rest = text.substr(slash + 1);
  if (kind != "ServiceAccount") {
    return {{"kind", kind}, {"apiGroup", kRbacGroup}, {"name", rest}};
  }
  const auto second = rest.find('/');
  return {{"kind", kind}, {"name", rest.substr(second + 1)}, {"namespace", rest.substr(0, second)}};
}

kube::Json Expand(kube::Json line) {
  kube::Json object = {{"apiVersion", std::string(kRbacGroup) + "/v1"}, {"kind", line["kind"]}};
  kube::Json& metadata = object["metadata"];
  metadata = {{"name", line["name"]},
              {"labels", line.contains("labels") ? line["labels"] : kube::Json::object()},
              {"annotations", {{kAutoUpdate, "true"}}}};
  metadata["labels"]["kubernetes.io/bootstrapping"] = "rbac-defaults";
  if (line.contains("namespace")) {
    metadata["namespace"] = line["namespace"];
  }
  if (line.contains("rules")) {
    object["rules"] = line["rules"];
    if (line.contains("aggregationRule")) {
      object["aggregationRule"] = line["aggregationRule"];
    }
    return object;
  }
  const auto role = line["role"].get<std::string>();
  const auto slash = role.find('/');
  object["roleRef"] = {
      {"apiGroup", kRbacGroup}, {"kind", role.substr(0, slash)}, {"name", role.substr(slash + 1)}};
  object["subjects"] = kube::Json::array();
  for (const auto& subject : line["subjects"]) {
    object["subjects"].push_back(ExpandSubject(subject.get<std::string>()));
  }
  return object;
}

bool Selects(const kube::Json& selector, const kube::Json& role) {
  const kube::Json* wanted = kube::Find(selector, {"matchLabels"});
  const kube::Json* labels = kube::Find(role, {"metadata", "labels"});
  if (wanted == nullptr || labels == nullptr || !wanted->is_object()) {
    return false;
  }
  return std::all_of(wanted->items().begin(), wanted->items().end(), [&](const auto& item) {
    const auto found = labels->find(item.key());
    return found != labels->end() && *found == item.value();
  });
}

// Adds to `list` what it lacks of `wanted`; true when it grew.
bool AddMissing(kube::Json& list, const kube::Json& wanted) {
  if (!list.is_array()) {
    list = kube::Json::array();
  }
  bool grew = false;
  for (const auto& item : wanted) {
    if (std::find(list.begin(), list.end(), item) == list.end()) {
      list.push_back(item);
      grew = true;
    }
  }
  return grew;
}

bool AddMissingMembers(kube::Json& object, const kube::Json& wanted) {
  if (!object.is_object()) {
    object = kube::Json::object();
  }
  bool grew = false;
  for (const auto& [key, value] : wanted.items()) {
    if (!object.contains(key)) {
      object[key] = value;
      grew = true;
    }
  }
  return grew;
}

}  // namespace

kube::Json AggregatedRules(const kube::Json& role, const std::vector<const kube::Json*>& roles) {
  std::vector<const kube::Json*> selected;
  const kube::Json* selectors = kube::Find(role, {"aggregationRule", "clusterRoleSelectors"});
  if (selectors == nullptr || !selectors->is_array()) {
    return kube::Json::array();
  }
  const auto own_name = kube::FindString(role, {"metadata", "name"});
  for (const kube::Json* other : roles) {
    if (kube::FindString(*other, {"metadata", "name"}) != own_name &&
        std::any_of(selectors->begin(), selectors->end(),
                    [&](const auto& selector) { return Selects(selector, *other); })) {
      selected.push_back(other);
    }
  }
  std::sort(selected.begin(), selected.end(), [](const auto* a, const auto* b) {
    return kube::FindString(*a, {"metadata", "name"}) < kube::FindString(*b, {"metadata", "name"});
  });
  kube::Json rules = kube::Json::array();
  for (const kube::Json* one : selected) {
    const kube::Json* own = kube::Find(*one, {"rules"});
    if (own != nullptr && own->is_array()) {
      AddMissing(rules, *own);
    }
  }
  return rules;
}

std::vector<kube::Json> DefaultRbacObjects() {
  std::vector<kube::Json> objects;
  std::string_view left = kObjects;
  while (!left.empty()) {
    const auto end = left.find('\n');
    const auto line = left.substr(0, end);
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    if (!line.empty()) {
      auto parsed = kube::ParseJson(line);
      SUBLET_CHECK(parsed.ok());
      objects.push_back(Expand(std::move(*parsed)));
    }
  }
  // view feeds edit, edit feeds admin: as many rounds as there are storeys.
  std::vector<const kube::Json*> roles;
  for (const auto& object : objects) {
    if (object["kind"] == "ClusterRole") {
      roles.push_back(&object);
    }
  }
  for (int round = 0; round < 3; ++round) {
    for (auto& object : objects) {
      if (object.contains("aggregationRule")) {
        object["rules"] = AggregatedRules(object, roles);
      }
    }
  }
  return objects;
}

std::optional<kube::Json> ReconcileDefault(const kube::Json& stored, const kube::Json& wanted) {
  if (kube::FindString(stored, {"metadata", "annotations", kAutoUpdate}) == "false") {
    return std::nullopt;
  }
  kube::Json object = stored;
  bool changed = AddMissingMembers(object["metadata"]["labels"], wanted["metadata"]["labels"]);
  changed =
      AddMissingMembers(object["metadata"]["annotations"], wanted["metadata"]["annotations"]) ||
      changed;
  if (wanted.contains("roleRef")) {
    if (object["roleRef"] != wanted["roleRef"]) {
      object["roleRef"] = wanted["roleRef"];
      changed = true;
    }
    changed = AddMissing(object["subjects"], wanted["subjects"]) || changed;
  } else if (wanted.contains("aggregationRule")) {
    if (!object.contains("aggregationRule")) {
      object["aggregationRule"] = wanted["aggregationRule"];
      changed = true;
    }
  } else {
    changed = AddMissing(object["rules"], wanted["rules"]) || changed;
  }
  return changed ? std::optional(std::move(object)) : std::nullopt;
}

}  // namespace sublet::apiserver
