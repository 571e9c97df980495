// Security contexts: the AppArmor, seccomp and Windows parts of a container's or the pod's, the pod's
// own, and which fields do not go with the pod's operating system.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_pod.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kCredentialSpecMax = 64 * 1024;
constexpr std::size_t kDomainMax = 256;
constexpr std::size_t kUserMax = 104;
constexpr std::size_t kNetBiosMax = 15;
constexpr std::size_t kProfileMax = 4095;  // PATH_MAX without its end

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool IsNetBiosName(std::string_view name) {
  return !name.empty() && name.size() <= kNetBiosMax && name.front() != '.' &&
         name.find_first_of("\\/:*?\"<>|") == std::string_view::npos;
}

// Labels of letters, digits and '-' joined by dots; each begins and ends with a letter or digit.
bool IsDnsDomain(std::string_view name) {
  while (!name.empty()) {
    const std::size_t dot = name.find('.');
    const std::string_view label = name.substr(0, dot);
    const bool plain = std::all_of(label.begin(), label.end(),
                                   [](char c) { return IsLetterOrDigit(c) || c == '-'; });
    if (label.empty() || !plain || !IsLetterOrDigit(label.front()) ||
        !IsLetterOrDigit(label.back())) {
      return false;
    }
    if (dot == std::string_view::npos) {
      return true;
    }
    name.remove_prefix(dot + 1);
  }
  return false;
}

void WindowsUser(const Path& at, const std::string& name, FieldErrors* errors) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty()) {
    return errors->Invalid(at, name, "runAsUserName cannot be an empty string");
  }
  if (std::any_of(name.begin(), name.end(), is_control)) {
    return errors->Invalid(at, name, "runAsUserName cannot contain control characters");
  }
  const auto slashes = std::count(name.begin(), name.end(), '\\');
  if (slashes > 1) {
    return errors->Invalid(at, name, "runAsUserName cannot contain more than one backslash");
  }
  const std::size_t slash = name.find('\\');
  const std::string domain = slashes == 1 ? name.substr(0, slash) : "";
  const std::string user = slashes == 1 ? name.substr(slash + 1) : name;
  if (domain.size() >= kDomainMax) {
    errors->Invalid(at, name, "runAsUserName's Domain length must be under 256 characters");
  }
  if (slashes == 1 && !IsNetBiosName(domain) && !IsDnsDomain(domain)) {
    errors->Invalid(at, name,
                    "runAsUserName's Domain doesn't match the NetBios nor the DNS format");
  }
  if (user.empty()) {
    errors->Invalid(at, name, "runAsUserName's User cannot be empty");
  } else if (user.size() > kUserMax) {
    errors->Invalid(at, name, "runAsUserName's User length must not be longer than 104 characters");
  }
  if (!user.empty() && user.find_first_not_of(". ") == std::string::npos) {
    errors->Invalid(at, name, "runAsUserName's User cannot contain only periods or spaces");
  }
  if (user.find_first_of("\"/\\:;|=,+*?<>@[]") != std::string::npos) {
    errors->Invalid(at, name,
                    "runAsUserName's User cannot contain the following characters: "
                    "\"/\\:;|=,+*?<>@[]");
  }
}

// What a container says itself, else null.
const Json& OwnHostProcess(const Json& owner) {
  return Get(Get(Get(owner, "securityContext"), "windowsOptions"), "hostProcess");
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

// Which of the host's namespaces keeps this setting to itself; "" for none.
std::string_view NamespaceOfSysctl(std::string name) {
  std::replace(name.begin(), name.end(), '/', '.');
  if (name.starts_with("net.")) {
    return "hostNetwork";
  }
  const bool ipc = name == "kernel.sem" || name.starts_with("kernel.shm") ||
                   name.starts_with("kernel.msg") || name.starts_with("fs.mqueue.");
  return ipc ? "hostIPC" : "";
}

// A word that may be absent but not empty.
void PolicyOf(const Path& path, const Json& owner, const char* key,
              std::initializer_list<std::string_view> allowed, FieldErrors* errors) {
  const std::string value = Str(owner, key);
  if (Has(owner, key) && std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    errors->NotSupported(path.Child(key), value, allowed);
  }
}

}  // namespace

void WindowsOptions(const Path& path, const Json& options, FieldErrors* errors) {
  if (Has(options, "gmsaCredentialSpecName")) {
    Check(path.Child("gmsaCredentialSpecName"), Str(options, "gmsaCredentialSpecName"),
          &IsDns1123Subdomain, errors);
  }
  if (Has(options, "gmsaCredentialSpec")) {
    const std::string spec = Str(options, "gmsaCredentialSpec");
    if (spec.empty()) {
      errors->Invalid(path.Child("gmsaCredentialSpec"), spec,
                      "gmsaCredentialSpec cannot be an empty string");
    } else if (spec.size() > kCredentialSpecMax) {
      errors->Invalid(path.Child("gmsaCredentialSpec"), spec,
                      "gmsaCredentialSpec size must be under 64 KiB");
    }
  }
  if (Has(options, "runAsUserName")) {
    WindowsUser(path.Child("runAsUserName"), Str(options, "runAsUserName"), errors);
  }
}

