// Containers, init containers and ephemeral containers of a pod spec.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {
namespace {

void Ports(const Path& path, const Json& container, FieldErrors* errors) {
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& port : Items(container, "ports")) {
    const Path at = path.Index(index++);
    const std::string name = Str(port, "name");
    if (!name.empty()) {
      const Problems problems = IsPortName(name);
      for (std::size_t i = 0; i < problems.size(); ++i) {
        errors->Invalid(at.Child("name"), name, problems[i]);
      }
      if (problems.empty() && !names.insert(name).second) {
        errors->Duplicate(at.Child("name"), name);
      }
    }
    const std::int64_t number = FindInt(port, {"containerPort"});
    if (number == 0) {
      errors->Required(at.Child("containerPort"));
    } else {
      errors->InvalidEach(at.Child("containerPort"), number, IsPortNumber(number));
    }
    const std::int64_t host = FindInt(port, {"hostPort"});
    if (host != 0) {
      errors->InvalidEach(at.Child("hostPort"), host, IsPortNumber(host));
    }
    OneOf(at.Child("protocol"), Str(port, "protocol"), {"SCTP", "TCP", "UDP"}, true, errors);
  }
}

void KeyRef(const Path& path, const Json& reference, FieldErrors* errors) {
  Check(path.Child("name"), Str(reference, "name"), &IsDns1123Subdomain, errors);
  CheckRequired(path.Child("key"), Str(reference, "key"), &IsConfigMapKey, errors);
}

void ValueFrom(const Path& path, const Json& variable, FieldErrors* errors) {
  const Json& from = Get(variable, "valueFrom");
  if (!from.is_object()) {
    return;
  }
  int sources = 0;
  if (const Json& reference = Get(from, "fieldRef"); reference.is_object()) {
    ++sources;
    FieldRef(path.Child("fieldRef"), reference,
             {"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
              "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP",
              "status.podIPs"},
             errors);
  }
  if (const Json& reference = Get(from, "resourceFieldRef"); reference.is_object()) {
    ++sources;
    ResourceFieldRef(path.Child("resourceFieldRef"), reference, false, errors);
  }
  for (const char* key : {"configMapKeyRef", "secretKeyRef"}) {
    if (const Json& reference = Get(from, key); reference.is_object()) {
      ++sources;
      KeyRef(path.Child(key), reference, errors);
    }
  }
  if (const Json& reference = Get(from, "fileKeyRef"); reference.is_object()) {
    ++sources;
    FileKeyRef(path.Child("fileKeyRef"), reference, errors);
  }
  if (sources == 0) {
    errors->Invalid(path, "",
                    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
                    "`secretKeyRef` or `fileKeyRef`");
  } else if (!Str(variable, "value").empty()) {
    errors->Invalid(path, "", "may not be specified when `value` is not empty");
  } else if (sources > 1) {
    errors->Invalid(path, "", "may not have more than one field specified at a time");
  }
}

void Env(const Path& path, const Json& container, FieldErrors* errors) {
  std::size_t index = 0;
  const Path env = path.Child("env");
  for (const Json& variable : Items(container, "env")) {
    const Path at = env.Index(index++);
    CheckRequired(at.Child("name"), Str(variable, "name"), &IsRelaxedEnvVarName, errors);
    const Path from = at.Child("valueFrom");
    ValueFrom(from, variable, errors);
  }
  index = 0;
  const Path env_from = path.Child("envFrom");
  for (const Json& source : Items(container, "envFrom")) {
    const Path at = env_from.Index(index++);
    if (const std::string prefix = Str(source, "prefix"); !prefix.empty()) {
      Check(at.Child("prefix"), prefix, &IsRelaxedEnvVarName, errors);
    }
    int sources = 0;
    for (const char* key : {"configMapRef", "secretRef"}) {
      if (const Json& reference = Get(source, key); reference.is_object()) {
        ++sources;
        const Path ref = at.Child(key);
        CheckRequired(ref.Child("name"), Str(reference, "name"), &IsDns1123Subdomain, errors);
      }
    }
    if (sources == 0) {
      errors->Invalid(env_from, "", "must specify one of: `configMapRef` or `secretRef`");
    } else if (sources > 1) {
      errors->Invalid(env_from, "", "may not have more than one field specified at a time");
    }
  }
}

