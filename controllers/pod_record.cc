#include "controllers/pod_record.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "controllers/daemon_pods.h"
#include "kube/json_lists.h"
#include "kube/object.h"
#include "kube/quantity.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using kube::ArrayAt;
using kube::Json;
using kube::NumberOf;

void ReadContainerStatuses(const Json& pod, std::string_view list, bool is_init, PodRecord* out) {
  for (const Json& status : ArrayAt(pod, {"status", list})) {
    const std::int64_t restarts = kube::FindInt(status, {"restartCount"});
    out->restarts += restarts;
    out->restarts_max = std::max(out->restarts_max, restarts);
    const Json* ended = kube::Find(status, {"state", "terminated"});
    if (ended == nullptr || !ended->is_object()) {
      continue;
    }
    out->ends.push_back({std::string(kube::FindString(status, {"name"})),
                         kube::FindInt(*ended, {"exitCode"}), is_init});
    if (const auto when = kube::FindTime(kube::FindString(*ended, {"finishedAt"}))) {
      out->finished_at = std::max(out->finished_at.value_or(*when), *when);
    }
  }
}

void ReadConditions(const Json& pod, PodRecord* out) {
  for (const Json& condition : ArrayAt(pod, {"status", "conditions"})) {
    PodCondition entry{std::string(kube::FindString(condition, {"type"})),
                       std::string(kube::FindString(condition, {"status"})),
                       std::string(kube::FindString(condition, {"reason"}))};
    if (entry.type == "Ready" && entry.status == "True") {
      out->ready = true;
      out->ready_since = kube::FindTime(kube::FindString(condition, {"lastTransitionTime"}));
    }
    out->conditions.push_back(std::move(entry));
  }
}

using Amounts = std::map<std::string, kube::Quantity>;

void AddRequests(const Json& container, Amounts* out) {
  const Json* requests = kube::Find(container, {"resources", "requests"});
  if (requests == nullptr || !requests->is_object()) {
    return;
  }
  for (const auto& [name, amount] : requests->items()) {
    (*out)[name] +=
        kube::Quantity::ParseOrZero(amount.is_string() ? amount.get<std::string>() : "");
  }
}

// Source: k8s.io/component-helpers resource PodRequests.
void ReadRequests(const Json& pod, PodRecord* out) {
  Amounts sum;
  for (const Json& container : ArrayAt(pod, {"spec", "containers"})) {
    AddRequests(container, &sum);
  }
  Amounts sidecars;
  Amounts most;
  for (const Json& container : ArrayAt(pod, {"spec", "initContainers"})) {
    Amounts now = sidecars;
    AddRequests(container, &now);
    if (kube::FindString(container, {"restartPolicy"}) == "Always") {
      sidecars = now;
      AddRequests(container, &sum);
    }
    for (const auto& [name, amount] : now) {
      most[name] = std::max(most[name], amount);
    }
  }
  for (const auto& [name, amount] : most) {
    sum[name] = std::max(sum[name], amount);
  }
  if (const Json* overhead = kube::Find(pod, {"spec", "overhead"});
      overhead && overhead->is_object()) {
    for (const auto& [name, amount] : overhead->items()) {
      sum[name] += kube::Quantity::ParseOrZero(amount.is_string() ? amount.get<std::string>() : "");
    }
  }
  for (const auto& [name, amount] : sum) {
    out->requests.emplace_back(name, amount.Text());
  }
}

void ReadDeviceClaims(const Json& pod, PodRecord* out) {
  std::map<std::string, std::string> made;
  for (const Json& status : ArrayAt(pod, {"status", "resourceClaimStatuses"})) {
    made[std::string(kube::FindString(status, {"name"}))] =
        kube::FindString(status, {"resourceClaimName"});
  }
  for (const Json& claim : ArrayAt(pod, {"spec", "resourceClaims"})) {
    std::string name(kube::FindString(claim, {"resourceClaimName"}));
    const auto entry = made.find(std::string(kube::FindString(claim, {"name"})));
    if (name.empty() && entry != made.end()) {
      name = entry->second;
    } else if (name.empty()) {
      out->lacks_device_claims = true;
    }
    if (!name.empty()) {
      out->device_claims.push_back(std::move(name));
    }
  }
}