void AppArmorProfile(const Path& path, const Json& profile, FieldErrors* errors) {
  if (!profile.is_object()) {
    return;
  }
  const std::string type = Str(profile, "type");
  const Path name = path.Child("localhostProfile");
  const std::string local = Str(profile, "localhostProfile");
  if (type == "Localhost") {
    const bool padded =
        !local.empty() &&
        (std::string_view(" \t\r\n").find(local.front()) != std::string_view::npos ||
         std::string_view(" \t\r\n").find(local.back()) != std::string_view::npos);
    if (padded) {
      errors->Invalid(name, local, "must not be padded with whitespace");
    } else if (local.empty()) {
      errors->Required(name, "must be set when AppArmor type is Localhost");
    }
    if (local.size() > kProfileMax) {
      errors->TooLong(name, static_cast<int>(kProfileMax));
    }
  } else if (type == "RuntimeDefault" || type == "Unconfined") {
    if (Has(profile, "localhostProfile")) {
      errors->Invalid(name, local, "can only be set when AppArmor type is Localhost");
    }
  } else if (type.empty()) {
    errors->Required(path.Child("type"), "type is required when appArmorProfile is set");
  } else {
    errors->NotSupported(path.Child("type"), type, {"Localhost", "RuntimeDefault", "Unconfined"});
  }
}

void HostProcess(const Path& spec_path, const Json& spec, FieldErrors* errors) {
  const Json& of_pod = OwnHostProcess(spec);
  std::size_t containers = 0;
  std::size_t of_host = 0;
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    const Path at = spec_path.Child(list);
    std::size_t index = 0;
    for (const Json& container : Items(spec, list)) {
      const Path here = at.Index(index++);
      ++containers;
      const Json& own = OwnHostProcess(container);
      if (of_pod.is_boolean() && own.is_boolean() && own != of_pod) {
        const Path security = here.Child("securityContext");
        const Path windows = security.Child("windowsOptions");
        errors->Invalid(windows.Child("hostProcess"), own,
                        std::string("pod hostProcess value must be identical if both are "
                                    "specified, was ") +
                            (of_pod.get<bool>() ? "true" : "false"));
      }
      const Json& effective = own.is_boolean() ? own : of_pod;
      of_host += effective.is_boolean() && effective.get<bool>() ? 1 : 0;
    }
  }
  if (of_host == 0) {
    return;
  }
  if (of_host != containers) {
    errors->Invalid(spec_path, "",
                    "If pod contains any hostProcess containers then all containers must be "
                    "HostProcess containers");
  }
  if (!FindBool(spec, {"hostNetwork"})) {
    errors->Invalid(spec_path.Child("hostNetwork"), false,
                    "hostNetwork must be true if pod contains any hostProcess containers");
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
    errors->InvalidShown(path.Child("localhostProfile"), ShownAsGo("SeccompProfile", profile),
                         "can only be set when seccomp type is Localhost");
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
    for (const char* host : {"hostNetwork", "hostIPC"}) {
      if (FindBool(spec, {host}) && NamespaceOfSysctl(name) == host) {
        errors->Invalid(at.Child("name"), name,
                        "may not be specified when '" + std::string(host) + "' is true");
      }
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

namespace {

void NotOfWindows(const Path& path, const Json& owner, std::initializer_list<const char*> fields,
                  FieldErrors* errors) {
  for (const char* field : fields) {
    const Json& value = Get(owner, field);
    const bool off =
        value.is_null() || (value.is_array() && value.empty()) ||
        ((std::string_view(field) == "hostPID" || std::string_view(field) == "hostIPC") &&
         value == Json(false));
    if (!off) {
      errors->Forbidden(path.Child(field), "cannot be set for a windows pod");
    }
  }
}

// Every container's security context, in Kubernetes' order.
template <typename Visit>
void EachContext(const Path& path, const Json& spec, const Visit& visit) {
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    const Path containers = path.Child(list);
    std::size_t index = 0;
    for (const Json& container : Items(spec, list)) {
      const Path at = containers.Index(index++);
      visit(at.Child("securityContext"), Get(container, "securityContext"));
    }
  }
}

void WindowsPod(const Path& path, const Json& spec, FieldErrors* errors) {
  const Json& context = Get(spec, "securityContext");
  const Path security = path.Child("securityContext");
  NotOfWindows(security, context, {"appArmorProfile", "seLinuxOptions"}, errors);
  NotOfWindows(path, spec, {"hostUsers", "hostPID", "hostIPC"}, errors);
  NotOfWindows(security, context, {"seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls"},
               errors);
  NotOfWindows(path, spec, {"shareProcessNamespace"}, errors);
  NotOfWindows(security, context,
               {"runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy",
                "seLinuxChangePolicy"},
               errors);
  EachContext(path, spec, [&](const Path& at, const Json& own) {
    NotOfWindows(at, own,
                 {"appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities",
                  "readOnlyRootFilesystem", "privileged", "allowPrivilegeEscalation", "procMount",
                  "runAsUser", "runAsGroup"},
                 errors);
  });
}

}  // namespace

void FieldsOfOtherSystems(const Path& path, const Json& spec, FieldErrors* errors) {
  const Json& os = Get(spec, "os");
  const std::string name = Str(os, "name");
  const Path at = path.Child("os");
  if (!os.is_object()) {
    return;
  }
  if (name.empty()) {
    errors->Required(at.Child("name"));
  } else if (name == "windows") {
    WindowsPod(path, spec, errors);
  } else if (name == "linux") {
    constexpr std::string_view kText = "windows options cannot be set for a linux pod";
    const Path security = path.Child("securityContext");
    if (Has(Get(spec, "securityContext"), "windowsOptions")) {
      errors->Forbidden(security.Child("windowsOptions"), kText);
    }
    EachContext(path, spec, [&](const Path& own_path, const Json& own) {
      if (Has(own, "windowsOptions")) {
        errors->Forbidden(own_path.Child("windowsOptions"), kText);
      }
    });
  } else {
    errors->NotSupported(at, name, {"linux", "windows"});
  }
}

}  // namespace sublet::kube::validate