void Mounts(const Path& path, const Json& container, const std::vector<std::string>& volumes,
            FieldErrors* errors) {
  const Path mounts = path.Child("volumeMounts");
  std::set<std::string> paths;
  std::set<std::string> device_names;
  std::set<std::string> device_paths;
  for (const Json& device : Items(container, "volumeDevices")) {
    device_names.insert(Str(device, "name"));
    device_paths.insert(Str(device, "devicePath"));
  }
  std::size_t index = 0;
  for (const Json& mount : Items(container, "volumeMounts")) {
    const Path at = mounts.Index(index++);
    const std::string name = Str(mount, "name");
    const std::string mount_path = Str(mount, "mountPath");
    if (name.empty()) {
      errors->Required(at.Child("name"));
    }
    if (std::find(volumes.begin(), volumes.end(), name) == volumes.end()) {
      errors->NotFound(at.Child("name"), name);
    }
    if (mount_path.empty()) {
      errors->Required(at.Child("mountPath"));
    }
    if (!paths.insert(mount_path).second) {
      errors->Invalid(at.Child("mountPath"), mount_path, "must be unique");
    }
    if (device_names.contains(name)) {
      errors->Invalid(at.Child("name"), name, "must not already exist in volumeDevices");
    }
    if (device_paths.contains(mount_path)) {
      errors->Invalid(at.Child("mountPath"), mount_path,
                      "must not already exist as a path in volumeDevices");
    }
    // These are reported at the list, without an index, as upstream does.
    if (const std::string sub = Str(mount, "subPath"); !sub.empty()) {
      DescendingPath(mounts.Child("subPath"), sub, errors);
    }
    if (const std::string sub = Str(mount, "subPathExpr"); !sub.empty()) {
      if (Has(mount, "subPath")) {
        errors->Invalid(at.Child("subPathExpr"), sub,
                        "subPathExpr and subPath are mutually exclusive");
      }
      DescendingPath(mounts.Child("subPathExpr"), sub, errors);
    }
    Choice(mounts, mount, "recursiveReadOnly", {"Disabled", "Enabled", "IfPossible"}, errors);
    if (const std::string mode = Str(mount, "mountPropagation"); Has(mount, "mountPropagation")) {
      Choice(mounts, mount, "mountPropagation", {"Bidirectional", "HostToContainer", "None"},
             errors);
      if (mode == "Bidirectional" && !FindBool(container, {"securityContext", "privileged"})) {
        errors->Forbidden(
            mounts.Child("mountPropagation"),
            "Bidirectional mount propagation is available only to privileged containers");
      }
    }
  }
}

void Devices(const Path& path, const Json& container, const std::vector<std::string>& volumes,
             const Json& spec, FieldErrors* errors) {
  const Path devices = path.Child("volumeDevices");
  std::set<std::string> names;
  std::set<std::string> paths;
  std::size_t index = 0;
  for (const Json& device : Items(container, "volumeDevices")) {
    const Path at = devices.Index(index++);
    const std::string name = Str(device, "name");
    const std::string device_path = Str(device, "devicePath");
    if (name.empty()) {
      errors->Required(at.Child("name"));
    }
    if (names.contains(name)) {
      errors->Invalid(at.Child("name"), name, "must be unique");
    }
    if (std::find(volumes.begin(), volumes.end(), name) == volumes.end()) {
      errors->NotFound(at.Child("name"), name);
    } else {
      for (const Json& volume : Items(spec, "volumes")) {
        if (Str(volume, "name") == name && !Has(volume, "persistentVolumeClaim") &&
            !Has(volume, "ephemeral")) {
          errors->Invalid(at.Child("name"), name,
                          "can only use volume source type of PersistentVolumeClaim or Ephemeral "
                          "for block mode");
        }
      }
    }
    if (device_path.empty()) {
      errors->Required(at.Child("devicePath"));
    }
    if (paths.contains(device_path)) {
      errors->Invalid(at.Child("devicePath"), device_path, "must be unique");
    }
    FieldErrors backsteps;
    NoBacksteps(at, device_path, &backsteps);
    if (!backsteps.empty()) {
      errors->Invalid(at.Child("devicePath"), device_path, "can not contain backsteps ('..')");
    } else {
      paths.insert(device_path);
    }
    if (!name.empty()) {
      names.insert(name);
    }
  }
}

