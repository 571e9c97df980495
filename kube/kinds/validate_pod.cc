// The pod spec around its containers and volumes.
#include "kube/kinds/validate_pod.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {
namespace {

void Dns(const Path& path, const Json& spec, FieldErrors* errors) {
  const Json& config = Get(spec, "dnsConfig");
  const auto& servers = Items(config, "nameservers");
  if (Str(spec, "dnsPolicy") == "None") {
    if (!config.is_object()) {
      errors->Required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
      return;
    }
    if (servers.empty()) {
      errors->Required(path.Child("nameservers"),
                       "must provide at least one DNS nameserver when `dnsPolicy` is None");
      return;
    }
  }
  const Path servers_path = path.Child("nameservers");
  if (servers.size() > 3) {
    errors->Invalid(servers_path, Json(servers), "must not have more than 3 nameservers");
  }
  for (std::size_t i = 0; i < servers.size(); ++i) {
    Ip(servers_path.Index(i), servers[i].get<std::string>(), errors);
  }
  const auto& searches = Items(config, "searches");
  const Path searches_path = path.Child("searches");
  if (searches.size() > 32) {
    errors->Invalid(searches_path, Json(searches), "must not have more than 32 search paths");
  }
  for (std::size_t i = 0; i < searches.size(); ++i) {
    std::string search = searches[i].get<std::string>();
    if (search != ".") {
      if (search.ends_with('.')) {
        search.pop_back();
      }
      Check(searches_path.Index(i), search, &IsDns1123SubdomainWithUnderscore, errors);
    }
  }
  std::size_t index = 0;
  const Path options = path.Child("options");
  for (const Json& option : Items(config, "options")) {
    if (Str(option, "name").empty()) {
      errors->Required(options.Index(index), "must not be empty");
    }
    ++index;
  }
}

// A user namespace of its own goes with no namespace of the host's.
void HostUsers(const Path& spec_path, const Json& spec, FieldErrors* errors) {
  const Json& users = Get(spec, "hostUsers");
  if (!users.is_boolean() || users.get<bool>()) {
    return;
  }
  for (const auto& [field, shown] :
       {std::pair{"hostPID", "HostPID"}, std::pair{"hostIPC", "HostIPC"},
        std::pair{"hostNetwork", "hostNetwork"}}) {
    if (FindBool(spec, {field})) {
      errors->Forbidden(spec_path.Child(shown), "when `hostUsers` is false");
    }
  }
}

void HostNetworkPorts(const Path& path, const Json& spec, bool is_pod, FieldErrors* errors) {
  if (!FindBool(spec, {"hostNetwork"})) {
    return;
  }
  const Path containers = path.Child("containers");
  std::size_t i = 0;
  for (const Json& container : Items(spec, "containers")) {
    const Path at = containers.Index(i++);
    const Path ports = at.Child("ports");
    std::size_t j = 0;
    for (const Json& port : Items(container, "ports")) {
      const Path here = ports.Index(j++);
      const std::int64_t host = FindInt(port, {"hostPort"});
      if ((is_pod || host != 0) && host != FindInt(port, {"containerPort"})) {
        errors->Invalid(here.Child("hostPort"), host,
                        "must match `containerPort` when `hostNetwork` is true");
      }
    }
  }
}

void QualifiedNames(const Path& list, const Json& spec, std::string_view key,
                    std::string_view member, bool at_member, FieldErrors* errors) {
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& one : Items(spec, key)) {
    const Path at = list.Index(index++);
    const std::string name = Str(one, member);
    Check(at_member ? at.Child(member) : at, name, &IsQualifiedName, errors);
    if (!at_member && !seen.insert(name).second) {
      errors->Duplicate(at, name);
    }
  }
}

void HostnameOverride(const Path& path, const Json& spec, FieldErrors* errors) {
  constexpr std::size_t kMax = 64;
  if (!Has(spec, "hostnameOverride")) {
    return;
  }
  const Path at = path.Child("hostnameOverride");
  const std::string name = Str(spec, "hostnameOverride");
  for (const char* field : {"setHostnameAsFQDN", "hostNetwork"}) {
    if (FindBool(spec, {field})) {
      errors->Forbidden(at, "may not be specified when " + std::string(field) + " is true");
    }
  }
  if (name.size() > kMax) {
    errors->TooLong(at, static_cast<int>(kMax));
  }
  Check(at, name, &IsDns1123Subdomain, errors);
}

