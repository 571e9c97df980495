// Pods as objects: what may be created, and the few fields that may change later.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/logic_functions.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

bool HasOuterSpace(const std::string& text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  return !text.empty() && (space(text.front()) || space(text.back()));
}

void ImagesWithoutSpace(const Json& spec, FieldErrors* errors) {
  for (const char* list : {"containers", "initContainers"}) {
    const Path containers = kSpec.Child(list);
    std::size_t index = 0;
    for (const Json& container : Items(spec, list)) {
      const Path at = containers.Index(index++);
      const std::string image = Str(container, "image");
      if (HasOuterSpace(image)) {
        errors->Invalid(at.Child("image"), image, "must not have leading or trailing whitespace");
      }
    }
  }
}

void MetadataAndSpec(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  PodSpec(kSpec, spec, std::string(NameOf(object)), true, errors);
  if (Str(spec, "serviceAccountName").empty()) {
    const Path volumes = kSpec.Child("volumes");
    std::size_t i = 0;
    for (const Json& volume : Items(spec, "volumes")) {
      const Path at = volumes.Index(i++);
      const Path projected = at.Child("projected");
      const Path sources = projected.Child("sources");
      std::size_t j = 0;
      for (const Json& source : Items(Get(volume, "projected"), "sources")) {
        const Path here = sources.Index(j++);
        if (Has(source, "serviceAccountToken")) {
          errors->Forbidden(here.Child("serviceAccountToken"),
                            "must not be specified when serviceAccountName is not set");
        }
      }
    }
  }
  ImagesWithoutSpace(spec, errors);
}

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
  for (const Json& old : Items(old_spec, "tolerations")) {
    const auto& now = Items(spec, "tolerations");
    const bool kept = std::any_of(now.begin(), now.end(), [&](const Json& one) {
      return without_seconds(one) == without_seconds(old);
    });
    if (!kept) {
      errors->Forbidden(kSpec.Child("tolerations"),
                        "existing toleration can not be modified except its tolerationSeconds");
      return;
    }
  }
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

// `spec` with everything that may change put back to what it was.
Json Munged(const Json& spec, const Json& old_spec) {
  Json munged = spec;
  const auto restore = [&](const char* key) {
    if (Has(old_spec, key)) {
      munged[key] = Get(old_spec, key);
    } else {
      EraseMember(&munged, key);
    }
  };
  for (const char* list : {"containers", "initContainers"}) {
    const auto& before = Items(old_spec, list);
    for (std::size_t i = 0; i < before.size(); ++i) {
      munged[list][i]["image"] = Get(before[i], "image");
    }
  }
  restore("activeDeadlineSeconds");
  restore("schedulingGates");
  restore("tolerations");
  if (FindInt(old_spec, {"terminationGracePeriodSeconds"}) < 0 &&
      FindInt(spec, {"terminationGracePeriodSeconds"}) == 1) {
    restore("terminationGracePeriodSeconds");
  }
  if (!Items(old_spec, "schedulingGates").empty()) {
    restore("nodeSelector");  // a pod that waits at a gate may be steered
    restore("affinity");
  }
  return munged;
}

// The members that differ, for a reader. Differs: Kubernetes prints a Go value diff here.
std::string Changed(const Json& munged, const Json& old_spec) {
  std::string out;
  for (const Json& operation : Json::diff(old_spec, munged)) {
    out += "\n  " + Str(operation, "op") + " spec" + Str(operation, "path");
    if (out.size() > 2000) {
      break;
    }
  }
  return out;
}

}  // namespace

void Pod(const Json& object, FieldErrors* errors) {
  MetadataAndSpec(object, errors);
  const Json& spec = Get(object, "spec");
  if (!Items(spec, "ephemeralContainers").empty()) {
    errors->Forbidden(kSpec.Child("ephemeralContainers"), "cannot be set on create");
  }
  if (!Str(spec, "nodeName").empty() && !Items(spec, "schedulingGates").empty()) {
    errors->Forbidden(kSpec.Child("nodeName"),
                      "cannot be set until all schedulingGates have been cleared");
  }
}

void PodUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  MetadataAndSpec(object, errors);
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
  const Json munged = Munged(spec, old_spec);
  if (munged != old_spec) {
    errors->Forbidden(
        kSpec,
        "pod updates may not change fields other than "
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        "`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
        "negative)" +
            Changed(munged, old_spec));
  }
}

void PodStatus(const Json& object, const Json& old, FieldErrors* errors) {
  const Path status("status");
  const std::string nominated(FindString(object, {"status", "nominatedNodeName"}));
  if (!nominated.empty() && nominated != FindString(old, {"status", "nominatedNodeName"})) {
    Check(status.Child("nominatedNodeName"), nominated, &IsDns1123Subdomain, errors);
  }
  const Path ips = status.Child("podIPs");
  std::size_t index = 0;
  for (const Json& ip : Items(Get(object, "status"), "podIPs")) {
    Ip(ips.Index(index++), Str(ip, "ip"), errors);
  }
}

void PodSubresource(std::string_view subresource, const Json& object, const Json& old,
                    FieldErrors* errors) {
  MetadataAndSpec(object, errors);
  if (subresource == "resize" &&
      logic::QosClassOf(Get(object, "spec")) != logic::QosClassOf(Get(old, "spec"))) {
    errors->Invalid(kSpec, std::string(FindString(old, {"status", "qosClass"})),
                    "Pod QOS Class may not change as a result of resizing");
  }
  if (subresource != "ephemeralcontainers") {
    return;
  }
  const Path path = kSpec.Child("ephemeralContainers");
  const auto& now = Items(Get(object, "spec"), "ephemeralContainers");
  for (const Json& before : Items(Get(old, "spec"), "ephemeralContainers")) {
    const std::string name = Str(before, "name");
    const auto same = std::find_if(now.begin(), now.end(),
                                   [&](const Json& one) { return Str(one, "name") == name; });
    if (same == now.end()) {
      errors->Forbidden(path,
                        "existing ephemeral containers " + GoQuote(name) + " may not be removed\n");
    } else if (*same != before) {
      errors->Forbidden(path,
                        "existing ephemeral containers " + GoQuote(name) + " may not be changed\n");
    }
  }
}

void PodTemplateObject(const Json& object, FieldErrors* errors) {
  PodTemplate(Path("template"), Get(object, "template"), errors);
}

void PodTemplateObjectUpdate(const Json& object, const Json&, FieldErrors* errors) {
  PodTemplateObject(object, errors);
}

}  // namespace sublet::kube::validate
