#include "node/pod/status.h"

#include <nlohmann/json.hpp>

#include "kube/timestamp.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindInt;
using kube::FindString;
using kube::Json;

Json TerminatedState(const Incarnation& run, const std::string& runtime) {
  Json state = {{"exitCode", run.exit_code}, {"reason", run.reason}};
  if (!run.message.empty()) {
    state["message"] = run.message;
  }
  if (run.exit_code > 128 && run.exit_code < 128 + 65 && run.reason == "Signaled") {
    state["signal"] = run.exit_code - 128;
  }
  state["startedAt"] =
      run.started_at == WallTime{} ? Json(nullptr) : Json(kube::FormatTime(run.started_at));
  state["finishedAt"] =
      run.finished_at == WallTime{} ? Json(nullptr) : Json(kube::FormatTime(run.finished_at));
  if (!run.id.empty()) {
    state["containerID"] = runtime + "://" + run.id;
  }
  return {{"terminated", std::move(state)}};
}

Json WaitingState(std::string_view reason, std::string_view message) {
  Json state = {{"reason", reason}};
  if (!message.empty()) {
    state["message"] = message;
  }
  return {{"waiting", std::move(state)}};
}

Json VolumeMounts(const Json& container) {
  Json mounts = Json::array();
  if (const Json* list = Find(container, {"volumeMounts"}); list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      Json mount = {{"name", FindString(item, {"name"})},
                    {"mountPath", FindString(item, {"mountPath"})}};
      if (kube::FindBool(item, {"readOnly"})) {
        mount["readOnly"] = true;
        mount["recursiveReadOnly"] = "Disabled";
      }
      mounts.push_back(std::move(mount));
    }
  }
  return mounts;
}

// Builds the whole status in one pass over the containers.
class Builder {
 public:
  Builder(const PodPlan& plan, const PodRecord& record, const Json& old_status,
          const StatusContext& context)
      : plan_(plan),
        record_(record),
        old_(old_status),
        context_(context),
        finished_(HasFinished(plan, record)),
        terminating_(IsTerminating(plan, record)),
        initialized_(IsInitialized(plan, record)) {}

  Json Run() {
    Json status = Json::object();
    Json init = List(plan_.init_containers, "initContainerStatuses");
    Json main = List(plan_.containers, "containerStatuses");
    Json ephemeral = List(plan_.ephemeral_containers, "ephemeralContainerStatuses");
    status["phase"] = Phase(init, main);
    // A pod that has ended stays ended, whatever the engine still remembers.
    if (const auto phase = FindString(old_, {"phase"}); phase == "Succeeded" || phase == "Failed") {
      status["phase"] = phase;
    }
    if (record_.verdict) {
      // What the verdict's containers did in their last seconds does not make it a success.
      if (IsQuiet(plan_, record_)) {
        status["phase"] = "Failed";
      }
      status["reason"] = record_.verdict->reason;
      status["message"] = record_.verdict->message;
    } else {
      Keep("reason", &status);
      Keep("message", &status);
    }
    PutAddresses(&status);
    if (record_.start_time) {
      status["startTime"] = kube::FormatTime(*record_.start_time);
    } else {
      Keep("startTime", &status);
    }
    status["qosClass"] = FindString(old_, {"qosClass"}).empty()
                             ? QosClassOf(*plan_.object)
                             : std::string(FindString(old_, {"qosClass"}));
    if (const auto generation = FindInt(*plan_.object, {"metadata", "generation"});
        generation > 0) {
      status["observedGeneration"] = generation;
    }
    status["conditions"] = Conditions(std::string(FindString(status, {"phase"})), init, main);
    if (record_.is_rejected) {
      return status;
    }
    status["containerStatuses"] = std::move(main);
    if (!init.empty()) {
      status["initContainerStatuses"] = std::move(init);
    }
    if (!ephemeral.empty()) {
      status["ephemeralContainerStatuses"] = std::move(ephemeral);
    }
    Keep("resourceClaimStatuses", &status);
    return status;
  }

 private:
  void Keep(const char* member, Json* status) const {
    if (const Json* value = Find(old_, {member}); value != nullptr && !value->is_null()) {
      (*status)[member] = *value;
    }
  }

