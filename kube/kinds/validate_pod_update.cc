// The few fields of a pod that may change, and those that a pod which waits at a scheduling gate
// may change beside them.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/go_diff.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/kinds/validate_pod.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";

// True when the comparison cannot go on.
bool ContainersChanged(const Json& object, const Json& old, const char* list, FieldErrors* errors) {
  const auto& now = Items(Get(object, "spec"), list);
  const auto& before = Items(Get(old, "spec"), list);
  const Path path = kSpec.Child(list);
  if (now.size() != before.size()) {
    errors->Forbidden(path, "pod updates may not add or remove containers");
    return true;
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Path at = path.Index(i);
    const std::string image = Str(now[i], "image");
    if (image.empty()) {
      errors->Required(at.Child("image"));
    }
    if (HasOuterSpace(image)) {
      errors->Invalid(at.Child("image"), image, "must not have leading or trailing whitespace");
    }
  }
  return false;
}

// True when validation ends here, as upstream's does.
bool DeadlineUpdate(const Json& spec, const Json& old_spec, FieldErrors* errors) {
  const Json& now = Get(spec, "activeDeadlineSeconds");
  const Json& before = Get(old_spec, "activeDeadlineSeconds");
  const Path path = kSpec.Child("activeDeadlineSeconds");
  if (!now.is_number_integer()) {
    if (!before.is_null()) {
      errors->Invalid(path, nullptr, "must not update from a positive integer to nil value");
    }
    return false;
  }
  if (const Problems problems = IsInRange(now.get<std::int64_t>(), 0, INT32_MAX);
      !problems.empty()) {
    errors->InvalidEach(path, now, problems);
    return true;
  }
  if (before.is_number_integer() && before.get<std::int64_t>() < now.get<std::int64_t>()) {
    errors->Invalid(path, now, "must be less than or equal to previous value");
    return true;
  }
  return false;
}

void TolerationsUpdate(const Json& spec, const Json& old_spec, FieldErrors* errors) {
  const auto without_seconds = [](Json one) {
    EraseMember(&one, "tolerationSeconds");
    return one;
  };
  const Path path = kSpec.Child("tolerations");
  for (const Json& old : Items(old_spec, "tolerations")) {
    const auto& now = Items(spec, "tolerations");
    const bool kept = std::any_of(now.begin(), now.end(), [&](const Json& one) {
      return without_seconds(one) == without_seconds(old);
    });
    if (!kept) {
      errors->Forbidden(path,
                        "existing toleration can not be modified except its tolerationSeconds");
      return;
    }
  }
  Tolerations(path, spec, errors);
}

void GatesUpdate(const Json& spec, const Json& old_spec, FieldErrors* errors) {
  const Path gates = kSpec.Child("schedulingGates");
  const auto& before = Items(old_spec, "schedulingGates");
  std::size_t index = 0;
  for (const Json& gate : Items(spec, "schedulingGates")) {
    const Path at = gates.Index(index++);
    if (std::find(before.begin(), before.end(), gate) == before.end()) {
      errors->Forbidden(
          at.Child("name"),
          "only deletion is allowed, but found new scheduling gate '" + Str(gate, "name") + "'");
    }
  }
}

void Restore(const Json& old_owner, const char* key, Json* owner) {
  if (Has(old_owner, key)) {
    (*owner)[key] = Get(old_owner, key);
  } else {
    EraseMember(owner, key);
  }
}

void SelectorOfGated(const Json& old_spec, Json* spec, FieldErrors* errors) {
  const Json now = Get(*spec, "nodeSelector");
  if (const Json& before = Get(old_spec, "nodeSelector"); before.is_object()) {
    for (const auto& [key, value] : before.items()) {
      if (Get(now, key) != value) {
        errors->Invalid(
            kSpec.Child("nodeSelector"), now,
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)");
        break;
      }
    }
  }
  Restore(old_spec, "nodeSelector", spec);
}

// The old requirements stand unchanged before the new ones.
bool OnlyAdds(const Json& term, const Json& old_term) {
  bool had_any = false;
  for (const char* list : {"matchExpressions", "matchFields"}) {
    const auto& now = Items(term, list);
    const auto& before = Items(old_term, list);
    had_any |= !before.empty();
    if (now.size() < before.size() || !std::equal(before.begin(), before.end(), now.begin())) {
      return false;
    }
  }
  return had_any || (Items(term, "matchExpressions").empty() && Items(term, "matchFields").empty());
}

