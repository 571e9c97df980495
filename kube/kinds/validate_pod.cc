// The pod spec around its containers and volumes.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {
namespace {

void NodeTerm(const Path& at, const Json& term, bool check_values, FieldErrors* errors) {
  const Path expressions = at.Child("matchExpressions");
  std::size_t index = 0;
  for (const Json& one : Items(term, "matchExpressions")) {
    const Path here = expressions.Index(index++);
    const std::string op = Str(one, "operator");
    const auto& values = Items(one, "values");
    if (op == "In" || op == "NotIn") {
      if (values.empty()) {
        errors->Required(here.Child("values"),
                         "must be specified when `operator` is 'In' or 'NotIn'");
      }
    } else if (op == "Exists" || op == "DoesNotExist") {
      if (!values.empty()) {
        errors->Forbidden(here.Child("values"),
                          "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
      }
    } else if (op == "Gt" || op == "Lt") {
      if (values.size() != 1) {
        errors->Required(here.Child("values"),
                         "must be specified single value when `operator` is 'Lt' or 'Gt'");
      }
    } else {
      errors->Invalid(here.Child("operator"), op, "not a valid selector operator");
    }
    Check(here.Child("key"), Str(one, "key"), &IsQualifiedName, errors);
    const Path values_path = here.Child("values");
    for (std::size_t i = 0; check_values && i < values.size(); ++i) {
      Check(values_path.Index(i), values[i].get<std::string>(), &IsLabelValue, errors);
    }
  }
  const Path match_fields = at.Child("matchFields");
  index = 0;
  for (const Json& one : Items(term, "matchFields")) {
    const Path here = match_fields.Index(index++);
    const std::string op = Str(one, "operator");
    if (op != "In" && op != "NotIn") {
      errors->Invalid(here.Child("operator"), op, "not a valid selector operator");
    } else if (Items(one, "values").size() != 1) {
      errors->Required(here.Child("values"),
                       "must be only one value when `operator` is 'In' or 'NotIn' for node field "
                       "selector");
    }
    if (Str(one, "key") != "metadata.name") {
      errors->Invalid(here.Child("key"), Str(one, "key"), "not a valid field selector key");
      continue;
    }
    const Path values_path = here.Child("values");
    std::size_t value_index = 0;
    for (const Json& value : Items(one, "values")) {
      Check(values_path.Index(value_index++), value.get<std::string>(), &IsDns1123Subdomain,
            errors);
    }
  }
}

void LabelKeys(const Path& path, const Json& owner, const char* key, bool has_selector,
               FieldErrors* errors) {
  const auto& keys = Items(owner, key);
  if (!keys.empty() && !has_selector) {
    errors->Forbidden(path.Child(key), "must not be specified when labelSelector is not set");
    return;
  }
  const Path list = path.Child(key);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Check(list.Index(i), keys[i].get<std::string>(), &IsQualifiedName, errors);
  }
}

// matchLabelKeys and mismatchLabelKeys of an affinity term or a spread constraint.
void AffinityKeys(const Path& path, const Json& term, FieldErrors* errors) {
  const Json& selector = Get(term, "labelSelector");
  LabelKeys(path, term, "matchLabelKeys", selector.is_object(), errors);
  LabelKeys(path, term, "mismatchLabelKeys", selector.is_object(), errors);
  const auto& keys = Items(term, "matchLabelKeys");
  std::set<std::string> selected;
  for (const auto& [key, value] : Get(selector, "matchLabels").items()) {
    selected.insert(key);
  }
  for (const Json& expression : Items(selector, "matchExpressions")) {
    const std::string key = Str(expression, "key");
    const auto found = std::find(keys.rbegin(), keys.rend(), Json(key));
    if (found != keys.rend() && selected.contains(key)) {
      errors->Invalid(path.Index(static_cast<std::size_t>(keys.rend() - found) - 1), key,
                      "exists in both matchLabelKeys and labelSelector");
    }
    selected.insert(key);
  }
  const auto& others = Items(term, "mismatchLabelKeys");
  const Path list = path.Child("matchLabelKeys");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (std::find(others.begin(), others.end(), keys[i]) != others.end()) {
      errors->Invalid(list.Index(i), keys[i],
                      "exists in both matchLabelKeys and mismatchLabelKeys");
    }
  }
}

