// Resources of the whole pod, and a resize of its containers (pods/resize).
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "kube/kinds/go_diff.h"
#include "kube/kinds/logic_functions.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/kinds/validate_pod.h"
#include "kube/object.h"
#include "kube/pod_resources.h"

namespace sublet::kube::validate {
namespace {

bool IsOfPods(std::string_view name) {
  return name == "cpu" || name == "memory" || name.starts_with("hugepages-");
}

// Sums over the containers, without what the pod says itself.
ResourceAmounts Sums(const Json& spec, std::string_view which) {
  Json containers = spec;
  EraseMember(&containers, "resources");
  EraseMember(&containers, "overhead");
  return PodAmounts({{"spec", std::move(containers)}}, which);
}

// What the containers ask for fits into what the pod asks for.
void Consistency(const Path& path, const Json& spec, FieldErrors* errors) {
  const Json& own = Get(spec, "resources");
  for (const char* which : {"requests", "limits"}) {
    const Path list = path.Child(which);
    for (const auto& [name, sum] : Sums(spec, which)) {
      const std::string text = Str(Get(own, which), name);
      const bool requests = std::string_view(which) == "requests";
      if (!text.empty() && (requests || name.starts_with("hugepages-")) &&
          sum > Quantity::ParseOrZero(text)) {
        errors->Invalid(list.Key(name), text,
                        "must be greater than or equal to aggregate container " +
                            std::string(which) + " of " + sum.Text());
      }
    }
  }
  const Path containers = path.Child("containers");
  std::size_t index = 0;
  for (const Json& container : Items(spec, "containers")) {
    const Path at = containers.Index(index++);
    for (const auto& [name, limit] : Get(Get(container, "resources"), "limits").items()) {
      const std::string most = Str(Get(own, "limits"), name);
      const std::string text = limit.get<std::string>();
      if (!most.empty() && Quantity::ParseOrZero(text) > Quantity::ParseOrZero(most)) {
        const Path key = at.Key(name);
        errors->Invalid(key.Child("limits"), text,
                        "must be less than or equal to pod limits of " + most);
      }
    }
  }
}

bool SomeRemoved(const Json& now, const Json& before) {
  for (const auto& [name, value] : before.items()) {
    if (!Has(now, name)) {
      return true;
    }
  }
  return false;
}

// True when the containers are not the same ones in the same order.
bool Reordered(const Json& spec, const Json& old_spec, FieldErrors* errors) {
  const std::size_t before_all = errors->size();
  for (const char* list : {"containers", "initContainers"}) {
    const auto& now = Items(spec, list);
    const auto& before = Items(old_spec, list);
    const Path path = kSpec.Child(list);
    if (now.size() != before.size()) {
      errors->Forbidden(path, std::string(list) + " may not be added or removed on resize");
      continue;
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      const Path at = path.Index(i);
      if (Str(now[i], "name") != Str(before[i], "name")) {
        errors->Forbidden(at.Child("name"),
                          std::string(list) + " may not be renamed or reordered on resize");
      }
    }
  }
  return errors->size() != before_all;
}

void Removed(const Path& resources, const Json& now, const Json& before, FieldErrors* errors) {
  for (const char* list : {"requests", "limits"}) {
    if (SomeRemoved(Get(Get(now, "resources"), list), Get(Get(before, "resources"), list))) {
      errors->Forbidden(resources.Child(list),
                        "resource " + std::string(list) + " cannot be removed");
    }
  }
}

// `owner` with its cpu and memory put back to those of `old`; claims do not survive, as upstream.
Json WithOldCompute(const Json& owner, const Json& old) {
  Json out = owner;
  Json resources = Json::object();
  for (const char* list : {"limits", "requests"}) {
    Json amounts = Get(Get(owner, "resources"), list);
    const Json& before = Get(Get(old, "resources"), list);
    for (const char* name : {"cpu", "memory"}) {
      if (amounts.is_object()) {
        EraseMember(&amounts, name);
      }
      if (Has(before, name)) {
        amounts[name] = Get(before, name);
      }
    }
    if (!amounts.empty()) {
      resources[list] = std::move(amounts);
    }
  }
  out["resources"] = std::move(resources);
  return out;
}

bool SameContainer(const Json& a, const Json& b) {
  const auto plain = [](Json container) {
    if (Get(container, "resources").empty()) {
      EraseMember(&container, "resources");
    }
    return container;
  };
  return plain(a) == plain(b);
}

bool RestartsToResize(const Json& container) {
  const auto& policies = Items(container, "resizePolicy");
  return std::any_of(policies.begin(), policies.end(), [](const Json& policy) {
    return Str(policy, "restartPolicy") == "RestartContainer";
  });
}

// Only cpu and memory differ between two lists of the same containers.
void OnlyCompute(const Json& spec, const Json& old_spec, FieldErrors* errors) {
  for (const char* list : {"initContainers", "containers"}) {
    const Path path = kSpec.Child(list);
    const auto& now = Items(spec, list);
    for (std::size_t i = 0; i < now.size(); ++i) {
      const Path at = path.Index(i);
      const Path resources = at.Child("resources");
      Removed(resources, now[i], Items(old_spec, list)[i], errors);
    }
  }
  const auto& containers = Items(spec, "containers");
  for (std::size_t i = 0; i < containers.size(); ++i) {
    const Json& before = Items(old_spec, "containers")[i];
    if (!SameContainer(WithOldCompute(containers[i], before), before)) {
      errors->Forbidden(kSpec, "only cpu and memory resources are mutable");
    }
  }
  const Path path = kSpec.Child("initContainers");
  const auto& inits = Items(spec, "initContainers");
  for (std::size_t i = 0; i < inits.size(); ++i) {
    const Json& before = Items(old_spec, "initContainers")[i];
    if (!SameContainer(WithOldCompute(inits[i], before), before)) {
      errors->Forbidden(path.Index(i),
                        "only cpu and memory resources for init or sidecar containers are mutable");
    }
    if (Str(inits[i], "restartPolicy") != "Always" && !SameContainer(inits[i], before) &&
        RestartsToResize(inits[i])) {
      errors->Forbidden(path.Index(i),
                        "non-sidecar init containers with a resize policy of RestartContainer "
                        "cannot be resized");
    }
  }
}

// A node that resizes says so in the status of what runs there.
bool NodeResizes(const Json& pod) {
  for (const Json& status : Items(Get(pod, "status"), "containerStatuses")) {
    if (Has(Get(status, "state"), "running")) {
      return Has(status, "resources");
    }
  }
  return true;
}

bool HasPodResources(const Json& spec) {
  const Json& own = Get(spec, "resources");
  return !Get(own, "requests").empty() || !Get(own, "limits").empty();
}

void PodLevelResize(const Json& spec, const Json& old_spec, FieldErrors* errors) {
  const Path path = kSpec.Child("resources");
  const Json& before = Get(old_spec, "resources");
  if (before.is_object() && !Has(spec, "resources")) {
    return errors->Forbidden(path, "pod-level resources cannot be removed");
  }
  for (const char* list : {"requests", "limits"}) {
    if (SomeRemoved(Get(Get(spec, "resources"), list), Get(before, list))) {
      errors->Forbidden(path.Child(list),
                        "pod-level resource " + std::string(list) + " cannot be removed");
    }
  }
  const Json now = WithOldCompute({{"resources", Get(spec, "resources")}}, old_spec);
  if (!SameContainer(now, {{"resources", before}})) {
    errors->Forbidden(kSpec, "only cpu and memory resources are mutable at pod-level");
  }
}

}  // namespace

void PodResources(const Path& path, const Json& spec, FieldErrors* errors) {
  const Json& own = Get(spec, "resources");
  if (!own.is_object()) {
    return;
  }
  if (FindString(spec, {"os", "name"}) == "windows") {
    return errors->Forbidden(path, "may not be set for a windows pod");
  }
  if (Has(own, "claims")) {
    errors->Forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level");
  }
  Resources(path, own, errors, [](const Path& at, const std::string& name, FieldErrors* out) {
    const std::size_t before = out->size();
    Check(at, name, &IsQualifiedName, out);
    if (out->size() == before && name.find('/') == std::string::npos && !IsStandardResource(name)) {
      out->Invalid(at, name, "must be a standard resource type or fully qualified");
    }
    if (out->size() == before && !IsOfPods(name)) {
      out->NotSupported(at, name, {"cpu", "hugepages-", "memory"});
    }
  });
  Consistency(path, spec, errors);
}

void PodResize(const Json& object, const Json& old, FieldErrors* errors) {
  PodMetadataAndSpec(object, errors);
  const Path whole("[]");  // as Go writes a path without a name
  const Json& spec = Get(object, "spec");
  const Json& old_spec = Get(old, "spec");
  if (!AnnotationOf(old, "kubernetes.io/config.mirror").empty()) {
    errors->Take();
    return errors->Forbidden(whole, "static pods cannot be resized");
  }
  if (FindString(old_spec, {"os", "name"}) == "windows") {
    errors->Take();
    return errors->Forbidden(whole, "windows pods cannot be resized");
  }
  const std::string old_class(FindString(old, {"status", "qosClass"}));
  if (logic::QosClassOf(spec) != (old_class.empty() ? logic::QosClassOf(old_spec) : old_class)) {
    errors->Invalid(kSpec, old_class, "Pod QOS Class may not change as a result of resizing");
  }
  if (!NodeResizes(old)) {
    errors->Forbidden(kSpec, "Pod running on node without support for resize");
  }
  if (HasPodResources(spec) || HasPodResources(old_spec)) {
    PodLevelResize(spec, old_spec, errors);
  }
  if (!Reordered(spec, old_spec, errors)) {
    OnlyCompute(spec, old_spec, errors);
  }
}

void PodEphemeralContainers(const Json& object, const Json& old, FieldErrors* errors) {
  PodMetadataAndSpec(object, errors);
  PodAnnotationsUpdate(object, old, errors);
  if (!AnnotationOf(old, "kubernetes.io/config.mirror").empty()) {
    errors->Take();
    return errors->Forbidden(Path("[]"), "static pods do not support ephemeral containers");
  }
  const Path path = kSpec.Child("ephemeralContainers");
  std::map<std::string, const Json*> now;  // the last of each name
  for (const Json& one : Items(Get(object, "spec"), "ephemeralContainers")) {
    now[Str(one, "name")] = &one;
  }
  GoTextCost cost;  // of all the texts together
  for (const Json& before : Items(Get(old, "spec"), "ephemeralContainers")) {
    const std::string name = Str(before, "name");
    const auto same = now.find(name);
    if (same == now.end()) {
      errors->Forbidden(path,
                        "existing ephemeral containers " + GoQuote(name) + " may not be removed\n");
    } else if (*same->second != before) {
      errors->Forbidden(path, "existing ephemeral containers " + GoQuote(name) +
                                  " may not be changed\n" +
                                  GoDiff("EphemeralContainer", before, *same->second, &cost));
    }
  }
}

void PodSubresource(std::string_view subresource, const Json& object, const Json& old,
                    FieldErrors* errors) {
  if (subresource == "resize") {
    PodResize(object, old, errors);
  } else if (subresource == "ephemeralcontainers") {
    PodEphemeralContainers(object, old, errors);
  } else {
    PodMetadataAndSpec(object, errors);
  }
}

}  // namespace sublet::kube::validate
