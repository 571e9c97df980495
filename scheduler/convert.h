// Kubernetes objects (JSON) to the engine's values: Pod, Node, Queue, PodGroup, Topology, PVC/PV, DRA,
// PodDisruptionBudget. What an object leaves out gets Kubernetes' or KAI's default; what cannot be read
// (a broken quantity) counts as absent: the API server has validated what it stores, and a scheduler must
// not stop because of one odd object.
// Threads: pure, any.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "scheduler/model.h"

namespace sublet::scheduler {

// What a pod's conversion must look up elsewhere. Unset functions know nothing.
struct PodLookups {
  // Claim and volume by key; nullptr when it does not exist.
  std::function<const kube::Json*(const std::string& ns, const std::string& name)> volume_claim;
  std::function<const kube::Json*(const std::string& name)> volume;
  std::function<const kube::Json*(const std::string& name)> storage_class;
  std::function<bool(const std::string& ns, const std::string& name)> config_map_exists;
  // Names of the namespaces whose labels match.
  std::function<std::vector<std::string>(const Selector& selector)> namespaces;
};

PodSpec PodFromJson(const kube::Json& pod, const PodLookups& lookups = {});
NodeSpec NodeFromJson(const kube::Json& node);
QueueSpec QueueFromJson(const kube::Json& queue);
// `priority` resolves a PriorityClass name; KAI counts 50 where there is none.
PodGroupSpec PodGroupFromJson(const kube::Json& group, const std::function<std::optional<int>(const std::string&)>& priority);
TopologySpec TopologyFromJson(const kube::Json& topology);
ClaimSpec ClaimFromJson(const kube::Json& claim);
DeviceSlice SliceFromJson(const kube::Json& slice);
DisruptionBudget BudgetFromJson(const kube::Json& budget);

// A LabelSelector object; *nothing is set when it is absent (it then matches no pod).
Selector SelectorFromJson(const kube::Json* selector, bool* nothing);
// Resource amounts of a pod as the scheduler counts them: containers and sidecars together, or the
// largest init container, plus overhead; with KAI's sharing annotations.
Request RequestFromJson(const kube::Json& pod);

}  // namespace sublet::scheduler
