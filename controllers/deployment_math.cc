#include "controllers/deployment_math.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "kube/int_or_string.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using kube::Json;

std::int64_t LeadingNumber(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::int64_t Share(const Json& deployment, std::string_view field, std::int64_t total,
                   bool round_up) {
  const Json* value = kube::Find(deployment, {"spec", "strategy", "rollingUpdate", field});
  kube::IntOrString parsed{.is_string = true, .number = 0, .text = "25%"};
  if (const auto found = kube::IntOrString::FromJson(value)) {
    parsed = *found;
  }
  const auto scaled = parsed.Scaled(total, round_up);
  return scaled.ok() ? *scaled : 0;
}

Json WithoutHash(const Json& pod_template) {
  Json copy = pod_template;
  if (Json* labels = kube::Find(copy, {"metadata", "labels"}); labels != nullptr) {
    labels->erase(std::string(kTemplateHashLabel));
    if (labels->empty()) {
      copy["metadata"].erase("labels");
    }
  }
  if (copy.contains("metadata")) {
    copy["metadata"].erase("creationTimestamp");
    if (copy["metadata"].empty()) {
      copy.erase("metadata");
    }
  }
  return copy;
}

// The part of a change of `to_add` that falls to `set`.
std::int64_t Proportion(const RolloutLimits& limits, const SetView& set, std::int64_t to_add,
                        std::int64_t added, std::int64_t deployment_status_replicas) {
  if (set.replicas() == 0 || to_add == 0 || to_add == added) {
    return 0;
  }
  std::int64_t fraction = -set.replicas();
  if (limits.replicas != 0) {
    std::int64_t before = LeadingNumber(kube::AnnotationOf(set.object, kMaxReplicasAnnotation));
    if (before == 0) {
      before = deployment_status_replicas;
    }
    const double size = before > 0 ? static_cast<double>(set.replicas()) *
                                         static_cast<double>(limits.replicas + limits.surge) /
                                         static_cast<double>(before)
                                   : static_cast<double>(set.replicas());
    fraction = static_cast<std::int64_t>(std::llround(size)) - set.replicas();
  }
  const std::int64_t allowed = to_add - added;
  return to_add > 0 ? std::min(fraction, allowed) : std::max(fraction, allowed);
}

}  // namespace

std::int64_t SetView::replicas() const { return kube::FindInt(object, {"spec", "replicas"}, 1); }
std::int64_t SetView::status_replicas() const {
  return kube::FindInt(object, {"status", "replicas"});
}
std::int64_t SetView::ready() const { return kube::FindInt(object, {"status", "readyReplicas"}); }
std::int64_t SetView::available() const {
  return kube::FindInt(object, {"status", "availableReplicas"});
}
std::int64_t SetView::terminating() const {
  return kube::FindInt(object, {"status", "terminatingReplicas"});
}
std::int64_t SetView::revision() const {
  return LeadingNumber(kube::AnnotationOf(object, kRevisionAnnotation));
}
std::string SetView::name() const { return std::string(kube::NameOf(object)); }
std::string SetView::created() const {
  return std::string(kube::FindString(object, {"metadata", "creationTimestamp"}));
}

RolloutLimits LimitsOf(const Json& deployment) {
  RolloutLimits out;
  out.replicas = kube::FindInt(deployment, {"spec", "replicas"}, 1);
  out.rolling = kube::FindString(deployment, {"spec", "strategy", "type"}) != "Recreate";
  if (out.rolling) {
    out.surge = Share(deployment, "maxSurge", out.replicas, true);
    out.unavailable = Share(deployment, "maxUnavailable", out.replicas, false);
    if (out.surge == 0 && out.unavailable == 0) {
      out.unavailable = 1;  // both rounded to nothing: the rollout could never move
    }
    out.unavailable = std::min(out.unavailable, out.replicas);
  }
  return out;
}

