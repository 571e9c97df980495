#include "controllers/stateful_pods.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "controllers/pod_control.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using kube::Json;

const Json& ClaimTemplates(const Json& set) {
  static const Json kEmpty = Json::array();
  const Json* found = kube::Find(set, {"spec", "volumeClaimTemplates"});
  return found != nullptr && found->is_array() ? *found : kEmpty;
}

std::string ClaimName(const Json& set, const Json& claim_template, std::int64_t ordinal) {
  return std::string(kube::NameOf(claim_template)) + "-" + StatefulPodName(set, ordinal);
}

// The pod's volumes: the template's, with the claims in the place of those of the same name.
void PutClaimVolumes(const Json& set, std::int64_t ordinal, Json* pod) {
  if (ClaimTemplates(set).empty()) {
    return;
  }
  Json volumes = Json::array();
  std::vector<std::string> names;
  for (const Json& claim : ClaimTemplates(set)) {
    names.emplace_back(kube::NameOf(claim));
    volumes.push_back({{"name", names.back()},
                       {"persistentVolumeClaim", {{"claimName", ClaimName(set, claim, ordinal)}}}});
  }
  const Json* given = kube::Find(*pod, {"spec", "volumes"});
  for (const Json& volume : given != nullptr && given->is_array() ? *given : Json::array()) {
    if (std::find(names.begin(), names.end(), kube::FindString(volume, {"name"})) == names.end()) {
      volumes.push_back(volume);
    }
  }
  (*pod)["spec"]["volumes"] = std::move(volumes);
}

}  // namespace

std::optional<std::int64_t> OrdinalOf(std::string_view set, std::string_view pod) {
  if (!pod.starts_with(set) || pod.size() <= set.size() + 1 || pod[set.size()] != '-') {
    return std::nullopt;
  }
  const std::string_view digits = pod.substr(set.size() + 1);
  std::int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() ||
      std::to_string(value) != digits) {
    return std::nullopt;
  }
  return value;
}

std::string StatefulPodName(const Json& set, std::int64_t ordinal) {
  return std::string(kube::NameOf(set)) + "-" + std::to_string(ordinal);
}

Json StatefulPod(const Json& set, const Json& pod_template, std::int64_t ordinal,
                 const std::string& revision) {
  Json pod = PodFromTemplate(pod_template, set);
  const std::string name = StatefulPodName(set, ordinal);
  pod["metadata"].erase("generateName");
  pod["metadata"]["name"] = name;
  kube::SetLabel(&pod, kPodNameLabel, name);
  kube::SetLabel(&pod, kPodIndexLabel, std::to_string(ordinal));
  kube::SetLabel(&pod, kRevisionHashLabel, revision);
  pod["spec"]["hostname"] = name;
  if (const std::string_view service = kube::FindString(set, {"spec", "serviceName"});
      !service.empty()) {
    pod["spec"]["subdomain"] = service;
  }
  PutClaimVolumes(set, ordinal, &pod);
  return pod;
}

std::vector<Json> StatefulClaims(const Json& set, std::int64_t ordinal) {
  std::vector<Json> out;
  for (const Json& claim_template : ClaimTemplates(set)) {
    Json claim = claim_template;
    claim.erase("status");
    claim["metadata"]["name"] = ClaimName(set, claim_template, ordinal);
    claim["metadata"]["namespace"] = kube::NamespaceOf(set);
    claim["metadata"].erase("creationTimestamp");
    if (const Json* labels = kube::Find(set, {"spec", "selector", "matchLabels"})) {
      for (const auto& [key, value] : labels->items()) {
        claim["metadata"]["labels"][key] = value;
      }
    }
    out.push_back(std::move(claim));
  }
  return out;
}

ClaimOwner ClaimOwnerOf(const Json& set, std::int64_t ordinal) {
  const auto deletes = [&](const char* when) {
    return kube::FindString(set, {"spec", "persistentVolumeClaimRetentionPolicy", when}) ==
           "Delete";
  };
  const std::int64_t start = kube::FindInt(set, {"spec", "ordinals", "start"});
  const std::int64_t end = start + kube::FindInt(set, {"spec", "replicas"}, 1);
  if (deletes("whenScaled") && (ordinal < start || ordinal >= end)) {
    return ClaimOwner::kPod;  // the claim goes with the pod that is scaled away
  }
  return deletes("whenDeleted") ? ClaimOwner::kSet : ClaimOwner::kNobody;
}

}  // namespace sublet::controllers
