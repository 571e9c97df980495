// Whether a pod may stand on a node by labels and taints: what DaemonSets, taint eviction and volume
// binding need of scheduling. Pure.
// Source: k8s.io/component-helpers scheduling/corev1.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/informer.h"
#include "kube/json.h"

namespace sublet::controllers {

struct Taint {
  std::string key;
  std::string value;
  std::string effect;
  std::string time_added;
};
std::vector<Taint> TaintsOf(const kube::Json& node);

// Whether one toleration object covers the taint.
bool Tolerates(const kube::Json& toleration, const Taint& taint);
// Whether any of the array does.
bool AnyTolerates(const kube::Json& tolerations, const Taint& taint);

// A NodeSelector object (nodeSelectorTerms, any of them) against a node's labels and name.
bool MatchesNodeSelector(const kube::Json& node_selector, const client::CachedObject& node);

// spec.nodeSelector and the required node affinity of a pod spec.
bool MatchesNodeAffinity(const kube::Json& pod_spec, const client::CachedObject& node);

}  // namespace sublet::controllers