std::int64_t SumReplicas(const std::vector<SetView*>& sets) {
  return std::accumulate(
      sets.begin(), sets.end(), std::int64_t{0},
      [](std::int64_t sum, const SetView* set) { return sum + set->replicas(); });
}

std::int64_t NewSetReplicas(const RolloutLimits& limits, const std::vector<SetView*>& all,
                            const SetView& new_set) {
  if (!limits.rolling) {
    return limits.replicas;
  }
  const std::int64_t current = SumReplicas(all);
  const std::int64_t most = limits.replicas + limits.surge;
  if (current >= most) {
    return new_set.replicas();
  }
  return new_set.replicas() + std::min(most - current, limits.replicas - new_set.replicas());
}

std::vector<std::int64_t> ScaleInProportion(const RolloutLimits& limits, std::vector<SetView*> sets,
                                            std::int64_t deployment_status_replicas) {
  const std::vector<SetView*> given = sets;
  const std::int64_t allowed = limits.replicas > 0 ? limits.replicas + limits.surge : 0;
  const std::int64_t to_add = allowed - SumReplicas(sets);
  // Larger first; of equals the newer when growing, the older when shrinking.
  std::sort(sets.begin(), sets.end(), [&](const SetView* a, const SetView* b) {
    if (a->replicas() != b->replicas()) {
      return a->replicas() > b->replicas();
    }
    if (a->created() != b->created()) {
      return to_add > 0 ? a->created() > b->created() : a->created() < b->created();
    }
    return a->name() < b->name();
  });
  std::int64_t added = 0;
  std::vector<std::pair<SetView*, std::int64_t>> sizes;
  for (SetView* set : sets) {
    const std::int64_t part = Proportion(limits, *set, to_add, added, deployment_status_replicas);
    sizes.emplace_back(set, set->replicas() + part);
    added += part;
  }
  if (!sizes.empty() && to_add != 0) {
    sizes[0].second = std::max<std::int64_t>(0, sizes[0].second + to_add - added);
  }
  std::vector<std::int64_t> out;
  for (const SetView* set : given) {
    for (const auto& [view, size] : sizes) {
      if (view == set) {
        out.push_back(size);
      }
    }
  }
  return out;
}

bool SameTemplate(const Json& a, const Json& b) { return WithoutHash(a) == WithoutHash(b); }

std::vector<std::int64_t> ScaleDownOld(const RolloutLimits& limits,
                                       const std::vector<SetView*>& old_sets,
                                       const SetView* new_set) {
  std::vector<std::int64_t> sizes;
  for (const SetView* set : old_sets) {
    sizes.push_back(set->replicas());
  }
  const std::int64_t min_available = limits.replicas - limits.unavailable;
  const std::int64_t new_replicas = new_set != nullptr ? new_set->replicas() : 0;
  const std::int64_t new_available = new_set != nullptr ? new_set->available() : 0;
  const std::int64_t most =
      SumReplicas(old_sets) + new_replicas - min_available - (new_replicas - new_available);
  if (most <= 0) {
    return sizes;
  }
  std::vector<std::size_t> order(old_sets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return old_sets[a]->created() < old_sets[b]->created();
  });
  std::int64_t removed = 0;
  for (const std::size_t i : order) {
    const std::int64_t unhealthy = sizes[i] - old_sets[i]->available();
    if (removed >= most || sizes[i] == 0 || unhealthy <= 0) {
      continue;
    }
    const std::int64_t count = std::min(most - removed, unhealthy);
    sizes[i] -= count;
    removed += count;
  }
  std::int64_t available = new_available;
  for (const SetView* set : old_sets) {
    available += set->available();
  }
  std::int64_t spare = available - min_available;
  for (const std::size_t i : order) {
    if (spare <= 0) {
      break;
    }
    const std::int64_t count = std::min(sizes[i], spare);
    sizes[i] -= count;
    spare -= count;
  }
  return sizes;
}

}  // namespace sublet::controllers
