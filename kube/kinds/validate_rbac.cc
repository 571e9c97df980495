// Roles and bindings.
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

constexpr std::string_view kGroup = "rbac.authorization.k8s.io";

void Rules(const Json& object, bool namespaced, FieldErrors* errors) {
  const Path rules("rules");
  std::size_t index = 0;
  for (const Json& rule : Items(object, "rules")) {
    const Path at = rules.Index(index++);
    if (Items(rule, "verbs").empty()) {
      errors->Required(at.Child("verbs"), "verbs must contain at least one value");
    }
    if (!Items(rule, "nonResourceURLs").empty()) {
      const Json& urls = Get(rule, "nonResourceURLs");
      if (namespaced) {
        errors->Invalid(at.Child("nonResourceURLs"), urls,
                        "namespaced rules cannot apply to non-resource URLs");
      }
      if (!Items(rule, "apiGroups").empty() || !Items(rule, "resources").empty() ||
          !Items(rule, "resourceNames").empty()) {
        errors->Invalid(at.Child("nonResourceURLs"), urls,
                        "rules cannot apply to both regular resources and non-resource URLs");
      }
      continue;
    }
    if (Items(rule, "apiGroups").empty()) {
      errors->Required(at.Child("apiGroups"), "resource rules must supply at least one api group");
    }
    if (Items(rule, "resources").empty()) {
      errors->Required(at.Child("resources"), "resource rules must supply at least one resource");
    }
  }
}

void Subject(const Path& at, const Json& subject, bool namespaced, FieldErrors* errors) {
  const std::string name = Str(subject, "name");
  const std::string kind = Str(subject, "kind");
  const std::string group = Str(subject, "apiGroup");
  if (name.empty()) {
    errors->Required(at.Child("name"));
  }
  if (kind == "ServiceAccount") {
    if (!name.empty()) {
      Check(at.Child("name"), name, &IsDns1123Subdomain, errors);
    }
    if (!group.empty()) {
      errors->NotSupported(at.Child("apiGroup"), group, {""});
    }
    if (!namespaced && Str(subject, "namespace").empty()) {
      errors->Required(at.Child("namespace"));
    }
  } else if (kind == "User" || kind == "Group") {
    if (group != kGroup) {
      errors->NotSupported(at.Child("apiGroup"), group, {kGroup});
    }
  } else {
    errors->NotSupported(at.Child("kind"), kind, {"ServiceAccount", "User", "Group"});
  }
}

void Binding(const Json& object, bool namespaced, FieldErrors* errors) {
  const Json& reference = Get(object, "roleRef");
  const Path path("roleRef");
  if (const std::string group = Str(reference, "apiGroup"); group != kGroup) {
    errors->NotSupported(path.Child("apiGroup"), group, {kGroup});
  }
  const std::string kind = Str(reference, "kind");
  if (kind != "ClusterRole" && !(namespaced && kind == "Role")) {
    errors->NotSupported(path.Child("kind"), kind,
                         namespaced ? std::vector<std::string_view>{"Role", "ClusterRole"}
                                    : std::vector<std::string_view>{"ClusterRole"});
  }
  CheckRequired(path.Child("name"), Str(reference, "name"), &IsPathSegmentName, errors);
  const Path subjects("subjects");
  std::size_t index = 0;
  for (const Json& subject : Items(object, "subjects")) {
    Subject(subjects.Index(index++), subject, namespaced, errors);
  }
}

void RoleRefUnchanged(const Json& object, const Json& old, FieldErrors* errors) {
  if (!SameMember(object, old, "roleRef")) {
    const Json& reference = Get(object, "roleRef");
    errors->InvalidShown(Path("roleRef"),
                         "{\"APIGroup\":" + GoQuote(Str(reference, "apiGroup")) +
                             ",\"Kind\":" + GoQuote(Str(reference, "kind")) +
                             ",\"Name\":" + GoQuote(Str(reference, "name")) + "}",
                         "cannot change roleRef");
  }
}

}  // namespace

void Role(const Json& object, FieldErrors* errors) { Rules(object, true, errors); }
void RoleUpdate(const Json& object, const Json&, FieldErrors* errors) { Role(object, errors); }

void ClusterRole(const Json& object, FieldErrors* errors) {
  Rules(object, false, errors);
  const Json& aggregation = Get(object, "aggregationRule");
  if (!aggregation.is_object()) {
    return;
  }
  const Path path("aggregationRule");
  const Path selectors = path.Child("clusterRoleSelectors");
  const auto& items = Items(aggregation, "clusterRoleSelectors");
  if (items.empty()) {
    errors->Required(selectors,
                     "at least one clusterRoleSelector required if aggregationRule is non-nil");
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::size_t before = errors->size();
    LabelSelector(selectors.Index(i), items[i], errors);
    if (errors->size() != before) {
      errors->Invalid(selectors.Index(i), nullptr, "invalid label selector.");
    }
  }
}
void ClusterRoleUpdate(const Json& object, const Json&, FieldErrors* errors) {
  ClusterRole(object, errors);
}

void RoleBinding(const Json& object, FieldErrors* errors) { Binding(object, true, errors); }
void RoleBindingUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  Binding(object, true, errors);
  RoleRefUnchanged(object, old, errors);
}
void ClusterRoleBinding(const Json& object, FieldErrors* errors) { Binding(object, false, errors); }
void ClusterRoleBindingUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  Binding(object, false, errors);
  RoleRefUnchanged(object, old, errors);
}

}  // namespace sublet::kube::validate