  void PutAddresses(Json* status) const {
    Json host_ips = Json::array();
    for (const std::string& ip : context_.host_ips) {
      host_ips.push_back({{"ip", ip}});
    }
    if (!context_.host_ips.empty()) {
      (*status)["hostIP"] = context_.host_ips[0];
      (*status)["hostIPs"] = std::move(host_ips);
    }
    std::string ip;
    if (record_.sandbox) {
      ip = plan_.host_network && !context_.host_ips.empty() ? context_.host_ips[0]
                                                            : record_.sandbox->ip;
    }
    if (ip.empty()) {
      ip = FindString(old_, {"podIP"});
    }
    if (!ip.empty()) {
      (*status)["podIP"] = ip;
      (*status)["podIPs"] = Json::array({{{"ip", ip}}});
    }
  }

  const Json* OldStatus(std::string_view list_name, const std::string& container) const {
    const Json* list = Find(old_, {list_name});
    if (list != nullptr && list->is_array()) {
      for (const Json& item : *list) {
        if (FindString(item, {"name"}) == container) {
          return &item;
        }
      }
    }
    return nullptr;
  }

  Json List(const std::vector<ContainerPlan>& containers, std::string_view list_name) const {
    Json list = Json::array();
    for (const ContainerPlan& container : containers) {
      list.push_back(One(container, list_name));
    }
    return list;
  }

  Json One(const ContainerPlan& container, std::string_view list_name) const {
    const ContainerRecord* found = record_.Find(container.name);
    const ContainerRecord empty;
    const ContainerRecord& state = found != nullptr ? *found : empty;
    const Json* old = OldStatus(list_name, container.name);
    if (!state.current && old != nullptr && finished_) {
      return *old;
    }
    Json out = {{"name", container.name},
                {"image", container.image},
                {"imageID", ""},
                {"ready", false},
                {"started", false},
                {"restartCount", 0},
                {"lastState", Json::object()}};
    if (state.current) {
      out["image"] = state.current->image.empty() ? container.image : state.current->image;
      out["imageID"] = state.current->image_id;
      out["restartCount"] = state.current->attempt;
      out["containerID"] = context_.runtime_name + "://" + state.current->id;
    } else if (old != nullptr) {
      out["restartCount"] = FindInt(*old, {"restartCount"});
      out["imageID"] = FindString(*old, {"imageID"});
    }
    if (!state.current && old != nullptr && Find(*old, {"state", "running"}) != nullptr) {
      // The engine has forgotten it, in a reboot perhaps.
      out["lastState"] = {
          {"terminated",
           {{"exitCode", 137},
            {"reason", "ContainerStatusUnknown"},
            {"message",
             "The container could not be located when the pod was deleted.  The container used to "
             "be Running"}}}};
    } else if (state.previous) {
      out["lastState"] = TerminatedState(*state.previous, context_.runtime_name);
    } else if (old != nullptr && Find(*old, {"lastState"}) != nullptr &&
               (FindInt(*old, {"restartCount"}) == out["restartCount"].get<std::int64_t>() ||
                FindString(*old, {"containerID"}).empty())) {
      out["lastState"] = *Find(*old, {"lastState"});
    }
    PutState(container, state, old, &out);
    PutResources(container, &out);
    return out;
  }

  void PutResources(const ContainerPlan& container, Json* out) const {
    Json mounts = VolumeMounts(*container.spec);
    if (!mounts.empty()) {
      (*out)["volumeMounts"] = std::move(mounts);
    }
    const Json* resources = Find(*container.spec, {"resources"});
    if (resources == nullptr || resources->empty() || container.role == ContainerRole::kEphemeral) {
      return;
    }
    if (const Json* requests = Find(*resources, {"requests"})) {
      (*out)["allocatedResources"] = *requests;
    }
    if (!Find(*out, {"state", "waiting"})) {
      (*out)["resources"] = *resources;
    }
  }

