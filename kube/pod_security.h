// The Pod Security Standards as a pure function on a Pod spec. Admission (PodSecurity) and the
// syncer's own check before anything reaches a host both use it, so the two cannot disagree.
// Source: k8s.io/pod-security-admission policy at v1.36, in its order and with its texts.
// Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace sublet::kube {

struct PodSecurityViolation {
  std::string reason;  // "privileged"
  std::string detail;  // `container "c" must not set securityContext.privileged=true`
};

// "privileged", "baseline" or "restricted".
bool IsPodSecurityLevel(std::string_view level);

// What `spec` (a PodSpec) does that `level` forbids, in the order of the checks' ids. "privileged"
// and "" forbid nothing. `metadata` is the pod's (annotations are looked at).
std::vector<PodSecurityViolation> CheckPodSecurity(std::string_view level, const Json& spec,
                                                   const Json& metadata);

// "privileged (container "c" must not ...), hostPort (...)"; "" for none.
std::string DescribeViolations(const std::vector<PodSecurityViolation>& violations);

}  // namespace sublet::kube
