// What a container has inside: ports, variables, mounts, devices and probes.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_container.h"

namespace sublet::kube::validate {
namespace {

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

}  // namespace

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

}  // namespace sublet::kube::validate
