// Stateful sets.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/label_selector.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

void UpdateStrategy(const Json& strategy, FieldErrors* errors) {
  const Path path = kSpec.Child("updateStrategy");
  const std::string type = Str(strategy, "type");
  if (type == "OnDelete") {
    if (Has(strategy, "rollingUpdate")) {
      errors->Invalid(path.Child("rollingUpdate"), Get(strategy, "rollingUpdate"),
                      "only allowed for updateStrategy 'RollingUpdate'");
    }
    return;
  }
  if (type != "RollingUpdate") {
    const Json& shown = Get(strategy, "rollingUpdate");
    const std::string rolling_text =
        !shown.is_object()
            ? "null"
            : "{\"Partition\":" +
                  (Has(shown, "partition") ? Dump(Get(shown, "partition")) : "null") +
                  ",\"MaxUnavailable\":null}";
    errors->InvalidShown(path,
                         "{\"Type\":" + GoQuote(type) + ",\"RollingUpdate\":" + rolling_text + "}",
                         "must be 'RollingUpdate' or 'OnDelete'");
    return;
  }
  const Json& rolling = Get(strategy, "rollingUpdate");
  if (!rolling.is_object()) {
    return;
  }
  const Path rolling_path = path.Child("rollingUpdate");
  const Path partition_path = rolling_path.Child("partition");
  NotNegative(partition_path, Get(rolling, "partition"), errors);
}

// The template as its controller will use it: host names are the set's, volumes the claims'.
Json EffectiveTemplate(const Json& spec) {
  Json pod_template = Get(spec, "template");
  Json* pod = Find(pod_template, {"spec"});
  if (pod == nullptr || !pod->is_object()) {
    return pod_template;
  }
  EraseMember(pod, "subdomain");
  EraseMember(pod, "hostname");
  Json volumes = Json::array();
  for (const Json& claim : Items(spec, "volumeClaimTemplates")) {
    const std::string name(FindString(claim, {"metadata", "name"}));
    if (std::any_of(volumes.begin(), volumes.end(),
                    [&](const Json& one) { return one["name"] == name; })) {
      continue;
    }
    volumes.push_back({{"name", name}, {"persistentVolumeClaim", {{"claimName", name}}}});
  }
  const std::size_t claims = volumes.size();
  for (const Json& volume : Items(*pod, "volumes")) {
    const bool hidden =
        std::any_of(volumes.begin(), volumes.begin() + static_cast<std::ptrdiff_t>(claims),
                    [&](const Json& claim) { return claim["name"] == Get(volume, "name"); });
    if (!hidden) {
      volumes.push_back(volume);
    }
  }
  if (!volumes.empty()) {
    (*pod)["volumes"] = std::move(volumes);
  }
  return pod_template;
}

void Template(const Json& spec, FieldErrors* errors) {
  const Json& selector = Get(spec, "selector");
  const auto parsed = kube::LabelSelector::FromJson(&selector);
  FieldErrors problems;
  LabelSelector(kSpec, selector, &problems);
  if (!parsed.ok() || !problems.empty()) {
    errors->InvalidShown(kSpec.Child("selector"), ShownSelector(selector), "");
    return;
  }
  const Json& labels = Get(Get(Get(spec, "template"), "metadata"), "labels");
  const Path path = kSpec.Child("template");
  if (!parsed->empty() && !parsed->Matches(&labels)) {
    const Path metadata = path.Child("metadata");
    errors->Invalid(metadata.Child("labels"), labels,
                    "`selector` does not match template `labels`");
  }
  PodTemplate(path, EffectiveTemplate(spec), errors);
  // Once more, as upstream: messages do not show it, the list of causes does.
  const Json& metadata = Get(Get(spec, "template"), "metadata");
  Labels(path.Child("labels"), Get(metadata, "labels"), errors);
  Annotations(path.Child("annotations"), Get(metadata, "annotations"), errors);
}

void Spec(const Json& spec, bool created, FieldErrors* errors) {
  const std::string management = Str(spec, "podManagementPolicy");
  if (management != "OrderedReady" && management != "Parallel") {
    errors->Invalid(kSpec.Child("podManagementPolicy"), management,
                    "must be 'OrderedReady' or 'Parallel'");
  }
  UpdateStrategy(Get(spec, "updateStrategy"), errors);
  const Path retention = kSpec.Child("persistentVolumeClaimRetentionPolicy");
  const Json& policy = Get(spec, "persistentVolumeClaimRetentionPolicy");
  for (const char* when : {"whenDeleted", "whenScaled"}) {
    OneOf(retention.Child(when), Str(policy, when), {"Retain", "Delete"}, false, errors);
  }
  if (created) {
    const Path claims = kSpec.Child("volumeClaimTemplates");
    std::size_t index = 0;
    for (const Json& claim : Items(spec, "volumeClaimTemplates")) {
      const Path at = claims.Index(index++);
      ClaimSpec(at.Child("spec"), Get(claim, "spec"), errors);
    }
  }
  NotNegative(spec, "replicas", kSpec, errors);
  NotNegative(spec, "minReadySeconds", kSpec, errors);
  if (const Json& ordinals = Get(spec, "ordinals"); ordinals.is_object()) {
    NotNegative(ordinals, "start", kSpec.Child("ordinals"), errors);
  }
  if (const std::string name = Str(spec, "serviceName"); created && !name.empty()) {
    Check(kSpec.Child("serviceName"), name, &IsDns1123Label, errors);
  }
  const Path selector_path = kSpec.Child("selector");
  if (const Json& selector = Get(spec, "selector"); !selector.is_object()) {
    errors->Required(selector_path);
  } else {
    LabelSelector(selector_path, selector, errors);
    if (IsEmptySelector(selector)) {
      errors->Invalid(selector_path, selector, "empty selector is invalid for statefulset");
    }
  }
  Template(spec, errors);
  RestartAlways(spec, "StatefulSet", errors);
}

}  // namespace

void StatefulSet(const Json& object, FieldErrors* errors) {
  Spec(Get(object, "spec"), true, errors);
}

void StatefulSetUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  Spec(Get(object, "spec"), false, errors);
  Json now = Get(object, "spec");
  Json before = Get(old, "spec");
  for (const char* field :
       {"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy", "minReadySeconds"}) {
    EraseMember(&now, field);
    EraseMember(&before, field);
  }
  if (now != before) {
    errors->Forbidden(kSpec,
                      "updates to statefulset spec for fields other than 'replicas', 'ordinals', "
                      "'template', 'updateStrategy', 'revisionHistoryLimit', "
                      "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden");
  }
}

}  // namespace sublet::kube::validate
