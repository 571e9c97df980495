// Priority, DefaultTolerationSeconds and RuntimeClass: what the cluster's objects say about a pod
// is written into it. Source: k8s.io/kubernetes
// plugin/pkg/admission/{priority,defaulttolerationseconds,runtimeclass}.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/admission/registry.h"
#include "apiserver/registry/object_codec.h"
#include "kube/go_print.h"
#include "kube/object.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

constexpr std::int64_t kTolerationSeconds = 300;

// The class every pod without one gets; the lowest value wins when two claim it.
std::optional<Json> DefaultPriorityClass(const AdmissionEnvironment& environment) {
  std::optional<Json> best;
  for (const auto& record : ListObjects(environment, "scheduling.k8s.io", "priorityclasses", "")) {
    if (record.value->bytes.find("\"globalDefault\":true") == std::string::npos) {
      continue;
    }
    Json candidate = ParseStored(*record.value);
    if (!kube::FindBool(candidate, {"globalDefault"})) {
      continue;
    }
    if (!best || kube::FindInt(candidate, {"value"}) < kube::FindInt(*best, {"value"})) {
      best = std::move(candidate);
    }
  }
  return best;
}

Result<void> AdmitPriority(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  Json& spec = kube::EnsureObject(request.object, "spec");
  if (request.operation == Operation::kUpdate) {
    // The computed value stays when the client leaves it out.
    if (!spec.contains("priority")) {
      if (const Json* old = kube::Find(*request.old_object, {"spec", "priority"})) {
        spec["priority"] = *old;
      }
    }
    return Ok();
  }
  std::string name(kube::FindString(spec, {"priorityClassName"}));
  std::int64_t value = 0;
  std::string policy = "PreemptLowerPriority";
  std::optional<Json> chosen;
  if (name.empty()) {
    chosen = DefaultPriorityClass(environment);
    if (chosen) {
      name = kube::NameOf(*chosen);
    }
  } else {
    chosen = ReadObject(environment, "scheduling.k8s.io", "priorityclasses", "", name);
    if (!chosen) {
      return AdmissionForbidden(request, "no PriorityClass with name " + name + " was found");
    }
  }
  if (chosen) {
    value = kube::FindInt(*chosen, {"value"});
    const auto own = kube::FindString(*chosen, {"preemptionPolicy"});
    policy = own.empty() ? policy : std::string(own);
    spec["priorityClassName"] = name;
  }
  if (const auto it = spec.find("priority");
      it != spec.end() && it->is_number_integer() && it->get<std::int64_t>() != value) {
    return AdmissionForbidden(
        request, "the integer value of priority (" + std::to_string(it->get<std::int64_t>()) +
                     ") must not be provided in pod spec; priority admission controller computed " +
                     std::to_string(value) + " from the given PriorityClass name");
  }
  if (const auto given = kube::FindString(spec, {"preemptionPolicy"});
      !given.empty() && given != policy) {
    return AdmissionForbidden(request, "the string value of PreemptionPolicy (" +
                                           std::string(given) +
                                           ") must not be provided in pod spec; priority admission "
                                           "controller computed " +
                                           policy + " from the given PriorityClass name");
  }
  spec["priority"] = value;
  spec["preemptionPolicy"] = policy;
  return Ok();
}

// Only one class may be everybody's.
Result<void> ValidatePriorityClass(const AdmissionEnvironment& environment,
                                   AdmissionRequest& request) {
  if (!IsMain(request, "scheduling.k8s.io", "priorityclasses") ||
      !kube::FindBool(*request.object, {"globalDefault"})) {
    return Ok();
  }
  const auto existing = DefaultPriorityClass(environment);
  if (existing && kube::NameOf(*existing) != kube::NameOf(*request.object)) {
    return AdmissionForbidden(request, "PriorityClass " + std::string(kube::NameOf(*existing)) +
                                           " is already marked as default. Only one default can "
                                           "exist");
  }
  return Ok();
}

