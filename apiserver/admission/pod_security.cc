// PodSecurity: the Pod Security Standards by namespace labels: enforced on pods, warned about for
// what makes pods.
// Source: k8s.io/pod-security-admission.
#include "kube/pod_security.h"

#include <nlohmann/json.hpp>

#include "apiserver/admission/registry.h"
#include "apiserver/registry/builtin.h"
#include "apiserver/registry/object_codec.h"
#include "kube/field_error.h"
#include "kube/object.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

constexpr std::string_view kLabelPrefix = "pod-security.kubernetes.io/";
// Pods of a namespace that are looked at when its level changes.
constexpr std::size_t kPodsMax = 3000;
constexpr std::size_t kPodsShown = 8;

struct Level {
  std::string name = "privileged";
  std::string version = "latest";
  std::string Text() const { return name + ":" + version; }
  bool operator==(const Level&) const = default;
};

// `label_of(key)`: the value of a label of the namespace, "" when absent. `unsaid` is the level
// then.
template <typename LabelOf>
Level ReadLevel(std::string_view mode, std::string_view unsaid, const LabelOf& label_of) {
  Level level;
  level.name = unsaid;
  const std::string key = std::string(kLabelPrefix) + std::string(mode);
  const std::string_view name = label_of(key);
  if (!name.empty()) {
    level.name = kube::IsPodSecurityLevel(name) ? std::string(name) : "restricted";
  }
  const std::string_view version = label_of(key + "-version");
  if (!version.empty()) {
    level.version = version;
  }
  return level;
}

Level LevelOf(const Json& space, std::string_view mode, std::string_view unsaid = "privileged") {
  return ReadLevel(mode, unsaid, [&](const std::string& key) { return kube::LabelOf(space, key); });
}

Level LevelOf(const ObjectFacts& space, std::string_view mode,
              std::string_view unsaid = "privileged") {
  return ReadLevel(mode, unsaid, [&](const std::string& key) {
    std::string_view value;
    return space.FindLabel(key, &value) ? value : std::string_view();
  });
}

// The pod spec inside an object that makes pods; null for other kinds.
struct Template {
  const Json* spec = nullptr;
  const Json* metadata = nullptr;
};
Template TemplateOf(const AdmissionRequest& request) {
  const Json* base = nullptr;
  const auto& plural = request.resource->plural();
  const auto& group = request.resource->group();
  if (group == "apps" || (group.empty() && plural == "replicationcontrollers") ||
      (group == "batch" && plural == "jobs")) {
    base = kube::Find(*request.object, {"spec", "template"});
  } else if (group == "batch" && plural == "cronjobs") {
    base = kube::Find(*request.object, {"spec", "jobTemplate", "spec", "template"});
  } else if (group.empty() && plural == "podtemplates") {
    base = kube::Find(*request.object, {"template"});
  }
  if (base == nullptr) {
    return {};
  }
  return {kube::Find(*base, {"spec"}), kube::Find(*base, {"metadata"})};
}

std::string Violations(const Level& level, const Json& spec, const Json* metadata) {
  static const Json kNone = Json::object();
  return kube::DescribeViolations(
      kube::CheckPodSecurity(level.name, spec, metadata != nullptr ? *metadata : kNone));
}

// What an update can change without making a pod less safe.
bool IsSignificant(const AdmissionRequest& request) {
  if (request.old_object == nullptr) {
    return true;
  }
  for (const char* field : {"containers", "initContainers", "ephemeralContainers"}) {
    const Json* before = kube::Find(*request.old_object, {"spec", field});
    const Json* after = kube::Find(*request.object, {"spec", field});
    if ((before == nullptr) != (after == nullptr) || (before != nullptr && *before != *after)) {
      return true;
    }
  }
  return false;
}

Result<void> CheckPod(const AdmissionEnvironment& environment, AdmissionRequest& request,
                      const ObjectFacts& space) {
  const Json* spec = kube::Find(*request.object, {"spec"});
  if (spec == nullptr || !IsSignificant(request)) {
    return Ok();
  }
  const Json* metadata = kube::Find(*request.object, {"metadata"});
  const Level enforce = LevelOf(space, "enforce", environment.pod_security_default);
  if (const auto why = Violations(enforce, *spec, metadata); !why.empty()) {
    return AdmissionForbidden(request, "violates PodSecurity \"" + enforce.Text() + "\": " + why);
  }
  const Level warn = LevelOf(space, "warn");
  if (const auto why = Violations(warn, *spec, metadata); !why.empty()) {
    request.warnings->push_back("would violate PodSecurity \"" + warn.Text() + "\": " + why);
  }
  return Ok();
}

