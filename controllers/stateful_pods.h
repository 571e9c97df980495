// The pods and claims of a StatefulSet as values: names, identity, storage, revision. Pure.
// Source: kube-controller-manager pkg/controller/statefulset/stateful_set_utils.go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kube/json.h"

namespace sublet::controllers {

inline constexpr std::string_view kRevisionHashLabel = "controller-revision-hash";
inline constexpr std::string_view kPodNameLabel = "statefulset.kubernetes.io/pod-name";
inline constexpr std::string_view kPodIndexLabel = "apps.kubernetes.io/pod-index";

// The ordinal in "set-3" for the set `set`; nothing when the name is not of that set.
std::optional<std::int64_t> OrdinalOf(std::string_view set, std::string_view pod);
std::string StatefulPodName(const kube::Json& set, std::int64_t ordinal);

// The pod of `ordinal` made from `pod_template`, of revision `revision`.
kube::Json StatefulPod(const kube::Json& set, const kube::Json& pod_template, std::int64_t ordinal,
                       const std::string& revision);

// The claims that the pod of `ordinal` needs, named <template>-<set>-<ordinal>.
std::vector<kube::Json> StatefulClaims(const kube::Json& set, std::int64_t ordinal);

// What persistentVolumeClaimRetentionPolicy wants to own the claims of `ordinal`.
enum class ClaimOwner { kNobody, kSet, kPod };
ClaimOwner ClaimOwnerOf(const kube::Json& set, std::int64_t ordinal);

}  // namespace sublet::controllers