void PodNames(const Path& path, const Json& spec, FieldErrors* errors) {
  const auto check = [&](const char* key, Problems (*rule)(std::string_view)) {
    if (const std::string value = Str(spec, key); !value.empty()) {
      Check(path.Child(key), value, rule, errors);
    }
  };
  check("serviceAccountName", &IsDns1123Subdomain);
  check("nodeName", &IsDns1123Subdomain);
  if (const Json& seconds = Get(spec, "activeDeadlineSeconds"); seconds.is_number_integer()) {
    errors->InvalidEach(path.Child("activeDeadlineSeconds"), seconds,
                        IsInRange(seconds.get<std::int64_t>(), 1, INT32_MAX));
  }
  check("hostname", &IsDns1123Label);
  check("subdomain", &IsDns1123Label);
  const Path tolerations = path.Child("tolerations");
  Tolerations(tolerations, spec, errors);
  const Path aliases = path.Child("hostAliases");
  std::size_t index = 0;
  for (const Json& alias : Items(spec, "hostAliases")) {
    const Path at = aliases.Index(index++);
    Ip(at.Child("ip"), Str(alias, "ip"), errors);
    const Path names = at.Child("hostnames");
    std::size_t i = 0;
    for (const Json& name : Items(alias, "hostnames")) {
      Check(names.Index(i++), name.get<std::string>(), &IsDns1123Subdomain, errors);
    }
  }
  check("priorityClassName", &IsDns1123Subdomain);
  check("runtimeClassName", &IsDns1123Subdomain);
  Choice(path, spec, "preemptionPolicy", {"PreemptLowerPriority", "Never"}, errors);
  if (const Json& overhead = Get(spec, "overhead"); overhead.is_object()) {
    const Path at = path.Child("overhead");
    Resources(at, {{"limits", overhead}}, errors);
  }
  FieldsOfOtherSystems(path, spec, errors);
}

}  // namespace

void PodSpec(const Path& path, const Json& spec, const std::string& pod_name, bool is_pod,
             FieldErrors* errors) {
  if (!Has(spec, "terminationGracePeriodSeconds")) {
    errors->Required(path.Child("terminationGracePeriodSeconds"));
  }
  const Path volumes_path = path.Child("volumes");
  const std::vector<std::string> volumes = Volumes(volumes_path, spec, pod_name, errors);
  const Path claims = path.Child("resourceClaims");
  PodClaims(claims, spec, errors);
  Containers(path, spec, volumes, errors);
  const Path resources = path.Child("resources");
  PodResources(resources, spec, errors);
  HostNetworkPorts(path, spec, is_pod, errors);
  OneOf(path.Child("restartPolicy"), Str(spec, "restartPolicy"), {"Always", "OnFailure", "Never"},
        true, errors);
  OneOf(path.Child("dnsPolicy"), Str(spec, "dnsPolicy"),
        {"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"}, true, errors);
  const Path node_selector = path.Child("nodeSelector");
  Labels(node_selector, Get(spec, "nodeSelector"), errors);
  const Path security = path.Child("securityContext");
  SpecSecurity(security, spec, errors);
  const Path affinity = path.Child("affinity");
  Affinity(affinity, Get(spec, "affinity"), errors);
  const Path dns = path.Child("dnsConfig");
  Dns(dns, spec, errors);
  const Path gates = path.Child("readinessGates");
  QualifiedNames(gates, spec, "readinessGates", "conditionType", true, errors);
  const Path scheduling = path.Child("schedulingGates");
  QualifiedNames(scheduling, spec, "schedulingGates", "name", false, errors);
  const Path spread = path.Child("topologySpreadConstraints");
  TopologySpread(spread, spec, errors);
  HostProcess(path, spec, errors);
  HostUsers(path, spec, errors);
  HostnameOverride(path, spec, errors);
  PodNames(path, spec, errors);
  FileKeyVolumes(path, spec, errors);
}

void PodTemplate(const Path& path, const Json& pod_template, FieldErrors* errors) {
  const Json& metadata = Get(pod_template, "metadata");
  const Path labels = path.Child("labels");
  Labels(labels, Get(metadata, "labels"), errors);
  const Path annotations = path.Child("annotations");
  Annotations(annotations, Get(metadata, "annotations"), errors);
  const Json& spec = Get(pod_template, "spec");
  const Path spec_path = path.Child("spec");
  PodSpec(spec_path, spec, "", false, errors);
  if (!Items(spec, "ephemeralContainers").empty()) {
    errors->Forbidden(spec_path.Child("ephemeralContainers"),
                      "ephemeral containers not allowed in pod template");
  }
}

}  // namespace sublet::kube::validate