void WarnTemplate(AdmissionRequest& request, const ObjectFacts& space, const Template& pod) {
  const Level warn = LevelOf(space, "warn");
  if (const auto why = Violations(warn, *pod.spec, pod.metadata); !why.empty()) {
    request.warnings->push_back("would violate PodSecurity \"" + warn.Text() + "\": " + why);
  }
}

Result<void> CheckLabels(const AdmissionRequest& request) {
  kube::FieldErrors errors;
  for (const char* mode : {"enforce", "audit", "warn"}) {
    const std::string label = std::string(kLabelPrefix) + mode;
    const auto value = kube::LabelOf(*request.object, label);
    if (!value.empty() && !kube::IsPodSecurityLevel(value)) {
      errors.Invalid("metadata.labels[" + label + "]", Json(std::string(value)),
                     "must be one of privileged, baseline, restricted");
    }
  }
  if (!errors.empty()) {
    return Invalid("", "Namespace", request.name, errors.Take());
  }
  return Ok();
}

// A stricter level does not touch running pods; whoever sets it is told which would not pass.
void WarnExisting(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  const Level level = LevelOf(*request.object, "enforce");
  if (level == LevelOf(*request.old_object, "enforce") || level.name == "privileged") {
    return;
  }
  const auto pods = ListObjects(environment, "", "pods", request.name);
  std::map<std::string, std::vector<std::string>> by_reason;
  for (std::size_t i = 0; i < pods.size() && i < kPodsMax; ++i) {
    const Json pod = ParseStored(*pods[i].value);
    const Json* spec = kube::Find(pod, {"spec"});
    if (spec == nullptr) {
      continue;
    }
    std::string reasons;
    for (const auto& violation :
         kube::CheckPodSecurity(level.name, *spec, *kube::Find(pod, {"metadata"}))) {
      reasons += (reasons.empty() ? "" : ", ") + violation.reason;
    }
    if (!reasons.empty()) {
      by_reason[reasons].push_back(std::string(kube::NameOf(pod)));
    }
  }
  if (by_reason.empty()) {
    return;
  }
  request.warnings->push_back("existing pods in namespace \"" + request.name +
                              "\" violate the new PodSecurity enforce level \"" + level.Text() +
                              "\"");
  std::size_t shown = 0;
  for (const auto& [reasons, names] : by_reason) {
    if (shown++ >= kPodsShown) {
      break;
    }
    std::string line = names.front();
    if (names.size() == 2) {
      line += " (and 1 other pod)";
    } else if (names.size() > 2) {
      line += " (and " + std::to_string(names.size() - 1) + " other pods)";
    }
    request.warnings->push_back(line + ": " + reasons);
  }
}

Result<void> ValidateLevels(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (IsMain(request, "", "namespaces")) {
    SUBLET_RETURN_IF_ERROR(CheckLabels(request));
    if (request.operation == Operation::kUpdate) {
      WarnExisting(environment, request);
    }
    return Ok();
  }
  const bool is_pod = request.Is("", "pods") &&
                      (request.subresource.empty() || request.subresource == "ephemeralcontainers");
  const Template pod = is_pod || !request.subresource.empty() ? Template() : TemplateOf(request);
  if (!is_pod && pod.spec == nullptr) {
    return Ok();
  }
  const auto record =
      environment.store->Get(StoragePrefix({"", "namespaces"}) + request.namespace_name);
  if (!record) {
    return Ok();
  }
  const ObjectFacts& space = FactsOf(*record->value);
  if (is_pod) {
    return CheckPod(environment, request, space);
  }
  WarnTemplate(request, space, pod);
  return Ok();
}

}  // namespace

AdmissionPlugin PodSecurity(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "PodSecurity";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate});
  plugin.validate = [environment](AdmissionRequest& request) {
    return ValidateLevels(environment, request);
  };
  return plugin;
}

}  // namespace sublet::apiserver
