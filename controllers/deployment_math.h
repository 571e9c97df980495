// The arithmetic of a rollout, pure: how many pods each ReplicaSet of a Deployment should have.
// Source: kube-controller-manager pkg/controller/deployment/util.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/informer.h"
#include "kube/json.h"

namespace sublet::controllers {

inline constexpr std::string_view kRevisionAnnotation = "deployment.kubernetes.io/revision";
inline constexpr std::string_view kRevisionHistoryAnnotation =
    "deployment.kubernetes.io/revision-history";
inline constexpr std::string_view kDesiredReplicasAnnotation =
    "deployment.kubernetes.io/desired-replicas";
inline constexpr std::string_view kMaxReplicasAnnotation = "deployment.kubernetes.io/max-replicas";
inline constexpr std::string_view kTemplateHashLabel = "pod-template-hash";

// A ReplicaSet as the rollout sees it; `object` is its whole value and is edited in place.
struct SetView {
  kube::Json object;
  std::int64_t replicas() const;  // spec
  std::int64_t status_replicas() const;
  std::int64_t ready() const;
  std::int64_t available() const;
  std::int64_t terminating() const;
  std::int64_t revision() const;
  std::string name() const;
  std::string created() const;
};

struct RolloutLimits {
  std::int64_t replicas = 1;
  bool rolling = true;
  std::int64_t surge = 0;        // pods above `replicas`
  std::int64_t unavailable = 0;  // pods that may be missing
};
// From a Deployment's spec; percentages resolved, never both zero.
RolloutLimits LimitsOf(const kube::Json& deployment);

std::int64_t SumReplicas(const std::vector<SetView*>& sets);

// How large the new set may be now.
std::int64_t NewSetReplicas(const RolloutLimits& limits, const std::vector<SetView*>& all,
                            const SetView& new_set);

// The sizes of `sets` (same order) after the Deployment was scaled in the middle of a rollout: the
// difference is shared in proportion, the rest goes to the largest.
std::vector<std::int64_t> ScaleInProportion(const RolloutLimits& limits, std::vector<SetView*> sets,
                                            std::int64_t deployment_status_replicas);

// Whether two pod templates are the same but for the hash label.
bool SameTemplate(const kube::Json& a, const kube::Json& b);

// Sizes for the old sets after one step of a rolling update: unhealthy pods first, then as many as
// availability allows. Same order as `old_sets`.
std::vector<std::int64_t> ScaleDownOld(const RolloutLimits& limits,
                                       const std::vector<SetView*>& old_sets,
                                       const SetView* new_set);

}  // namespace sublet::controllers
