// Deployments, replica sets, daemon sets and replication controllers.
#include <nlohmann/json.hpp>
#include <optional>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/label_selector.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

// Selector present, well-formed and matching the template's labels; reports nothing twice.
void Selector(const Json& spec, std::string_view empty_text, FieldErrors* errors) {
  const Path path = kSpec.Child("selector");
  const Json& selector = Get(spec, "selector");
  if (!selector.is_object()) {
    errors->Required(path);
  } else {
    LabelSelector(path, selector, errors);
    if (IsEmptySelector(selector)) {
      errors->Invalid(path, Json::object(), empty_text);
    }
  }
}

// The set's selector as pods are matched by it; reports and gives nothing when it cannot be read.
std::optional<kube::LabelSelector> Parsed(const Json& spec, std::string_view text,
                                          FieldErrors* errors) {
  const Json& selector = Get(spec, "selector");
  auto parsed = kube::LabelSelector::FromJson(&selector);
  FieldErrors problems;
  LabelSelector(kSpec, selector, &problems);
  if (!parsed.ok() || !problems.empty()) {
    errors->InvalidShown(kSpec.Child("selector"), ShownSelector(selector), text);
    return std::nullopt;
  }
  return std::move(*parsed);
}

void LabelsMatch(const Json& spec, const kube::LabelSelector& selector, FieldErrors* errors) {
  const Json& labels = Get(Get(Get(spec, "template"), "metadata"), "labels");
  if (!selector.empty() && !selector.Matches(&labels)) {
    const Path template_path = kSpec.Child("template");
    const Path metadata = template_path.Child("metadata");
    errors->Invalid(metadata.Child("labels"), labels,
                    "`selector` does not match template `labels`");
  }
}

// As Go prints the structure; what is not set in it is 0.
std::string GoStrategy(const Json& strategy) {
  const Json& rolling = Get(strategy, "rollingUpdate");
  const auto shown = [&](const char* key) {
    return Has(rolling, key) ? Dump(Get(rolling, key)) : std::string("0");
  };
  return "{\"Type\":" + GoQuote(Str(strategy, "type")) + ",\"RollingUpdate\":" +
         (rolling.is_object() ? "{\"MaxUnavailable\":" + shown("maxUnavailable") +
                                    ",\"MaxSurge\":" + shown("maxSurge") + "}"
                              : "null") +
         "}";
}

void DeploymentStrategy(const Json& spec, FieldErrors* errors) {
  const Json& strategy = Get(spec, "strategy");
  const Path path = kSpec.Child("strategy");
  const std::string type = Str(strategy, "type");
  const Json& rolling = Get(strategy, "rollingUpdate");
  const Path rolling_path = path.Child("rollingUpdate");
  if (type == "Recreate") {
    if (rolling.is_object()) {
      errors->Forbidden(rolling_path, "may not be specified when strategy `type` is 'Recreate'");
    }
    return;
  }
  if (type != "RollingUpdate") {
    errors->NotSupportedShown(path, GoStrategy(strategy), {"Recreate", "RollingUpdate"});
    return;
  }
  const Path unavailable_path = rolling_path.Child("maxUnavailable");
  const Path surge_path = rolling_path.Child("maxSurge");
  const Json& unavailable = Get(rolling, "maxUnavailable");
  const Json& surge = Get(rolling, "maxSurge");
  NumberOrPercent(unavailable_path, unavailable, errors);
  NumberOrPercent(surge_path, surge, errors);
  const bool surge_readable = !surge.is_string() || IsPercent(surge.get<std::string>()).empty();
  if (ScaledOf100(unavailable) == 0 && ScaledOf100(surge) == 0 && surge_readable) {
    errors->Invalid(unavailable_path, unavailable, "may not be 0 when `maxSurge` is 0");
  }
  AtMostAll(unavailable_path, unavailable, errors);
}

void ReplicaSetTemplate(const Json& spec, FieldErrors* errors) {
  const auto selector = Parsed(spec, "invalid label selector", errors);
  if (!selector) {
    return;
  }
  LabelsMatch(spec, *selector, errors);
  PodTemplate(kSpec.Child("template"), Get(spec, "template"), errors);
  RestartAlways(spec, "ReplicaSet", errors);
}

void CheckDeploymentSpec(const Json& spec, FieldErrors* errors) {
  NotNegative(spec, "replicas", kSpec, errors);
  Selector(spec, "empty selector is invalid for deployment", errors);
  ReplicaSetTemplate(spec, errors);
  DeploymentStrategy(spec, errors);
  NotNegative(spec, "minReadySeconds", kSpec, errors);
  NotNegative(spec, "revisionHistoryLimit", kSpec, errors);
  if (const Json& deadline = Get(spec, "progressDeadlineSeconds"); deadline.is_number_integer()) {
    NotNegative(spec, "progressDeadlineSeconds", kSpec, errors);
    if (deadline.get<std::int64_t>() <= FindInt(spec, {"minReadySeconds"})) {
      errors->Invalid(kSpec.Child("progressDeadlineSeconds"), deadline,
                      "must be greater than minReadySeconds");
    }
  }
}

