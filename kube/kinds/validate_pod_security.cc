// AppArmor and Windows parts of a security context, of a container or of the pod.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"

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

}  // namespace sublet::kube::validate
