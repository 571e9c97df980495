#include "kube/pod_security.h"

#include "kube/pod_security_checks.h"

namespace sublet::kube {
namespace {

using namespace pod_security;

// The checks in the order of upstream's ids; a restricted check that overrides a baseline one
// stands in its place.
constexpr Check kBaseline[] = {AppArmor,  CapabilitiesBaseline, HostNamespaces, HostPathVolumes,
                               HostPorts, HostProbes,           Privileged,     ProcMount,
                               SeLinux,   SeccompBaseline,      Sysctls,        WindowsHostProcess};
constexpr Check kRestricted[] = {AppArmor,
                                 HostNamespaces,
                                 HostPorts,
                                 HostProbes,
                                 Privileged,
                                 ProcMount,
                                 SeLinux,
                                 Sysctls,
                                 WindowsHostProcess,
                                 AllowPrivilegeEscalation,
                                 CapabilitiesRestricted,
                                 RestrictedVolumes,
                                 RunAsNonRoot,
                                 RunAsUser,
                                 SeccompRestricted};

}  // namespace

bool IsPodSecurityLevel(std::string_view level) {
  return level == "privileged" || level == "baseline" || level == "restricted";
}

std::vector<PodSecurityViolation> CheckPodSecurity(std::string_view level, const Json& spec,
                                                   const Json& metadata) {
  Out out;
  const Input in{spec, metadata};
  if (level == "baseline") {
    for (const Check check : kBaseline) {
      check(in, out);
    }
  } else if (level == "restricted") {
    for (const Check check : kRestricted) {
      check(in, out);
    }
  }
  return out;
}

std::string DescribeViolations(const std::vector<PodSecurityViolation>& violations) {
  std::string text;
  for (const PodSecurityViolation& violation : violations) {
    text += (text.empty() ? "" : ", ") + violation.reason + " (" + violation.detail + ")";
  }
  return text;
}

}  // namespace sublet::kube