void HttpGet(const Path& path, const Json& action, FieldErrors* errors) {
  if (Str(action, "path").empty()) {
    errors->Required(path.Child("path"));
  }
  PortNumberOrName(path.Child("port"), Get(action, "port"), errors);
  const std::string scheme = Str(action, "scheme");
  if (scheme != "HTTP" && scheme != "HTTPS") {
    errors->NotSupported(path.Child("scheme"), scheme, {"HTTP", "HTTPS"});
  }
  for (const Json& header : Items(action, "httpHeaders")) {
    Check(path.Child("httpHeaders"), Str(header, "name"), &IsHttpHeaderName, errors);
  }
}

void Handler(const Path& path, const Json& handler, const Json& grace, FieldErrors* errors) {
  int handlers = 0;
  for (const char* kind : {"exec", "httpGet", "tcpSocket", "grpc", "sleep"}) {
    const Json& action = Get(handler, kind);
    if (!action.is_object()) {
      continue;
    }
    const Path at = path.Child(kind);
    if (handlers++ > 0) {
      errors->Forbidden(at, "may not specify more than 1 handler type");
      continue;
    }
    const std::string_view name = kind;
    if (name == "exec" && Items(action, "command").empty()) {
      errors->Required(at.Child("command"));
    } else if (name == "httpGet") {
      HttpGet(at, action, errors);
    } else if (name == "tcpSocket" || name == "grpc") {
      PortNumberOrName(at.Child("port"), Get(action, "port"), errors);
    } else if (name == "sleep" && grace.is_number_integer()) {
      const std::int64_t seconds = FindInt(action, {"seconds"});
      if (seconds < 0 || seconds > grace.get<std::int64_t>()) {
        errors->Invalid(at, seconds,
                        "must be non-negative and less than terminationGracePeriodSeconds (" +
                            std::to_string(grace.get<std::int64_t>()) + ")");
      }
    }
  }
  if (handlers == 0) {
    errors->Required(path, "must specify a handler type");
  }
}

void Probe(const Path& path, const Json& probe, std::string_view kind, const Json& grace,
           FieldErrors* errors) {
  if (!probe.is_object()) {
    return;
  }
  Handler(path, probe, grace, errors);
  for (const char* field : {"initialDelaySeconds", "timeoutSeconds", "periodSeconds",
                            "successThreshold", "failureThreshold"}) {
    NotNegative(probe, field, path, errors);
  }
  const Json& own_grace = Get(probe, "terminationGracePeriodSeconds");
  if (own_grace.is_number_integer() && own_grace.get<std::int64_t>() <= 0) {
    errors->Invalid(path.Child("terminationGracePeriodSeconds"), own_grace, kPositive);
  }
  if (kind == "readinessProbe") {
    if (!own_grace.is_null()) {
      errors->Invalid(path.Child("terminationGracePeriodSeconds"), own_grace,
                      "must not be set for readinessProbes");
    }
  } else if (FindInt(probe, {"successThreshold"}) != 1) {
    errors->Invalid(path.Child("successThreshold"), FindInt(probe, {"successThreshold"}),
                    "must be 1");
  }
}

void Probes(const Path& at, const Json& container, const Json& grace, FieldErrors* errors) {
  const Path lifecycle_path = at.Child("lifecycle");
  const Json& lifecycle = Get(container, "lifecycle");
  for (const char* hook : {"postStart", "preStop"}) {
    if (const Json& handler = Get(lifecycle, hook); handler.is_object()) {
      Handler(lifecycle_path.Child(hook), handler, grace, errors);
    }
  }
  for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) {
    Probe(at.Child(probe), Get(container, probe), probe, grace, errors);
  }
}

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
      errors->Invalid(path, context,
                      "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
    }
    if (const Json* added = Find(context, {"capabilities", "add"});
        added != nullptr &&
        std::find(added->begin(), added->end(), "CAP_SYS_ADMIN") != added->end()) {
      errors->Invalid(path, context,
                      "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` "
                      "CAP_SYS_ADMIN");
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
    const std::string name = Str(container, "name");
    if (!names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
    if (const std::string target = Str(container, "targetContainerName");
        !target.empty() && !others.contains(target)) {
      errors->NotFound(at.Child("targetContainerName"), target);
    }
    for (const char* field : {"ports", "livenessProbe", "readinessProbe", "startupProbe",
                              "lifecycle", "resizePolicy", "restartPolicy"}) {
      if (Has(container, field)) {
        errors->Forbidden(at.Child(field), "cannot be set for an Ephemeral Container");
      }
    }
    if (!Get(container, "resources").empty()) {
      errors->Forbidden(at.Child("resources"), "cannot be set for an Ephemeral Container");
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
