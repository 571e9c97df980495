#include "node/simulate/pod_facts.h"

#include <nlohmann/json.hpp>

#include "kube/json_lists.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::node {
namespace {

using kube::ArrayAt;
using kube::Json;
using kube::NumberOf;

std::vector<SimulatedContainer> ReadContainers(const Json& pod, std::string_view list) {
  std::vector<SimulatedContainer> out;
  for (const Json& container : ArrayAt(pod, {"spec", list})) {
    SimulatedContainer facts;
    facts.name = kube::FindString(container, {"name"});
    facts.image = kube::FindString(container, {"image"});
    facts.restarts_always = kube::FindString(container, {"restartPolicy"}) == "Always";
    if (const Json* resources = kube::Find(container, {"resources"});
        resources != nullptr && resources->is_object() && !resources->empty()) {
      facts.resources = kube::Dump(*resources);
    }
    out.push_back(std::move(facts));
  }
  return out;
}

void ReadStatus(const Json& pod, SimulatedPod* out) {
  out->phase = kube::FindString(pod, {"status", "phase"});
  out->pod_ip = kube::FindString(pod, {"status", "podIP"});
  out->observed_generation = kube::FindInt(pod, {"status", "observedGeneration"});
  out->start_time = kube::FindTime(kube::FindString(pod, {"status", "startTime"}));
  const Json& statuses = ArrayAt(pod, {"status", "containerStatuses"});
  out->reported = !statuses.empty();
  if (out->reported) {
    const Json& first = statuses.front();
    out->restarts = kube::FindInt(first, {"restartCount"});
    out->started_at = kube::FindTime(kube::FindString(first, {"state", "running", "startedAt"}));
    const std::string_view reason = kube::FindString(first, {"state", "waiting", "reason"});
    out->pull_failed = reason == "ErrImagePull" || reason == "ImagePullBackOff";
  }
  for (const Json& condition : ArrayAt(pod, {"status", "conditions"})) {
    if (kube::FindString(condition, {"status"}) == "True") {
      out->true_conditions.emplace_back(kube::FindString(condition, {"type"}));
    }
  }
  out->ready = kube::IsConditionTrue(pod, "Ready");
}

}  // namespace

SimulatedPod ReadSimulatedPod(const Json& pod) {
  SimulatedPod out;
  out.node = kube::FindString(pod, {"spec", "nodeName"});
  out.restart_policy = kube::FindString(pod, {"spec", "restartPolicy"}, "Always");
  out.host_network = kube::FindBool(pod, {"spec", "hostNetwork"});
  out.demand = ReadPodDemand(pod);
  out.generation = kube::GenerationOf(pod);
  if (const Json* deadline = kube::Find(pod, {"spec", "activeDeadlineSeconds"});
      deadline != nullptr && deadline->is_number_integer()) {
    out.active_deadline_seconds = deadline->get<std::int64_t>();
  }
  const auto ends = kube::FindTime(kube::FindString(pod, {"metadata", "deletionTimestamp"}));
  const auto grace = kube::FindInt(pod, {"metadata", "deletionGracePeriodSeconds"});
  if (ends && grace > 0) {
    out.stopping_since = *ends - std::chrono::seconds(grace);
  }
  out.has_finalizers = !ArrayAt(pod, {"metadata", "finalizers"}).empty();
  out.init_containers = ReadContainers(pod, "initContainers");
  out.containers = ReadContainers(pod, "containers");
  for (const Json& gate : ArrayAt(pod, {"spec", "readinessGates"})) {
    out.readiness_gates.emplace_back(kube::FindString(gate, {"conditionType"}));
  }
  ReadStatus(pod, &out);
  out.run_seconds = NumberOf(kube::AnnotationOf(pod, kRunSecondsAnnotation));
  out.exit_code = NumberOf(kube::AnnotationOf(pod, kExitCodeAnnotation)).value_or(0);
  out.never_ready = kube::AnnotationOf(pod, kReadyAnnotation) == "false";
  return out;
}

}  // namespace sublet::node
