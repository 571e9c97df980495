// Pod translation: the host Pod that runs a tenant's Pod, built field by field from an allow-list.
// What is not named here never reaches the host. Pure: the caller (kinds/pod_syncer.h) decides when
// and gathers the context.
// Source: vCluster's pod translation table (reference 3.4); deviations say `Differs:`.
// Threads: any.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "syncer/names.h"

namespace sublet::syncer {

// What the tenant's configuration fixes for every pod.
struct PodPolicy {
  std::map<std::string, std::string> translate_images;  // exact image → image
  kube::Json enforced_tolerations;                      // array or null
  std::map<std::string, std::string> node_selector;     // forced labels of allowed nodes
  std::string runtime_class_name;                       // "" = the pod's own
  std::string priority_class_name;                      // host class for pods, "" = none
  bool sync_priority_classes = false;                   // classes are synced: names are translated
  std::int64_t priority_max = 1000000000;
  std::vector<std::string> extra_keys;  // labels and annotations that may travel
  bool sync_service_accounts = false;
  std::string cluster_domain = "cluster.local";
};

// What is true of one pod at this moment.
struct PodContext {
  Tenant tenant;
  const PodPolicy* policy = nullptr;
  std::string workload_service_account;  // host account of the tenant's pods
  std::string api_address;               // ClusterIP of the tenant's Service: what KUBERNETES_* say
  std::string dns_address;               // nameserver of ClusterFirst pods
  const kube::Json* namespace_labels = nullptr;  // labels of the virtual Namespace
  std::vector<const kube::Json*> services;       // of the pod's namespace, for service links
  kube::Json owner_reference;                    // null: none (setOwner off)
  bool scheduled_by_tenant = true;               // the tenant's scheduler chose spec.nodeName
  std::string gpu_slice;                         // name of the granted GpuSlice, "" = none
  // The host has GPUs and the pod asks for none: NVIDIA_VISIBLE_DEVICES=void, or an image that says
  // "all" would get every device under NVIDIA's runtime. Source: KAI's device access admission.
  bool hide_gpus = false;
};

// One token the pod's projected volumes ask for; the syncer keeps it fresh in the token Secret.
struct PodToken {
  std::string key;  // in the Secret
  std::vector<std::string> audiences;
  std::int64_t expiration_seconds = 3600;
};

struct HostPod {
  kube::Json pod;
  std::string token_secret;  // name of the host Secret, "" when the pod mounts no token
  std::vector<PodToken> tokens;
};

// The annotations whose values the host pod's downward API reads.
inline constexpr std::string_view kPodNameAnnotation = "sublet.dev/name";
inline constexpr std::string_view kPodNamespaceAnnotation = "sublet.dev/namespace";
inline constexpr std::string_view kPodUidAnnotation = "sublet.dev/uid";
inline constexpr std::string_view kPodServiceAccountAnnotation = "sublet.dev/service-account-name";
inline constexpr std::string_view kPodLabelsAnnotation = "sublet.dev/labels";
// What the tenant asked for when it was last carried over, as hashes: a host that changed it
// meanwhile (a webhook that swaps images or raises requests) is not fought.
inline constexpr std::string_view kImagesAnnotation = "sublet.dev/images";
inline constexpr std::string_view kResourcesAnnotation = "sublet.dev/resources";
inline constexpr std::string_view kCdiAnnotation = "cdi.k8s.io/sublet";

// Builds the host Pod.
// Errors: Forbidden, with a message for the tenant, when the pod uses something that no policy lets
// through (a volume kind outside the allow-list).
Result<HostPod> TranslatePod(const kube::Json& pod, const PodContext& context);

// The ephemeral containers of the host pod: an array, empty when there are none.
kube::Json TranslateEphemeralContainers(const kube::Json& pod, const PodContext& context);

// The parts that follow later changes of a running pod: labels, annotations, images,
// activeDeadlineSeconds, tolerations. Returns a merge patch for the host pod; null when there is
// nothing to do.
kube::Json HostPodPatch(const kube::Json& host_pod, const kube::Json& wanted_host_pod);

// The strategic merge patch for pods/resize that brings cpu and memory of the host pod's containers
// to what is wanted; null when they are, or when the tenant's wish is the one carried before.
// Containers only, as upstream resizes.
kube::Json HostPodResize(const kube::Json& host_pod, const kube::Json& wanted_host_pod);

// The host object names a pod depends on, by virtual name.
struct PodReferences {
  std::vector<std::string> config_maps;
  std::vector<std::string> secrets;
  std::vector<std::string> claims;
};
PodReferences ReferencesOfPod(const kube::Json& pod);

// The status that the tenant's pod shows, from the host pod's: names translated back, qosClass,
// injected containers and their mounts left out. `host_pod` as read from the host. Conditions of
// the pod's readiness gates are the tenant's.
kube::Json VirtualStatus(const kube::Json& virtual_pod, const kube::Json& host_pod);

// The conditions of the pod's readiness gates, set by the tenant's controllers, that the host pod
// lacks or has otherwise: a strategic merge patch for its status, null when there are none.
kube::Json GatesPatch(const kube::Json& virtual_pod, const kube::Json& host_pod);

}  // namespace sublet::syncer
