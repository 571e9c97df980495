// Containers, init containers and ephemeral containers of a pod spec.
#include "kube/kinds/validate_container.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_pod.h"

namespace sublet::kube::validate {
namespace {

void Security(const Path& path, const Json& context, bool host_users, FieldErrors* errors) {
  if (!context.is_object()) {
    return;
  }
  for (const char* field : {"runAsUser", "runAsGroup"}) {
    if (const Json& id = Get(context, field); id.is_number_integer()) {
      errors->InvalidEach(path.Child(field), id, IsInRange(id.get<std::int64_t>(), 0, INT32_MAX));
    }
  }
  if (Has(context, "procMount")) {
    const std::string mount = Str(context, "procMount");
    if (mount != "Default" && mount != "Unmasked") {
      errors->NotSupported(path.Child("procMount"), mount, {"Default", "Unmasked"});
    }
    if (mount == "Unmasked" && host_users) {
      errors->Invalid(path.Child("procMount"), mount,
                      "`hostUsers` must be false to use `Unmasked`");
    }
  }
  const Path seccomp = path.Child("seccompProfile");
  SeccompProfile(seccomp, Get(context, "seccompProfile"), errors);
  const Json& escalation = Get(context, "allowPrivilegeEscalation");
  if (escalation.is_boolean() && !escalation.get<bool>()) {
    if (FindBool(context, {"privileged"})) {
      errors->InvalidShown(
          path, ShownAsGo("SecurityContext", context),
          "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
    }
    if (const Json* added = Find(context, {"capabilities", "add"});
        added != nullptr &&
        std::find(added->begin(), added->end(), "CAP_SYS_ADMIN") != added->end()) {
      errors->InvalidShown(
          path, ShownAsGo("SecurityContext", context),
          "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
    }
  }
  const Path windows = path.Child("windowsOptions");
  WindowsOptions(windows, Get(context, "windowsOptions"), errors);
  const Path app_armor = path.Child("appArmorProfile");
  AppArmorProfile(app_armor, Get(context, "appArmorProfile"), errors);
}

void ResizePolicy(const Path& path, const Json& container, const std::string& restart_policy,
                  FieldErrors* errors) {
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& policy : Items(container, "resizePolicy")) {
    const std::string name = Str(policy, "resourceName");
    if (!seen.insert(name).second) {
      errors->Duplicate(path.Index(index), name);
    }
    ++index;
    OneOf(path, name, {"cpu", "memory"}, true, errors);
    const std::string restart = Str(policy, "restartPolicy");
    OneOf(path, restart, {"NotRequired", "RestartContainer"}, true, errors);
    if (restart_policy == "Never" && restart != "NotRequired") {
      errors->Invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
    }
  }
}

struct PodFacts {
  const Json& spec;
  const std::vector<std::string>& volumes;
  std::string restart_policy;
  bool host_users = true;
};

void Common(const Path& at, const Json& container, const PodFacts& pod, FieldErrors* errors) {
  CheckRequired(at.Child("name"), Str(container, "name"), &IsDns1123Label, errors);
  if (Str(container, "image").empty()) {
    errors->Required(at.Child("image"));
  }
  OneOf(at.Child("terminationMessagePolicy"), Str(container, "terminationMessagePolicy"),
        {"File", "FallbackToLogsOnError"}, true, errors);
  const Path ports = at.Child("ports");
  Ports(ports, container, errors);
  Env(at, container, errors);
  Mounts(at, container, pod.volumes, errors);
  Devices(at, container, pod.volumes, pod.spec, errors);
  OneOf(at.Child("imagePullPolicy"), Str(container, "imagePullPolicy"),
        {"Always", "IfNotPresent", "Never"}, true, errors);
  const Path resources = at.Child("resources");
  Resources(resources, Get(container, "resources"), errors);
  const Path claims = resources.Child("claims");
  ContainerClaims(claims, container, pod.spec, errors);
  const Path resize = at.Child("resizePolicy");
  ResizePolicy(resize, container, pod.restart_policy, errors);
  const Path security = at.Child("securityContext");
  Security(security, Get(container, "securityContext"), pod.host_users, errors);
}

void HostPortConflicts(const Path& path, const Json& container, std::size_t index,
                       std::set<std::string>* seen, FieldErrors* errors) {
  const Path at = path.Index(index);
  const Path ports = at.Child("ports");
  std::size_t port_index = 0;
  for (const Json& port : Items(container, "ports")) {
    const Path here = ports.Index(port_index++);
    const std::int64_t host = FindInt(port, {"hostPort"});
    if (host == 0) {
      continue;
    }
    const std::string key =
        Str(port, "protocol") + "/" + Str(port, "hostIP") + "/" + std::to_string(host);
    if (!seen->insert(key).second) {
      errors->Duplicate(here.Child("hostPort"), key);
    }
  }
}

void RestartRules(const Path& container_path, const Json::array_t& rules, FieldErrors* errors) {
  const Path path = container_path.Child("restartPolicyRules");
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const Path at = path.Index(i);
    const std::string action = Str(rules[i], "action");
    if (action != "Restart" && action != "RestartAllContainers") {
      errors->NotSupported(at.Child("action"), action, {"Restart", "RestartAllContainers"});
    }
    const Path codes_path = at.Child("exitCodes");
    const Json& codes = Get(rules[i], "exitCodes");
    if (!codes.is_object()) {
      errors->Required(codes_path, "must be specified");
      continue;
    }
    const std::string op = Str(codes, "operator");
    if (op != "In" && op != "NotIn") {
      errors->NotSupported(codes_path.Child("operator"), op, {"In", "NotIn"});
    }
    const auto count = static_cast<std::int64_t>(Items(codes, "values").size());
    if (count > 255) {
      errors->TooMany(codes_path.Child("values"), count, 255);
    }
  }
}

void RestartPolicy(const Path& at, const Json& container, FieldErrors* errors) {
  const Json& policy = Get(container, "restartPolicy");
  const auto& rules = Items(container, "restartPolicyRules");
  if (policy.is_null()) {
    if (!rules.empty()) {
      errors->Required(at.Child("restartPolicy"),
                       "must specify restartPolicy when restart rules are used");
    }
    RestartRules(at, rules, errors);
    return;
  }
  const std::string text = policy.is_string() ? policy.get<std::string>() : "";
  if (text != "Always" && text != "Never" && text != "OnFailure") {
    errors->NotSupported(at.Child("restartPolicy"), text, {"Always", "Never", "OnFailure"});
  }
  if (rules.size() > 20) {
    errors->TooMany(at.Child("restartPolicyRules"), static_cast<std::int64_t>(rules.size()), 20);
  }
  RestartRules(at, rules, errors);
}

void MainContainers(const Path& path, const PodFacts& pod, const Json& grace,
                    std::set<std::string>* names, FieldErrors* errors) {
  const auto& containers = Items(pod.spec, "containers");
  if (containers.empty()) {
    errors->Required(path);
    return;
  }
  for (std::size_t i = 0; i < containers.size(); ++i) {
    const Path at = path.Index(i);
    Common(at, containers[i], pod, errors);
    const std::string name = Str(containers[i], "name");
    if (!names->insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
    Probes(at, containers[i], grace, errors);
    RestartPolicy(at, containers[i], errors);
  }
  std::set<std::string> host_ports;
  for (std::size_t i = 0; i < containers.size(); ++i) {
    HostPortConflicts(path, containers[i], i, &host_ports, errors);
  }
}

void InitContainers(const Path& path, const PodFacts& pod, const Json& grace,
                    std::set<std::string>* names, FieldErrors* errors) {
  const auto& containers = Items(pod.spec, "initContainers");
  for (std::size_t i = 0; i < containers.size(); ++i) {
    const Json& container = containers[i];
    const Path at = path.Index(i);
    Common(at, container, pod, errors);
    RestartPolicy(at, container, errors);
    const std::string name = Str(container, "name");
    if (names->contains(name)) {
      errors->Duplicate(at.Child("name"), name);
    } else if (!name.empty()) {
      names->insert(name);
    }
    std::set<std::string> host_ports;
    HostPortConflicts(path, container, 0, &host_ports, errors);
    if (Str(container, "restartPolicy") == "Always") {
      Probes(at, container, grace, errors);
      continue;
    }
    for (const char* field : {"lifecycle", "livenessProbe", "readinessProbe", "startupProbe"}) {
      if (Has(container, field)) {
        errors->Forbidden(at.Child(field),
                          "may not be set for init containers without restartPolicy=Always");
      }
    }
  }
}

void EphemeralContainers(const Path& path, const PodFacts& pod, std::set<std::string> names,
                         FieldErrors* errors) {
  const std::set<std::string> others = names;
  const auto& containers = Items(pod.spec, "ephemeralContainers");
  for (std::size_t i = 0; i < containers.size(); ++i) {
    const Json& container = containers[i];
    const Path at = path.Index(i);
    Common(at, container, pod, errors);
    if (const std::string image = Str(container, "image"); HasOuterSpace(image)) {
      errors->Invalid(at.Child("image"), image, "must not have leading or trailing whitespace");
    }
    const std::string name = Str(container, "name");
    if (!names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
    if (const std::string target = Str(container, "targetContainerName");
        !target.empty() && !others.contains(target)) {
      errors->NotFound(at.Child("targetContainerName"), target);
    }
    // Every field that is not on Kubernetes' list, in its order.
    for (const char* field :
         {"ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules",
          "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"}) {
      const Json& value = Get(container, field);
      const bool absent =
          value.is_null() || (field == std::string_view("resources") && value.empty());
      if (!absent) {
        errors->Forbidden(at.Child(field), "cannot be set for an Ephemeral Container");
      }
    }
    const Path mounts = at.Child("volumeMounts");
    std::size_t index = 0;
    for (const Json& mount : Items(container, "volumeMounts")) {
      const Path here = mounts.Index(index++);
      for (const char* field : {"subPath", "subPathExpr"}) {
        if (!Str(mount, field).empty()) {
          errors->Forbidden(here.Child(field), "cannot be set for an Ephemeral Container");
        }
      }
    }
  }
}

}  // namespace

void Containers(const Path& spec_path, const Json& spec, const std::vector<std::string>& volumes,
                FieldErrors* errors) {
  const Json& grace = Get(spec, "terminationGracePeriodSeconds");
  const Json& host_users = Get(spec, "hostUsers");
  const PodFacts pod{spec, volumes, Str(spec, "restartPolicy"),
                     !host_users.is_boolean() || host_users.get<bool>()};
  std::set<std::string> names;
  const Path main_path = spec_path.Child("containers");
  MainContainers(main_path, pod, grace, &names, errors);
  const Path init_path = spec_path.Child("initContainers");
  InitContainers(init_path, pod, grace, &names, errors);
  const Path ephemeral_path = spec_path.Child("ephemeralContainers");
  EphemeralContainers(ephemeral_path, pod, names, errors);
}

}  // namespace sublet::kube::validate