void AffinityTerm(const Path& at, const Json& term, FieldErrors* errors) {
  const Path selector = at.Child("labelSelector");
  LabelSelector(selector, Get(term, "labelSelector"), errors);
  const Path namespaces = at.Child("namespaceSelector");
  LabelSelector(namespaces, Get(term, "namespaceSelector"), errors);
  for (const Json& name : Items(term, "namespaces")) {
    Check(at.Child("namespace"), name.get<std::string>(), &IsDns1123Label, errors);
  }
  AffinityKeys(at, term, errors);
  const std::string key = Str(term, "topologyKey");
  if (key.empty()) {
    errors->Required(at.Child("topologyKey"), "can not be empty");
  }
  Check(at.Child("topologyKey"), key, &IsQualifiedName, errors);
}

void Weight(const Path& at, const Json& term, FieldErrors* errors) {
  const std::int64_t weight = FindInt(term, {"weight"});
  if (weight <= 0 || weight > 100) {
    errors->Invalid(at.Child("weight"), weight, "must be in the range 1-100");
  }
}

void Affinity(const Path& path, const Json& affinity, FieldErrors* errors) {
  constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
  constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";
  if (const Json& node = Get(affinity, "nodeAffinity"); node.is_object()) {
    const Path at = path.Child("nodeAffinity");
    const Path required = at.Child(kRequired);
    if (const Json& selector = Get(node, kRequired); selector.is_object()) {
      NodeSelector(required, selector, errors);
    }
    const Path preferred = at.Child(kPreferred);
    std::size_t index = 0;
    for (const Json& term : Items(node, kPreferred)) {
      const Path here = preferred.Index(index++);
      Weight(here, term, errors);
      NodeTerm(here.Child("preference"), Get(term, "preference"), false, errors);
    }
  }
  for (const char* kind : {"podAffinity", "podAntiAffinity"}) {
    const Json& pods = Get(affinity, kind);
    const Path at = path.Child(kind);
    const Path required = at.Child(kRequired);
    std::size_t index = 0;
    for (const Json& term : Items(pods, kRequired)) {
      AffinityTerm(required.Index(index++), term, errors);
    }
    const Path preferred = at.Child(kPreferred);
    index = 0;
    for (const Json& term : Items(pods, kPreferred)) {
      const Path here = preferred.Index(index++);
      Weight(here, term, errors);
      const Path inner = here.Child("podAffinityTerm");
      AffinityTerm(inner, Get(term, "podAffinityTerm"), errors);
    }
  }
}

void TopologySpread(const Path& path, const Json& spec, FieldErrors* errors) {
  const auto& constraints = Items(spec, "topologySpreadConstraints");
  for (std::size_t i = 0; i < constraints.size(); ++i) {
    const Json& constraint = constraints[i];
    const Path at = path.Index(i);
    const std::string key = Str(constraint, "topologyKey");
    const std::string action = Str(constraint, "whenUnsatisfiable");
    if (const std::int64_t skew = FindInt(constraint, {"maxSkew"}); skew <= 0) {
      errors->Invalid(at.Child("maxSkew"), skew, "must be greater than zero");
    }
    if (key.empty()) {
      errors->Required(at.Child("topologyKey"), "can not be empty");
    }
    if (action != "DoNotSchedule" && action != "ScheduleAnyway") {
      errors->NotSupported(at.Child("whenUnsatisfiable"), action,
                           {"DoNotSchedule", "ScheduleAnyway"});
    }
    for (std::size_t j = i + 1; j < constraints.size(); ++j) {
      if (Str(constraints[j], "topologyKey") == key &&
          Str(constraints[j], "whenUnsatisfiable") == action) {
        errors->Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"),
                          "{" + key + ", " + action + "}");
        break;
      }
    }
    if (const Json& domains = Get(constraint, "minDomains"); domains.is_number_integer()) {
      if (domains.get<std::int64_t>() <= 0) {
        errors->Invalid(at.Child("minDomains"), domains, "must be greater than zero");
      }
      if (action != "DoNotSchedule") {
        errors->Invalid(
            at.Child("minDomains"), domains,
            "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not " + action);
      }
    }
    for (const char* policy : {"nodeAffinityPolicy", "nodeTaintsPolicy"}) {
      Choice(at, constraint, policy, {"Honor", "Ignore"}, errors);
    }
    AffinityKeys(at, constraint, errors);
    const Path selector = at.Child("labelSelector");
    LabelSelector(selector, Get(constraint, "labelSelector"), errors);
  }
}

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

