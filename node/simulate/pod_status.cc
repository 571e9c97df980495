#include "node/simulate/pod_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/timestamp.h"

namespace sublet::node {
namespace {

using kube::Json;

Json ConditionOf(const SimulatedPod& pod, std::string_view type, bool value,
                 std::string_view reason, std::string_view message, const std::string& now) {
  Json out = {{"type", type},
              {"status", value ? "True" : "False"},
              {"lastProbeTime", nullptr},
              {"lastTransitionTime", now}};
  if (pod.generation > 0) {
    out["observedGeneration"] = pod.generation;
  }
  if (!reason.empty()) {
    out["reason"] = reason;
  }
  if (!message.empty()) {
    out["message"] = message;
  }
  return out;
}

// "containers with unready status: [a b]", as the kubelet says it.
std::string UnreadyText(const SimulatedPod& pod) {
  std::string text = "containers with unready status: [";
  for (std::size_t i = 0; i < pod.containers.size(); ++i) {
    text += (i > 0 ? " " : "") + pod.containers[i].name;
  }
  return text + "]";
}

bool GatesOpen(const SimulatedPod& pod) {
  return std::all_of(
      pod.readiness_gates.begin(), pod.readiness_gates.end(), [&](const std::string& gate) {
        return std::find(pod.true_conditions.begin(), pod.true_conditions.end(), gate) !=
               pod.true_conditions.end();
      });
}

struct ReadyState {
  bool initialized = true;
  bool containers_ready = false;
  bool ready = false;
  std::string reason;
};

// A condition keeps its transition time where its status does not change; the patch merges by type,
// so only changed ones are sent.
Json Conditions(const SimulatedPod& pod, const ReadyState& state, const std::string& now) {
  const auto is_true = [&](std::string_view type) {
    return std::find(pod.true_conditions.begin(), pod.true_conditions.end(), type) !=
           pod.true_conditions.end();
  };
  Json out = Json::array();
  const auto add = [&](std::string_view type, bool value, std::string_view reason,
                       std::string_view message) {
    if (!pod.reported || is_true(type) != value || pod.observed_generation != pod.generation) {
      Json condition = ConditionOf(pod, type, value, reason, message, now);
      if (pod.reported && is_true(type) == value) {
        condition.erase("lastTransitionTime");
      }
      out.push_back(std::move(condition));
    }
  };
  const std::string unready = state.containers_ready ? "" : UnreadyText(pod);
  const std::string reason = state.containers_ready ? "" : state.reason;
  add("PodReadyToStartContainers", state.initialized, "", "");
  add("Initialized", state.initialized, "", "");
  add("ContainersReady", state.containers_ready, reason, unready);
  const bool gates_closed = state.containers_ready && !state.ready;
  add("Ready", state.ready, gates_closed ? "ReadinessGatesNotReady" : reason,
      gates_closed ? "corresponding condition of pod readiness gate does not exist." : unready);
  return out;
}

Json ContainerStatus(const SimulatedContainer& container, Json state, bool ready, bool started,
                     std::int64_t restarts) {
  Json out = {{"name", container.name},
              {"image", container.image},
              {"imageID", started ? "simulated://" + container.image : ""},
              {"state", std::move(state)},
              {"lastState", Json::object()},
              {"ready", ready},
              {"started", started && ready},
              {"restartCount", restarts}};
  if (started) {
    out["containerID"] = "simulated://" + container.name;
  }
  if (!container.resources.empty()) {
    if (auto resources = kube::ParseJson(container.resources); resources.ok()) {
      if (const Json* requests = kube::Find(*resources, {"requests"})) {
        out["allocatedResources"] = *requests;
      }
      out["resources"] = std::move(*resources);
    }
  }
  return out;
}

Json TerminatedState(std::int64_t exit_code, const std::string& started, const std::string& now) {
  return {{"terminated",
           {{"exitCode", exit_code},
            {"reason", exit_code == 0 ? "Completed" : "Error"},
            {"startedAt", started},
            {"finishedAt", now},
            {"containerID", "simulated://ended"}}}};
}

// Base of every patch: the marks, the generation, what stays true for the pod's whole life.
Json StatusPatch(const SimulatedPod& pod, Json status) {
  if (pod.generation > 0) {
    status["observedGeneration"] = pod.generation;
  }
  Json out = {{"status", std::move(status)}};
  if (!pod.reported) {
    out["metadata"]["annotations"][std::string(kSimulatedAnnotation)] = "true";
  }
  return out;
}

void PutAddresses(Json* status, const SimulatedPod& pod, const PodPlace& place) {
  (*status)["hostIP"] = place.host_ip;
  (*status)["hostIPs"] = Json::array({{{"ip", place.host_ip}}});
  const std::string& ip = pod.host_network ? place.host_ip : place.pod_ip;
  (*status)["podIP"] = ip;
  (*status)["podIPs"] = Json::array({{{"ip", ip}}});
}

Json InitStatuses(const SimulatedPod& pod, const std::string& now) {
  Json out = Json::array();
  for (const SimulatedContainer& container : pod.init_containers) {
    out.push_back(
        container.restarts_always
            ? ContainerStatus(container, {{"running", {{"startedAt", now}}}}, true, true, 0)
            : ContainerStatus(container, TerminatedState(0, now, now), true, true, 0));
  }
  return out;
}

Json RejectedPatch(const SimulatedPod& pod, const Rejection& rejection, const std::string& now) {
  return StatusPatch(pod, {{"phase", "Failed"},
                           {"reason", rejection.reason},
                           {"message", "Pod was rejected: " + rejection.message},
                           {"startTime", now}});
}

Json DeadlinePatch(const SimulatedPod& pod, const std::string& now) {
  Json status = {{"phase", "Failed"},
                 {"reason", "DeadlineExceeded"},
                 {"message", "Pod was active on the node longer than the specified deadline"},
                 {"conditions", Conditions(pod, {.reason = "PodFailed"}, now)}};
  return StatusPatch(pod, std::move(status));
}

Json PullFailedPatch(const SimulatedPod& pod, const PodPlace& place, const std::string& now) {
  Json statuses = Json::array();
  for (const SimulatedContainer& container : pod.containers) {
    statuses.push_back(
        ContainerStatus(container,
                        {{"waiting",
                          {{"reason", "ImagePullBackOff"},
                           {"message", "Back-off pulling image \"" + container.image + "\""}}}},
                        false, false, 0));
  }
  Json status = {{"phase", "Pending"},
                 {"conditions", Conditions(pod, {.reason = "ContainersNotReady"}, now)},
                 {"containerStatuses", std::move(statuses)}};
  if (!pod.start_time) {
    status["startTime"] = now;
  }
  PutAddresses(&status, pod, place);
  return StatusPatch(pod, std::move(status));
}

Json RunningPatch(const SimulatedPod& pod, const PodPlace& place, std::int64_t restarts,
                  const std::string& started, const std::string& now) {
  ReadyState state;
  state.containers_ready = !pod.never_ready;
  state.ready = state.containers_ready && GatesOpen(pod);
  state.reason = "ContainersNotReady";
  Json statuses = Json::array();
  for (const SimulatedContainer& container : pod.containers) {
    Json entry = ContainerStatus(container, {{"running", {{"startedAt", started}}}},
                                 state.containers_ready, true, restarts);
    if (restarts > pod.restarts) {
      entry["lastState"] = TerminatedState(
          pod.exit_code, pod.started_at ? kube::FormatTime(*pod.started_at) : started, now);
    }
    statuses.push_back(std::move(entry));
  }
  Json status = {{"phase", "Running"},
                 {"conditions", Conditions(pod, state, now)},
                 {"containerStatuses", std::move(statuses)}};
  if (!pod.init_containers.empty() && !pod.reported) {
    status["initContainerStatuses"] = InitStatuses(pod, now);
  }
  if (!pod.start_time) {
    status["startTime"] = now;
  }
  PutAddresses(&status, pod, place);
  return StatusPatch(pod, std::move(status));
}

Json FinishedPatch(const SimulatedPod& pod, const std::string& now) {
  const std::string started = pod.started_at ? kube::FormatTime(*pod.started_at) : now;
  Json statuses = Json::array();
  for (const SimulatedContainer& container : pod.containers) {
    Json entry = ContainerStatus(container, TerminatedState(pod.exit_code, started, now), false,
                                 true, pod.restarts);
    statuses.push_back(std::move(entry));
  }
  const bool succeeded = pod.exit_code == 0;
  return StatusPatch(
      pod,
      {{"phase", succeeded ? "Succeeded" : "Failed"},
       {"conditions", Conditions(pod, {.reason = succeeded ? "PodCompleted" : "PodFailed"}, now)},
       {"containerStatuses", std::move(statuses)}});
}

bool RestartsAfter(const SimulatedPod& pod) {
  return pod.restart_policy == "Always" ||
         (pod.restart_policy == "OnFailure" && pod.exit_code != 0);
}

// A restarting container waits as the kubelet makes it wait: 10 s doubling to 5 min.
std::chrono::seconds RestartWait(std::int64_t restarts) {
  return std::min<std::chrono::seconds>(
      std::chrono::seconds(10) * (1LL << std::min<std::int64_t>(restarts, 5)),
      std::chrono::minutes(5));
}

void Sooner(std::optional<WallTime>* next, WallTime when) {
  if (!*next || when < **next) {
    *next = when;
  }
}

// A pod whose containers run: does it end, restart, or stay?
PodStep RunningStep(const SimulatedPod& pod, const PodPlace& place, WallTime now) {
  const std::string now_text = kube::FormatTime(now);
  PodStep step;
  const bool should_be_ready = !pod.never_ready && GatesOpen(pod);
  if (pod.run_seconds && pod.started_at) {
    WallTime end = *pod.started_at + std::chrono::seconds(*pod.run_seconds);
    if (RestartsAfter(pod)) {
      end += RestartWait(pod.restarts);
      if (now >= end) {
        step.patch = RunningPatch(pod, place, pod.restarts + 1, now_text, now_text);
        return step;
      }
    } else if (now >= end) {
      step.patch = FinishedPatch(pod, now_text);
      return step;
    }
    step.next = end;
  }
  if (pod.ready != should_be_ready || pod.observed_generation != pod.generation) {
    step.patch =
        RunningPatch(pod, place, pod.restarts,
                     pod.started_at ? kube::FormatTime(*pod.started_at) : now_text, now_text);
  }
  return step;
}

}  // namespace

PodStep NextStep(const SimulatedPod& pod, const PodPlace& place, WallTime now) {
  const std::string now_text = kube::FormatTime(now);
  PodStep step;
  if (place.rejection) {
    step.patch = RejectedPatch(pod, *place.rejection, now_text);
    return step;
  }
  if (pod.active_deadline_seconds && pod.start_time) {
    const WallTime deadline = *pod.start_time + std::chrono::seconds(*pod.active_deadline_seconds);
    if (now >= deadline) {
      step.patch = DeadlinePatch(pod, now_text);
      return step;
    }
    step.next = deadline;
  }
  if (place.image_missing) {
    if (!pod.pull_failed || pod.observed_generation != pod.generation) {
      step.patch = PullFailedPatch(pod, place, now_text);
    }
    return step;
  }
  if (pod.phase != "Running" || !pod.reported) {
    step.patch = RunningPatch(pod, place, 0, now_text, now_text);
    return step;
  }
  PodStep running = RunningStep(pod, place, now);
  if (step.next) {
    Sooner(&running.next, *step.next);
  }
  return running;
}

Json StoppedStatus(const SimulatedPod& pod, WallTime now) {
  SimulatedPod stopped = pod;
  // Containers that are told to stop end with 137 unless they finish by themselves first; a pod
  // that was never started has nothing to report but its phase.
  stopped.exit_code = pod.exit_code != 0 ? pod.exit_code : 137;
  return FinishedPatch(stopped, kube::FormatTime(now));
}

}  // namespace sublet::node