  void PutState(const ContainerPlan& container, const ContainerRecord& state, const Json* old,
                Json* out) const {
    if (state.IsRunning()) {
      (*out)["state"] = {{"running", {{"startedAt", kube::FormatTime(state.current->started_at)}}}};
      (*out)["started"] = state.startup_passed;
      // Init containers are "ready" when they have succeeded; ephemeral ones never are.
      (*out)["ready"] = container.role != ContainerRole::kInit &&
                        container.role != ContainerRole::kEphemeral && state.startup_passed &&
                        state.ready;
      return;
    }
    if (state.HasEnded()) {
      const Incarnation& run = *state.current;
      (*out)["state"] = TerminatedState(run, context_.runtime_name);
      (*out)["ready"] = container.role == ContainerRole::kInit && run.exit_code == 0;
      if (terminating_ || finished_ || state.is_starting || !ShouldRestart(container, run)) {
        return;
      }
      // The wait before the next run, or why it does not come: the end moves to lastState.
      if (RestartAt(state) > context_.now) {
        (*out)["lastState"] = (*out)["state"];
        (*out)["state"] = WaitingState("CrashLoopBackOff",
                                       CrashLoopMessage(plan_, container, state.crash_backoff));
      } else if (state.waiting) {
        (*out)["lastState"] = (*out)["state"];
        (*out)["state"] = WaitingState(state.waiting->reason, state.waiting->message);
      }
      return;
    }
    if (state.waiting) {
      (*out)["state"] = WaitingState(state.waiting->reason, state.waiting->message);
    } else if (!state.current && old != nullptr && Find(*old, {"state", "terminated"})) {
      (*out)["state"] = *Find(*old, {"state"});
    } else {
      const bool blocked = !initialized_ && !plan_.init_containers.empty();
      (*out)["state"] = WaitingState(blocked ? "PodInitializing" : "ContainerCreating", "");
    }
  }

  std::string Phase(const Json& init, const Json& main) const;
  Json Conditions(const std::string& phase, const Json& init, const Json& main) const;
  Json Condition(std::string_view type, bool is_true, std::string_view reason,
                 std::string_view message) const;

  const PodPlan& plan_;
  const PodRecord& record_;
  const Json& old_;
  const StatusContext& context_;
  const bool finished_;
  const bool terminating_;
  const bool initialized_;
};

bool IsRunning(const Json& status) { return Find(status, {"state", "running"}) != nullptr; }
const Json* Ended(const Json& status) { return Find(status, {"state", "terminated"}); }
const Json* EndedBefore(const Json& status) { return Find(status, {"lastState", "terminated"}); }

std::string Builder::Phase(const Json& init, const Json& main) const {
  int init_pending = 0;
  int init_failed = 0;
  for (std::size_t i = 0; i < init.size(); ++i) {
    const Json& status = init[i];
    const bool sidecar = plan_.init_containers[i].role == ContainerRole::kSidecar;
    if (sidecar) {
      const bool started = IsRunning(status) && status["started"].get<bool>();
      init_pending += started || Ended(status) != nullptr || EndedBefore(status) != nullptr ? 0 : 1;
    } else if (const Json* end = Ended(status) != nullptr ? Ended(status) : EndedBefore(status)) {
      init_failed += FindInt(*end, {"exitCode"}) != 0 ? 1 : 0;
    } else {
      ++init_pending;
    }
  }
  int running = 0;
  int waiting = 0;
  int stopped = 0;
  int succeeded = 0;
  for (const Json& status : main) {
    if (IsRunning(status)) {
      ++running;
    } else if (const Json* end = Ended(status)) {
      ++stopped;
      succeeded += FindInt(*end, {"exitCode"}) == 0 ? 1 : 0;
    } else if (EndedBefore(status) != nullptr) {
      ++stopped;
    } else {
      ++waiting;
    }
  }
  const bool over = terminating_ && IsQuiet(plan_, record_);
  if (init_failed > 0 && (plan_.restart_policy == RestartPolicy::kNever || over)) {
    return "Failed";
  }
  if (init_pending + init_failed > 0 && running + stopped == 0) {
    return "Pending";
  }
  if (waiting > 0) {
    return "Pending";
  }
  if (running > 0) {
    return "Running";
  }
  if (stopped > 0) {
    if (over || finished_) {
      return stopped == succeeded ? "Succeeded" : "Failed";
    }
    return "Running";
  }
  return "Pending";
}

Json Builder::Condition(std::string_view type, bool is_true, std::string_view reason,
                        std::string_view message) const {
  Json condition = {
      {"type", type}, {"status", is_true ? "True" : "False"}, {"lastProbeTime", nullptr}};
  std::string since = kube::FormatTime(context_.now);
  if (const Json* list = Find(old_, {"conditions"}); list != nullptr && list->is_array()) {
    for (const Json& old : *list) {
      if (FindString(old, {"type"}) == type &&
          FindString(old, {"status"}) == FindString(condition, {"status"})) {
        since = FindString(old, {"lastTransitionTime"}, since);
      }
    }
  }
  condition["lastTransitionTime"] = since;
  if (!reason.empty()) {
    condition["reason"] = reason;
  }
  if (!message.empty()) {
    condition["message"] = message;
  }
  if (const auto generation = FindInt(*plan_.object, {"metadata", "generation"}); generation > 0) {
    condition["observedGeneration"] = generation;
  }
  return condition;
}