void ReadSpec(const Json& pod, PodRecord* out) {
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : ArrayAt(pod, {"spec", list})) {
      // Of the init containers only sidecars can serve a port.
      if (list[0] == 'i' && kube::FindString(container, {"restartPolicy"}) != "Always") {
        continue;
      }
      for (const Json& port : ArrayAt(container, {"ports"})) {
        out->ports.push_back({std::string(kube::FindString(port, {"name"})),
                              std::string(kube::FindString(port, {"protocol"}, "TCP")),
                              static_cast<std::int32_t>(kube::FindInt(port, {"containerPort"}))});
      }
    }
  }
  for (const Json& volume : ArrayAt(pod, {"spec", "volumes"})) {
    const std::string_view claim = kube::FindString(volume, {"persistentVolumeClaim", "claimName"});
    if (!claim.empty()) {
      out->claims.emplace_back(claim);
    } else if (kube::Find(volume, {"ephemeral"}) != nullptr) {
      out->claims.push_back(std::string(kube::NameOf(pod)) + "-" +
                            std::string(kube::FindString(volume, {"name"})));
    }
  }
  for (const Json& toleration : ArrayAt(pod, {"spec", "tolerations"})) {
    out->toleration_json.push_back(kube::Dump(toleration));
  }
}

}  // namespace

bool PodRecord::HasCondition(std::string_view type, std::string_view status) const {
  return std::any_of(conditions.begin(), conditions.end(), [&](const PodCondition& condition) {
    return condition.type == type && condition.status == status;
  });
}

PodRecord ReadPodRecord(const Json& pod) {
  PodRecord out;
  out.node = kube::FindString(pod, {"spec", "nodeName"});
  if (out.node.empty()) {
    out.wanted_node = DaemonNodeOf(pod);
  }
  out.restart_policy = kube::FindString(pod, {"spec", "restartPolicy"}, "Always");
  out.hostname = kube::FindString(pod, {"spec", "hostname"});
  out.subdomain = kube::FindString(pod, {"spec", "subdomain"});
  out.host_network = kube::FindBool(pod, {"spec", "hostNetwork"});
  out.phase = kube::FindString(pod, {"status", "phase"});
  out.reason = kube::FindString(pod, {"status", "reason"});
  out.start_time = kube::FindTime(kube::FindString(pod, {"status", "startTime"}));
  for (const Json& entry : ArrayAt(pod, {"status", "podIPs"})) {
    out.ips.emplace_back(kube::FindString(entry, {"ip"}));
  }
  if (out.ips.empty()) {
    if (const std::string_view ip = kube::FindString(pod, {"status", "podIP"}); !ip.empty()) {
      out.ips.emplace_back(ip);
    }
  }
  out.deletion_cost =
      NumberOf(kube::AnnotationOf(pod, "controller.kubernetes.io/pod-deletion-cost")).value_or(0);
  out.completion_index =
      NumberOf(kube::AnnotationOf(pod, "batch.kubernetes.io/job-completion-index"));
  out.failed_count =
      NumberOf(kube::AnnotationOf(pod, "batch.kubernetes.io/job-index-failure-count")).value_or(0);
  out.ignored_count =
      NumberOf(kube::AnnotationOf(pod, "batch.kubernetes.io/job-index-ignored-failure-count"))
          .value_or(0);
  ReadSpec(pod, &out);
  ReadDeviceClaims(pod, &out);
  ReadRequests(pod, &out);
  ReadConditions(pod, &out);
  ReadContainerStatuses(pod, "containerStatuses", false, &out);
  ReadContainerStatuses(pod, "initContainerStatuses", true, &out);
  return out;
}

bool IsActive(const client::CachedObject& pod) {
  return !pod.deleting() && !pod.As<PodRecord>().Finished();
}

bool IsAvailable(const client::CachedObject& pod, std::int64_t min_ready_seconds, WallTime now,
                 std::chrono::nanoseconds* wait) {
  const auto& record = pod.As<PodRecord>();
  if (!record.ready) {
    return false;
  }
  if (min_ready_seconds <= 0) {
    return true;
  }
  if (!record.ready_since) {
    return false;
  }
  const auto left = *record.ready_since + std::chrono::seconds(min_ready_seconds) - now;
  if (left.count() <= 0) {
    return true;
  }
  if (wait != nullptr && (wait->count() == 0 || left < *wait)) {
    *wait = std::chrono::duration_cast<std::chrono::nanoseconds>(left);
  }
  return false;
}

}  // namespace sublet::controllers
