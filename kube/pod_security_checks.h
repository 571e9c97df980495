// The single checks of the Pod Security Standards, private to kube/pod_security.cc: what both levels
// share stands here and in pod_security_baseline.cc, what only "restricted" asks for in
// pod_security_restricted.cc. Pure functions, any thread.
// Source: k8s.io/pod-security-admission policy/check_*.go (texts and the order of names).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kube/field_error.h"
#include "kube/pod_security.h"

namespace sublet::kube::pod_security {

using Names = std::vector<std::string>;

struct Input {
  const Json& spec;
  const Json& metadata;
};
using Out = std::vector<PodSecurityViolation>;
// Appends to the second argument what the check finds; at most one entry.
using Check = void (*)(const Input&, Out&);

// "baseline"; those that "restricted" takes over as they are, too.
void AppArmor(const Input& in, Out& out);
void CapabilitiesBaseline(const Input& in, Out& out);
void HostNamespaces(const Input& in, Out& out);
void HostPathVolumes(const Input& in, Out& out);
void HostPorts(const Input& in, Out& out);
void HostProbes(const Input& in, Out& out);
void Privileged(const Input& in, Out& out);
void ProcMount(const Input& in, Out& out);
void SeLinux(const Input& in, Out& out);
void SeccompBaseline(const Input& in, Out& out);
void Sysctls(const Input& in, Out& out);
void WindowsHostProcess(const Input& in, Out& out);

// "restricted" alone.
void AllowPrivilegeEscalation(const Input& in, Out& out);
void CapabilitiesRestricted(const Input& in, Out& out);
void RestrictedVolumes(const Input& in, Out& out);
void RunAsNonRoot(const Input& in, Out& out);
void RunAsUser(const Input& in, Out& out);
void SeccompRestricted(const Input& in, Out& out);

// The explicit part of the seccomp check, which both levels share. True when something was reported.
bool SeccompExplicit(const Input& in, Out& out);
// Whether a seccomp profile's type is one that both levels allow.
bool ValidSeccomp(std::string_view type);

// "a", "b": each name in quotes.
std::string JoinQuoted(const Names& names);
std::string JoinQuoted(const std::set<std::string>& names);
std::string Plural(std::string_view one, std::string_view many, std::size_t count);
// container "a", or containers "a", "b".
std::string Containers(const Names& names);
// Runs `visit` on init, regular and ephemeral containers, as upstream's visitor does.
void EachContainer(const Json& spec,
                   const std::function<void(const std::string& name, const Json&)>& visit);
// The value at `path`; nullptr when it is absent or null. It lives as long as `value`.
const Json* Present(const Json& value, std::initializer_list<std::string_view> path);
bool IsWindows(const Json& spec);

}  // namespace sublet::kube::pod_security