std::string Names(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) {
    text += (text.size() > 1 ? " " : "") + name;
  }
  return text + "]";
}

Json Builder::Conditions(const std::string& phase, const Json& init, const Json& main) const {
  const bool ended = phase == "Succeeded" || phase == "Failed";
  const std::string end_reason = phase == "Succeeded" ? "PodCompleted"
                                 : phase == "Failed"  ? "PodFailed"
                                                      : "";
  std::vector<std::string> not_initialized;
  std::vector<std::string> not_ready;
  for (std::size_t i = 0; i < init.size(); ++i) {
    const std::string& name = plan_.init_containers[i].name;
    if (plan_.init_containers[i].role == ContainerRole::kSidecar) {
      if (!init[i]["started"].get<bool>()) {
        not_initialized.push_back(name);
      }
      if (!init[i]["ready"].get<bool>()) {
        not_ready.push_back(name);
      }
    } else if (!init[i]["ready"].get<bool>()) {
      not_initialized.push_back(name);
    }
  }
  bool any_main_ran = false;
  for (std::size_t i = 0; i < main.size(); ++i) {
    any_main_ran = any_main_ran || IsRunning(main[i]) || Ended(main[i]) || EndedBefore(main[i]);
    if (!main[i]["ready"].get<bool>()) {
      not_ready.push_back(plan_.containers[i].name);
    }
  }

  Json out = Json::array();
  const bool sandbox_up = record_.sandbox && record_.sandbox->phase == ContainerPhase::kRunning &&
                          (plan_.host_network || !record_.sandbox->ip.empty());
  out.push_back(Condition("PodReadyToStartContainers", sandbox_up, "", ""));
  if (phase == "Succeeded") {
    out.push_back(Condition("Initialized", true, "PodCompleted", ""));
  } else if (not_initialized.empty() || any_main_ran) {
    out.push_back(Condition("Initialized", true, "", ""));
  } else {
    out.push_back(Condition("Initialized", false, "ContainersNotInitialized",
                            "containers with incomplete status: " + Names(not_initialized)));
  }
  const std::string unready = "containers with unready status: " + Names(not_ready);
  const bool containers_ready = !ended && not_ready.empty();
  const std::string why = ended ? end_reason : "ContainersNotReady";
  const std::string text = ended ? "" : unready;
  bool ready = containers_ready;
  std::string ready_why = why;
  std::string ready_text = text;
  for (const std::string& gate : plan_.readiness_gates) {
    const Json* found = nullptr;
    if (const Json* list = Find(*plan_.object, {"status", "conditions"});
        list && list->is_array()) {
      for (const Json& condition : *list) {
        found = FindString(condition, {"type"}) == gate ? &condition : found;
      }
    }
    if (containers_ready && (found == nullptr || FindString(*found, {"status"}) != "True")) {
      ready_text = ready ? "" : ready_text + ", ";
      ready_text +=
          found == nullptr
              ? "corresponding condition of pod readiness gate \"" + gate + "\" does not exist."
              : "the status of pod readiness gate \"" + gate + "\" is not \"True\", but " +
                    std::string(FindString(*found, {"status"}));
      ready = false;
      ready_why = "ReadinessGatesNotReady";
    }
  }
  out.push_back(ready ? Condition("Ready", true, "", "")
                      : Condition("Ready", false, ready_why, ready_text));
  out.push_back(containers_ready ? Condition("ContainersReady", true, "", "")
                                 : Condition("ContainersReady", false, why, text));
  out.push_back(Condition("PodScheduled", true, "", ""));
  return out;
}

}  // namespace

Json MakePodStatus(const PodPlan& plan, const PodRecord& record, const Json& old_status,
                   const StatusContext& context) {
  return Builder(plan, record, old_status, context).Run();
}

std::string CrashLoopMessage(const PodPlan& plan, const ContainerPlan& container, seconds backoff) {
  const auto total = backoff.count();
  std::string text;  // Go's Duration: 10s, 1m20s, 5m0s
  if (total >= 60) {
    text = std::to_string(total / 60) + "m";
  }
  text += std::to_string(total % 60) + "s";
  return "back-off " + text + " restarting failed container=" + container.name +
         " pod=" + plan.Full();
}

}  // namespace sublet::node
