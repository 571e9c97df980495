// Names, labels and annotations on the host: pure functions from what stands in the tenant to what
// stands in the tenant's host namespace, and the keys that mark a host object as ours. Source:
// vCluster's translation rules (reference: names `NAME-x-NAMESPACE-x-TENANT`, 63 characters,
// SHA-256 suffix), with our prefix `sublet.dev/` instead of `vcluster.loft.sh/`. Threads: any;
// everything here is a pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace sublet::syncer {

inline constexpr std::string_view kPrefix = "sublet.dev/";
inline constexpr std::string_view kLabelManagedBy = "sublet.dev/managed-by";
inline constexpr std::string_view kLabelNamespace = "sublet.dev/namespace";
inline constexpr std::string_view kLabelControlledBy = "sublet.dev/controlled-by";
inline constexpr std::string_view kAnnotationName = "sublet.dev/object-name";
inline constexpr std::string_view kAnnotationNamespace = "sublet.dev/object-namespace";
inline constexpr std::string_view kAnnotationUid = "sublet.dev/object-uid";
inline constexpr std::string_view kAnnotationKind = "sublet.dev/object-kind";
// Which labels and annotations of the virtual object stand on the host object, comma separated.
inline constexpr std::string_view kAnnotationLabelKeys = "sublet.dev/label-keys";
inline constexpr std::string_view kAnnotationAnnotationKeys = "sublet.dev/annotation-keys";
inline constexpr std::string_view kAnnotationHostName = "sublet.dev/object-host-name";
inline constexpr std::string_view kAnnotationHostNamespace = "sublet.dev/object-host-namespace";
// On the virtual object: the labels and annotations that the host added, as they were last shown:
// {"labels": {...}, "annotations": {...}} as JSON text.
inline constexpr std::string_view kAnnotationFromHost = "sublet.dev/from-host";

// Whose names are translated.
struct Tenant {
  std::string name;            // "team-a"
  std::string host_namespace;  // "sublet-team-a"
};

// The first ten hexadecimal digits of SHA-256(text).
std::string Hash10(std::string_view text);

// `full` when it has at most 63 characters; else its first 52 characters, '-', Hash10(full), with
// every ".-" then turned into "-".
std::string SafeName(std::string full);

// "NAME-x-NAMESPACE-x-TENANT", shortened by SafeName.
std::string HostName(const Tenant& tenant, std::string_view name,
                     std::string_view virtual_namespace);
// For cluster-scoped objects: "sublet-NAME-x-HOSTNAMESPACE-x-TENANT".
std::string HostNameCluster(const Tenant& tenant, std::string_view name);
// "v" and 13 characters of lower-case base 36 of SHA-256: for names with a tighter limit.
std::string ShortHostName(const Tenant& tenant, std::string_view name,
                          std::string_view virtual_namespace);

// The key under which label `key` arrives on the host: itself, except for "release" and our own
// marker keys, which become "sublet.dev/label-TENANT-x-HASH".
std::string HostLabelKey(const Tenant& tenant, std::string_view key);
// The key that carries a label of the virtual Namespace on host pods.
std::string NamespaceLabelKey(const Tenant& tenant, std::string_view key);
// What a host object of ours carries as managed-by: the tenant's name; "HOSTNAMESPACE-x-TENANT" for
// cluster-scoped objects.
std::string ManagedByValue(const Tenant& tenant, bool cluster_scoped);

// True when `key` may travel from a tenant's object to the host: unprefixed keys and the prefixes
// of well-known application labels. Everything else could switch something on at the host
// (webhooks, CDI devices, other schedulers). `extra` holds further allowed prefixes
// ("example.com/") or whole keys from the configuration. Differs: vCluster copies every label and
// annotation; host webhooks can then be triggered by a tenant.
bool MayTravel(std::string_view key, const std::vector<std::string>& extra);

// A merge patch {metadata: ...} that shows the tenant what the host added to its object's labels
// and annotations: keys that did not come from the tenant and may travel (MayTravel), and the
// topology of the node. Null when all is shown. A key whose value the tenant sets itself is the
// tenant's from then on; what the host removes goes here too.
kube::Json HostAdditionsPatch(const kube::Json& virtual_object, const kube::Json& host_object,
                              const std::vector<std::string>& extra_keys);

// The labels of a host object made from those of `virtual_object`, markers included; without those
// that only show what the host added.
kube::Json HostLabels(const Tenant& tenant, const kube::Json& virtual_object,
                      const std::vector<std::string>& extra_keys);
// The annotations of a host object, identity included. `kind_text` is "/v1, Kind=Pod".
kube::Json HostAnnotations(const Tenant& tenant, const kube::Json& virtual_object,
                           std::string_view kind_text, std::string_view host_name,
                           const std::vector<std::string>& extra_keys);
// Adds to `patch` (a merge patch of the host object) the removal of labels and annotations that
// were carried earlier and are not in `wanted` any more; keys that the host added are left alone.
void RemoveStaleKeys(const kube::Json& host_object, const kube::Json& wanted, kube::Json* patch);

// Rewrites the keys of a label selector {matchLabels, matchExpressions} by HostLabelKey and adds
// the markers of tenant and, when not empty, of `virtual_namespace`.
kube::Json HostLabelSelector(const Tenant& tenant, const kube::Json& selector,
                             std::string_view virtual_namespace);

}  // namespace sublet::syncer
