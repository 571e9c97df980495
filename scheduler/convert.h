// Kubernetes objects (JSON) to the engine's values: Pod, Node, Queue, PodGroup, Topology, PVC/PV,
// DRA, PodDisruptionBudget. What an object leaves out gets Kubernetes' or KAI's default; what
// cannot be read (a broken quantity) counts as absent: the API server has validated what it stores,
// and a scheduler must not stop because of one odd object. Threads: pure, any.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "scheduler/model.h"

namespace sublet::scheduler {

// What placing a pod needs to know of a PersistentVolumeClaim and a StorageClass.
struct VolumeClaimFacts {
  bool deleting = false;
  bool lost = false;          // status.phase Lost
  std::string volume;         // "" = unbound
  std::string storage_class;  // "" = none named
  std::string uid;
};
struct StorageClassFacts {
  bool waits = false;                // volumeBindingMode WaitForFirstConsumer
  std::vector<NodeTerm> topologies;  // allowedTopologies, any of them; empty = everywhere
  std::string provisioner;
};

struct VolumeFacts {
  std::vector<NodeTerm> terms;  // any of them; empty = everywhere
  std::string driver, handle;   // of a CSI volume; "" otherwise
};

// What a pod's conversion must look up elsewhere. Unset functions know nothing, and what is not
// known keeps no pod waiting; a set function that finds nothing says that the object does not
// exist.
struct PodLookups {
  std::function<std::optional<VolumeClaimFacts>(const std::string& ns, const std::string& name)>
      volume_claim;
  std::function<std::optional<VolumeFacts>(const std::string& name)> volume;
  std::function<std::optional<StorageClassFacts>(const std::string& name)> storage_class;
  std::function<bool(const std::string& ns, const std::string& name)> config_map_exists;
  // A class that `storage_class` does not find does not exist. Differs: false in a tenant that is
  // not shown its host's classes; there the class and the binding are the host's, which may wait for
  // the pod, and an unbound claim of a class that is not known keeps no pod waiting.
  bool classes_known = true;
};

// The objects that must exist before a pod can be placed, by name in its namespace; sorted, unique.
struct VolumeRefs {
  std::vector<std::string> claims;
  std::vector<std::string> config_maps;  // optional ones are left out
  bool empty() const { return claims.empty() && config_maps.empty(); }
};
VolumeRefs VolumesOf(const kube::Json& pod);
// Adds to `pod` what its volumes ask of a node, or the reason why none will do. Of a pod that has a
// node only what it attaches there.
void ResolveVolumes(const VolumeRefs& refs, const PodLookups& lookups, PodSpec* pod);
VolumeClaimFacts VolumeClaimFromJson(const kube::Json& claim);
StorageClassFacts StorageClassFromJson(const kube::Json& storage_class);
VolumeFacts VolumeFromJson(const kube::Json& volume);
// status of a CSINode: how many volumes of each driver the node can attach.
std::map<std::string, std::int64_t> VolumeLimitsFromJson(const kube::Json& csi_node);

PodSpec PodFromJson(const kube::Json& pod, const PodLookups& lookups = {});
NamespaceSpec NamespaceFromJson(const kube::Json& space);
NodeSpec NodeFromJson(const kube::Json& node);
QueueSpec QueueFromJson(const kube::Json& queue);
// `priority` resolves a PriorityClass name; KAI counts 50 where there is none.
PodGroupSpec PodGroupFromJson(
    const kube::Json& group, const std::function<std::optional<int>(const std::string&)>& priority);
TopologySpec TopologyFromJson(const kube::Json& topology);

// What placing a pod needs to know of a DeviceClass.
struct DeviceClassFacts {
  std::vector<std::shared_ptr<const DeviceSelector>> selectors;
  std::string problem;  // "" or why its selectors cannot be followed
};
DeviceClassFacts DeviceClassFromJson(const kube::Json& device_class);
// resource.k8s.io/v1. What the engine cannot do (ClaimSpec::problem): kinds of requests and
// constraints that are not known here, CEL beyond DeviceSelector.
ClaimSpec ClaimFromJson(const kube::Json& claim);
// Adds the selectors of the classes that the claim names, or the reason why they cannot be
// followed; `find` gives nothing for a class that does not exist.
void ResolveClasses(
    const std::function<std::optional<DeviceClassFacts>(const std::string& name)>& find,
    ClaimSpec* claim);
// The classes that it names, sorted, unique.
std::vector<std::string> ClassesOf(const ClaimSpec& claim);
// Devices that wait for binding conditions are not usable.
DeviceSlice SliceFromJson(const kube::Json& slice);
DisruptionBudget BudgetFromJson(const kube::Json& budget);

// A LabelSelector object; *nothing is set when it is absent (it then matches no pod).
Selector SelectorFromJson(const kube::Json* selector, bool* nothing);
// Resource amounts of a pod as the scheduler counts them: containers and sidecars together, or the
// largest init container, plus overhead; with KAI's sharing annotations.
Request RequestFromJson(const kube::Json& pod);

}  // namespace sublet::scheduler