void SelectorImmutable(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& selector = Get(Get(object, "spec"), "selector");
  if (selector != Get(Get(old, "spec"), "selector")) {
    errors->InvalidShown(kSpec.Child("selector"), ShownAsGo("*LabelSelector", selector),
                         kImmutable);
  }
}

}  // namespace

void Deployment(const Json& object, FieldErrors* errors) {
  CheckDeploymentSpec(Get(object, "spec"), errors);
}

void DeploymentUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  Deployment(object, errors);
  SelectorImmutable(object, old, errors);
}

void ReplicaSet(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  NotNegative(spec, "replicas", kSpec, errors);
  NotNegative(spec, "minReadySeconds", kSpec, errors);
  Selector(spec, "empty selector is invalid for deployment", errors);
  ReplicaSetTemplate(spec, errors);
}

void ReplicaSetUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  ReplicaSet(object, errors);
  SelectorImmutable(object, old, errors);
}

void DaemonSet(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Path selector_path = kSpec.Child("selector");
  const Json& selector = Get(spec, "selector");
  LabelSelector(selector_path, selector, errors);
  FieldErrors problems;
  LabelSelector(selector_path, selector, &problems);
  if (const auto parsed = kube::LabelSelector::FromJson(&selector);
      parsed.ok() && problems.empty()) {
    LabelsMatch(spec, *parsed, errors);
  }
  if (selector.is_object() && IsEmptySelector(selector)) {
    errors->InvalidShown(selector_path, ShownAsGo("*LabelSelector", selector),
                         "empty selector is invalid for daemonset");
  }
  PodTemplate(kSpec.Child("template"), Get(spec, "template"), errors);
  RestartAlways(spec, "DaemonSet", errors);
  NotNegative(spec, "minReadySeconds", kSpec, errors);
  const Json& strategy = Get(spec, "updateStrategy");
  const Path path = kSpec.Child("updateStrategy");
  const std::string type = Str(strategy, "type");
  if (type == "RollingUpdate") {
    const Json& rolling = Get(strategy, "rollingUpdate");
    const Path rolling_path = path.Child("rollingUpdate");
    const Path unavailable_path = rolling_path.Child("maxUnavailable");
    const Path surge_path = rolling_path.Child("maxSurge");
    const Json& unavailable = Get(rolling, "maxUnavailable");
    const Json& surge = Get(rolling, "maxSurge");
    NumberOrPercent(unavailable_path, unavailable, errors);
    NumberOrPercent(surge_path, surge, errors);
    if (ScaledOf100(unavailable) == 0 && ScaledOf100(surge) == 0) {
      errors->Required(unavailable_path, "cannot be 0 when maxSurge is 0");
    } else if (ScaledOf100(unavailable) != 0 && ScaledOf100(surge) != 0) {
      errors->Invalid(surge_path, surge, "may not be set when maxUnavailable is non-zero");
    }
    AtMostAll(unavailable_path, unavailable, errors);
    AtMostAll(surge_path, surge, errors);
  } else if (type != "OnDelete") {
    errors->NotSupportedShown(path, GoStrategy(strategy), {"RollingUpdate", "OnDelete"});
  }
  NotNegative(spec, "revisionHistoryLimit", kSpec, errors);
}

void DaemonSetUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  SelectorImmutable(object, old, errors);
  DaemonSet(object, errors);
}

void ReplicationController(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  NotNegative(spec, "minReadySeconds", kSpec, errors);
  const Json& selector = Get(spec, "selector");
  if (!selector.is_object() || selector.empty()) {
    errors->Required(kSpec.Child("selector"));
  }
  NotNegative(spec, "replicas", kSpec, errors);
  const Json& pod_template = Get(spec, "template");
  const Path template_path = kSpec.Child("template");
  if (!pod_template.is_object()) {
    errors->Required(template_path);
    return;
  }
  const Json& labels = Get(Get(pod_template, "metadata"), "labels");
  if (selector.is_object() && !selector.empty() &&
      !kube::LabelSelector::FromLabels(&selector).Matches(&labels)) {
    const Path metadata = template_path.Child("metadata");
    errors->Invalid(metadata.Child("labels"), labels,
                    "`selector` does not match template `labels`");
  }
  PodTemplate(template_path, pod_template, errors);
  RestartAlways(spec, "ReplicationController", errors);
}

void ReplicationControllerUpdate(const Json& object, const Json&, FieldErrors* errors) {
  ReplicationController(object, errors);
}

void ControllerRevision(const Json& object, FieldErrors* errors) {
  if (!Has(object, "data")) {
    errors->Required(Path("data"), "data is mandatory");
  }
  NotNegative(Path("revision"), Get(object, "revision"), errors);
}

void ControllerRevisionUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  ControllerRevision(object, errors);
  if (!SameMember(object, old, "data")) {
    errors->Invalid(Path("data"), Get(object, "data"), kImmutable);
  }
}

}  // namespace sublet::kube::validate