// Words of [a-z0-9_-] that begin and end with a letter or digit, joined by '.' or '/'.
bool IsSysctlName(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  bool at_start = true;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '.' || c == '/') {
      if (at_start || !plain(name[i - 1])) {
        return false;
      }
      at_start = true;
    } else if (plain(c)) {
      at_start = false;
    } else if (at_start || (c != '-' && c != '_')) {
      return false;
    }
  }
  return name.size() <= 253 && !name.empty() && !at_start && plain(name.back());
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

// A word that may be absent but not empty.
void PolicyOf(const Path& path, const Json& owner, const char* key,
              std::initializer_list<std::string_view> allowed, FieldErrors* errors) {
  const std::string value = Str(owner, key);
  if (Has(owner, key) && std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    errors->NotSupported(path.Child(key), value, allowed);
  }
}

void SpecSecurity(const Path& path, const Json& spec, FieldErrors* errors) {
  const Json& context = Get(spec, "securityContext");
  for (const char* field : {"fsGroup", "runAsUser", "runAsGroup"}) {
    if (const Json& id = Get(context, field); id.is_number_integer()) {
      errors->InvalidEach(path.Child(field), id, IsInRange(id.get<std::int64_t>(), 0, INT32_MAX));
    }
  }
  const Path groups = path.Child("supplementalGroups");
  std::size_t index = 0;
  for (const Json& id : Items(context, "supplementalGroups")) {
    errors->InvalidEach(groups.Index(index++), id, IsInRange(id.get<std::int64_t>(), 0, INT32_MAX));
  }
  if (FindBool(spec, {"shareProcessNamespace"}) && FindBool(spec, {"hostPID"})) {
    errors->Invalid(path.Child("shareProcessNamespace"), true,
                    "ShareProcessNamespace and HostPID cannot both be enabled");
  }
  const Path sysctls = path.Child("sysctls");
  std::set<std::string> names;
  index = 0;
  for (const Json& one : Items(context, "sysctls")) {
    const Path at = sysctls.Index(index++);
    const std::string name = Str(one, "name");
    if (name.empty()) {
      errors->Required(at.Child("name"));
    } else if (!IsSysctlName(name)) {
      errors->Invalid(at.Child("name"), name,
                      "must have at most 253 characters and match regex "
                      "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$");
    } else if (!names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
  }
  PolicyOf(path, context, "fsGroupChangePolicy", {"Always", "OnRootMismatch"}, errors);
  const Path seccomp = path.Child("seccompProfile");
  SeccompProfile(seccomp, Get(context, "seccompProfile"), errors);
  const Path windows = path.Child("windowsOptions");
  WindowsOptions(windows, Get(context, "windowsOptions"), errors);
  const Path app_armor = path.Child("appArmorProfile");
  AppArmorProfile(app_armor, Get(context, "appArmorProfile"), errors);
  PolicyOf(path, context, "supplementalGroupsPolicy", {"Merge", "Strict"}, errors);
  PolicyOf(path, context, "seLinuxChangePolicy", {"Recursive"}, errors);
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

void Names(const Path& path, const Json& spec, FieldErrors* errors) {
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
  if (const Json& os = Get(spec, "os"); os.is_object()) {
    const Path at = path.Child("os");
    const std::string name = Str(os, "name");
    if (name.empty()) {
      errors->Required(at.Child("name"));
    } else if (name != "linux" && name != "windows") {
      errors->NotSupported(at, name, {"linux", "windows"});
    }
  }
}

}  // namespace

void Tolerations(const Path& path, const Json& spec, FieldErrors* errors) {
  std::size_t index = 0;
  for (const Json& toleration : Items(spec, "tolerations")) {
    const Path at = path.Index(index++);
    const std::string key = Str(toleration, "key");
    const std::string op = Str(toleration, "operator");
    const std::string value = Str(toleration, "value");
    const std::string effect = Str(toleration, "effect");
    if (!key.empty()) {
      Check(at.Child("key"), key, &IsQualifiedName, errors);
    } else if (op != "Exists") {
      errors->Invalid(at.Child("operator"), op,
                      "operator must be Exists when `key` is empty, which means \"match all values "
                      "and all keys\"");
    }
    if (Has(toleration, "tolerationSeconds") && effect != "NoExecute") {
      errors->Invalid(at.Child("effect"), effect,
                      "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    if (op.empty() || op == "Equal") {
      if (const Problems problems = IsLabelValue(value); !problems.empty()) {
        errors->Invalid(at.Child("operator"), value, Join(problems, ";"));
      }
    } else if (op == "Exists") {
      if (!value.empty()) {
        errors->Invalid(at.Child("operator"), value,
                        "value must be empty when `operator` is 'Exists'");
      }
    } else if (op == "Lt" || op == "Gt") {
      errors->NotSupported(at.Child("operator"), op, {"Equal", "Exists", "Lt", "Gt"});
    } else {
      errors->NotSupported(at.Child("operator"), op, {"Equal", "Exists"});
    }
    if (!effect.empty()) {
      OneOf(at.Child("effect"), effect, {"NoSchedule", "PreferNoSchedule", "NoExecute"}, true,
            errors);
    }
  }
}

void NodeSelector(const Path& path, const Json& selector, FieldErrors* errors) {
  const Path terms = path.Child("nodeSelectorTerms");
  const auto& items = Items(selector, "nodeSelectorTerms");
  if (items.empty()) {
    errors->Required(terms, "must have at least one node selector term");
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    NodeTerm(terms.Index(i), items[i], true, errors);
  }
}

void SeccompProfile(const Path& path, const Json& profile, FieldErrors* errors) {
  if (!profile.is_object()) {
    return;
  }
  const std::string type = Str(profile, "type");
  if (type.empty()) {
    errors->Required(path.Child("type"), "type is required when seccompProfile is set");
  } else {
    OneOf(path.Child("type"), type, {"Localhost", "RuntimeDefault", "Unconfined"}, true, errors);
  }
  if (type == "Localhost") {
    if (!Has(profile, "localhostProfile")) {
      errors->Required(path.Child("localhostProfile"),
                       "must be set when seccomp type is Localhost");
    } else {
      DescendingPath(path.Child("localhostProfile"), Str(profile, "localhostProfile"), errors);
    }
  } else if (Has(profile, "localhostProfile")) {
    errors->Invalid(path.Child("localhostProfile"), profile,
                    "can only be set when seccomp type is Localhost");
  }
}

void FieldRef(const Path& path, const Json& reference,
              std::initializer_list<std::string_view> supported, FieldErrors* errors) {
  if (Str(reference, "apiVersion").empty()) {
    errors->Required(path.Child("apiVersion"));
    return;
  }
  const std::string field = Str(reference, "fieldPath");
  if (field.empty()) {
    errors->Required(path.Child("fieldPath"));
    return;
  }
  if (const std::string version = Str(reference, "apiVersion"); version != "v1") {
    errors->Invalid(path.Child("fieldPath"), field,
                    "error converting fieldPath: unsupported pod version: " + version);
    return;
  }
  const std::size_t bracket = field.find("['");
  if (bracket != std::string::npos && field.ends_with("']")) {
    std::string key = field.substr(bracket + 2, field.size() - bracket - 4);
    const std::string map = field.substr(0, bracket);
    if (map == "metadata.annotations") {
      std::transform(key.begin(), key.end(), key.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    } else if (map != "metadata.labels") {
      errors->Invalid(
          path.Child("fieldPath"), field,
          "error converting fieldPath: field label does not support subscript: " + field);
      return;
    }
    Check(path, key, &IsQualifiedName, errors);
    return;
  }
  static constexpr std::string_view kKnown[] = {
      "metadata.annotations", "metadata.labels", "metadata.name",      "metadata.namespace",
      "metadata.uid",         "spec.nodeName",   "spec.restartPolicy", "spec.serviceAccountName",
      "spec.schedulerName",   "status.phase",    "status.hostIP",      "status.hostIPs",
      "status.podIP",         "status.podIPs",   "spec.host"};
  if (std::find(std::begin(kKnown), std::end(kKnown), field) == std::end(kKnown)) {
    errors->Invalid(path.Child("fieldPath"), field,
                    "error converting fieldPath: field label not supported: " + field);
  } else if (std::find(supported.begin(), supported.end(), field) == supported.end()) {
    errors->NotSupported(path.Child("fieldPath"), field, std::vector<std::string_view>(supported));
  }
}

void ResourceFieldRef(const Path& path, const Json& reference, bool volume, FieldErrors* errors) {
  static constexpr std::string_view kResources[] = {
      "limits.cpu",   "limits.ephemeral-storage",   "limits.memory",
      "requests.cpu", "requests.ephemeral-storage", "requests.memory"};
  const std::string resource = Str(reference, "resource");
  const std::size_t before = errors->size();
  if (volume && Str(reference, "containerName").empty()) {
    errors->Required(path.Child("containerName"));
  } else if (resource.empty()) {
    errors->Required(path.Child("resource"));
  } else if (std::find(std::begin(kResources), std::end(kResources), resource) ==
                 std::end(kResources) &&
             !resource.starts_with("limits.hugepages-") &&
             !resource.starts_with("requests.hugepages-")) {
    errors->NotSupported(
        path.Child("resource"), resource,
        std::vector<std::string_view>(std::begin(kResources), std::end(kResources)));
  }
  const std::string divisor = Str(reference, "divisor");
  if (errors->size() != before || divisor.empty() || divisor == "0") {
    return;
  }
  static constexpr std::string_view kCpu[] = {"1m", "1"};
  static constexpr std::string_view kBytes[] = {"1",   "1k",  "1M",  "1G",  "1T",  "1P", "1E",
                                                "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"};
  const bool cpu = resource.ends_with(".cpu");
  const bool known =
      cpu ? std::find(std::begin(kCpu), std::end(kCpu), divisor) != std::end(kCpu)
          : std::find(std::begin(kBytes), std::end(kBytes), divisor) != std::end(kBytes);
  if (!known) {
    errors->Invalid(path.Child("divisor"), resource,
                    cpu ? "only divisor's values 1m and 1 are supported with the cpu resource"
                        : "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, "
                          "1Pi, 1Ei are supported with the " +
                              resource.substr(resource.find('.') + 1) + " resource");
  }
}

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
  if (const Json& resources = Get(spec, "resources"); resources.is_object()) {
    const Path at = path.Child("resources");
    Resources(at, resources, errors);
  }
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
  Names(path, spec, errors);
  FileKeyVolumes(path, spec, errors);
}

void PodTemplate(const Path& path, const Json& pod_template, FieldErrors* errors) {
  const Json& metadata = Get(pod_template, "metadata");
  const Path labels = path.Child("labels");
  Labels(labels, Get(metadata, "labels"), errors);
  const Path annotations = path.Child("annotations");
  if (const Json& map = Get(metadata, "annotations"); map.is_object()) {
    for (const auto& [key, value] : map.items()) {
      std::string lower = key;
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
      for (const std::string& problem : IsQualifiedName(lower)) {
        errors->Invalid(annotations, key, problem);
      }
    }
  }
  const Json& spec = Get(pod_template, "spec");
  const Path spec_path = path.Child("spec");
  PodSpec(spec_path, spec, "", false, errors);
  if (!Items(spec, "ephemeralContainers").empty()) {
    errors->Forbidden(spec_path.Child("ephemeralContainers"),
                      "ephemeral containers not allowed in pod template");
  }
}

}  // namespace sublet::kube::validate