bool Tolerates(const Json& tolerations, std::string_view key) {
  return std::any_of(tolerations.begin(), tolerations.end(), [&](const Json& item) {
    const auto own = kube::FindString(item, {"key"});
    const auto effect = kube::FindString(item, {"effect"});
    return (own == key || own.empty()) && (effect == "NoExecute" || effect.empty());
  });
}

Result<void> AdmitTolerations(AdmissionRequest& request) {
  if (!IsMain(request, "", "pods")) {
    return Ok();
  }
  Json& tolerations = kube::EnsureArray(&kube::EnsureObject(request.object, "spec"), "tolerations");
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    if (!Tolerates(tolerations, key)) {
      tolerations.push_back({{"key", key},
                             {"operator", "Exists"},
                             {"effect", "NoExecute"},
                             {"tolerationSeconds", kTolerationSeconds}});
    }
  }
  return Ok();
}

Result<void> AdmitRuntimeClass(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (!IsMain(request, "", "pods")) {
    return Ok();
  }
  Json& spec = kube::EnsureObject(request.object, "spec");
  const std::string name(kube::FindString(spec, {"runtimeClassName"}));
  if (name.empty()) {
    const Json* overhead = kube::Find(spec, {"overhead"});
    if (overhead != nullptr && overhead->is_object() && !overhead->empty()) {
      return AdmissionForbidden(request,
                                "pod rejected: Pod Overhead set without corresponding RuntimeClass "
                                "defined Overhead");
    }
    return Ok();
  }
  const auto runtime = ReadObject(environment, "node.k8s.io", "runtimeclasses", "", name);
  if (!runtime) {
    return AdmissionForbidden(request, "pod rejected: RuntimeClass \"" + name + "\" not found");
  }
  if (const Json* fixed = kube::Find(*runtime, {"overhead", "podFixed"})) {
    const Json* own = kube::Find(spec, {"overhead"});
    if (own != nullptr && own->is_object() && !own->empty() && *own != *fixed) {
      return AdmissionForbidden(request,
                                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined "
                                "Overhead");
    }
    spec["overhead"] = *fixed;
  }
  if (const Json* selector = kube::Find(*runtime, {"scheduling", "nodeSelector"});
      selector != nullptr && selector->is_object()) {
    Json& own = kube::EnsureObject(&spec, "nodeSelector");
    for (auto it = selector->begin(); it != selector->end(); ++it) {
      if (own.contains(it.key()) && own[it.key()] != it.value()) {
        return AdmissionForbidden(request, "conflict: runtimeClass.scheduling.nodeSelector[" +
                                               it.key() + "] = " + kube::GoPrint(it.value()) +
                                               "; pod.spec.nodeSelector[" + it.key() +
                                               "] = " + kube::GoPrint(own[it.key()]));
      }
      own[it.key()] = it.value();
    }
  }
  if (const Json* extra = kube::Find(*runtime, {"scheduling", "tolerations"});
      extra != nullptr && extra->is_array()) {
    Json& own = kube::EnsureArray(&spec, "tolerations");
    for (const auto& item : *extra) {
      if (std::find(own.begin(), own.end(), item) == own.end()) {
        own.push_back(item);
      }
    }
  }
  return Ok();
}

}  // namespace

AdmissionPlugin Priority(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "Priority";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate});
  plugin.mutate = [environment](AdmissionRequest& request) -> Result<void> {
    return IsMain(request, "", "pods") ? AdmitPriority(environment, request) : Ok();
  };
  plugin.validate = [environment](AdmissionRequest& request) {
    return ValidatePriorityClass(environment, request);
  };
  return plugin;
}

AdmissionPlugin DefaultTolerationSeconds() {
  AdmissionPlugin plugin;
  plugin.name = "DefaultTolerationSeconds";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate});
  plugin.mutate = [](AdmissionRequest& request) { return AdmitTolerations(request); };
  return plugin;
}

AdmissionPlugin RuntimeClass(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "RuntimeClass";
  plugin.operations = Operations({Operation::kCreate});
  plugin.mutate = [environment](AdmissionRequest& request) {
    return AdmitRuntimeClass(environment, request);
  };
  return plugin;
}

}  // namespace sublet::apiserver
