// Whether a pod may stand on a node by labels and taints: what DaemonSets, taint eviction and a
// node's own admission need of scheduling. Pure; threads: any. Source: k8s.io/component-helpers
// scheduling/corev1.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/json.h"

namespace sublet::kube {

struct Taint {
  std::string key;
  std::string value;
  std::string effect;
  std::string time_added;
};
using Labels = std::vector<std::pair<std::string, std::string>>;

std::vector<Taint> TaintsOf(const Json& node);

// Whether one toleration object covers the taint.
bool Tolerates(const Json& toleration, const Taint& taint);
// Whether any of the array does.
bool AnyTolerates(const Json& tolerations, const Taint& taint);

// A NodeSelector object (nodeSelectorTerms, any of them) against a node's labels and name.
bool MatchesNodeSelector(const Json& node_selector, const std::string& name, const Labels& labels);

// spec.nodeSelector and the required node affinity of a pod spec.
bool MatchesNodeAffinity(const Json& pod_spec, const std::string& name, const Labels& labels);

}  // namespace sublet::kube