void NodeAffinityOfGated(const Json& old_spec, Json* spec, FieldErrors* errors) {
  const Json& old_affinity = Get(old_spec, "affinity");
  const Json& before = Get(old_affinity, "nodeAffinity");
  const Json now = Get(Get(*spec, "affinity"), "nodeAffinity");
  if (now == before) {
    return;
  }
  const Path affinity = kSpec.Child("affinity");
  const Path node = affinity.Child("nodeAffinity");
  const Path required = node.Child(kRequired);
  const Path terms_path = required.Child("nodeSelectorTerms");
  const auto& old_terms = Items(Get(before, kRequired), "nodeSelectorTerms");
  const auto& terms = Items(Get(now, kRequired), "nodeSelectorTerms");
  if (!old_terms.empty() && old_terms.size() != terms.size()) {
    errors->InvalidShown(terms_path,
                         ShownAsGo("[]NodeSelectorTerm", terms.empty() ? Json() : Json(terms)),
                         "no additions/deletions to non-empty NodeSelectorTerms list are allowed");
  } else {
    for (std::size_t i = 0; i < old_terms.size(); ++i) {
      if (!OnlyAdds(terms[i], old_terms[i])) {
        errors->InvalidShown(terms_path.Index(i), ShownAsGo("NodeSelectorTerm", terms[i]),
                             "only additions are allowed (no mutations or deletions)");
      }
    }
  }
  const Json& pods = Get(*spec, "affinity");
  if (!old_affinity.is_object() && !Has(pods, "podAffinity") && !Has(pods, "podAntiAffinity")) {
    EraseMember(spec, "affinity");
  } else if (Json* mine = Find(*spec, {"affinity"}); mine != nullptr && mine->is_object()) {
    Restore(old_affinity, "nodeAffinity", mine);
  } else if (!before.is_null()) {
    (*spec)["affinity"] = {{"nodeAffinity", before}};
  }
}

// `spec` with everything that may change put back to what it was.
Json Munged(const Json& spec, const Json& old_spec, FieldErrors* errors) {
  Json munged = spec;
  for (const char* list : {"containers", "initContainers"}) {
    const auto& before = Items(old_spec, list);
    for (std::size_t i = 0; i < before.size(); ++i) {
      Restore(before[i], "image", &munged[list][i]);
    }
  }
  for (const char* key : {"activeDeadlineSeconds", "schedulingGates", "tolerations"}) {
    Restore(old_spec, key, &munged);
  }
  if (FindInt(old_spec, {"terminationGracePeriodSeconds"}) < 0 &&
      FindInt(spec, {"terminationGracePeriodSeconds"}) == 1) {
    Restore(old_spec, "terminationGracePeriodSeconds", &munged);
  }
  if (!Items(old_spec, "schedulingGates").empty()) {
    SelectorOfGated(old_spec, &munged, errors);
    NodeAffinityOfGated(old_spec, &munged, errors);
  }
  return munged;
}

}  // namespace

void PodAnnotationsUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  constexpr std::string_view kMirror = "kubernetes.io/config.mirror";
  constexpr std::string_view kAppArmor = "container.apparmor.security.beta.kubernetes.io/";
  static const Json kNone = Json::object();
  const Json& now = AnnotationsOf(object) != nullptr ? *AnnotationsOf(object) : kNone;
  const Json& before = AnnotationsOf(old) != nullptr ? *AnnotationsOf(old) : kNone;
  const Path metadata("metadata");
  const Path path = metadata.Child("annotations");
  for (const bool added : {false, true}) {
    for (const auto& [key, value] : (added ? now : before).items()) {
      if (added ? Has(before, key) : Get(now, key) == value) {
        continue;
      }
      if (key.starts_with(kAppArmor)) {
        errors->Forbidden(path.Key(key), added ? "may not add AppArmor annotations"
                                               : "may not remove or update AppArmor annotations");
      }
      if (key == kMirror) {
        errors->Forbidden(path.Key(key), added ? "may not add mirror pod annotation"
                                               : "may not remove or update mirror pod annotation");
      }
    }
  }
  PodAnnotations(object, errors);
}

void PodUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  PodMetadataAndSpec(object, errors);
  PodAnnotationsUpdate(object, old, errors);
  if (ContainersChanged(object, old, "containers", errors) ||
      ContainersChanged(object, old, "initContainers", errors)) {
    return;
  }
  const Json& spec = Get(object, "spec");
  const Json& old_spec = Get(old, "spec");
  if (DeadlineUpdate(spec, old_spec, errors)) {
    return;
  }
  TolerationsUpdate(spec, old_spec, errors);
  GatesUpdate(spec, old_spec, errors);
  const Json munged = Munged(spec, old_spec, errors);
  if (munged != old_spec) {
    errors->Forbidden(
        kSpec,
        "pod updates may not change fields other than "
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        "`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
        "negative)\n" +
            GoDiff("PodSpec", old_spec, munged));
  }
}

}  // namespace sublet::kube::validate
