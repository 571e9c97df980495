#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "kube/int_or_string.h"
#include "kube/kinds/column_cells.h"
#include "kube/label_selector.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::kube::cells {
namespace {

std::int64_t Int(const Json& object, std::initializer_list<std::string_view> path) {
  return FindInt(object, path);
}

Json Numbers(const Json& object, WallTime now,
             std::initializer_list<std::initializer_list<std::string_view>> paths) {
  Json row = Json::array({NameText(object)});
  for (const auto& path : paths) {
    row.push_back(FindInt(object, path));
  }
  row.push_back(Age(object, now));
  return row;
}

void AddPodCells(const Json& object, std::initializer_list<std::string_view> spec, Json* row) {
  const Json* pod_spec = Find(object, spec);
  const Json none = Json::object();
  row->push_back(ContainerNames(pod_spec != nullptr ? *pod_spec : none));
  row->push_back(ContainerImages(pod_spec != nullptr ? *pod_spec : none));
}

// What the status column of a pod says, worked out container by container.
struct PodState {
  std::string reason;
  std::int64_t restarts = 0;
  std::string last_restart;  // RFC 3339; such texts compare as times do
  std::int64_t ready = 0;
  std::int64_t total = 0;
};

const Json* Terminated(const Json& status) { return Find(status, {"state", "terminated"}); }

void NoteRestart(const Json& status, std::string* last) {
  *last = std::max(*last, Text(status, {"lastState", "terminated", "finishedAt"}));
}

std::string TerminatedReason(const Json& terminated) {
  const std::string reason = Text(terminated, {"reason"});
  if (!reason.empty()) {
    return reason;
  }
  const std::int64_t signal = Int(terminated, {"signal"});
  return signal != 0 ? "Signal:" + std::to_string(signal)
                     : "ExitCode:" + std::to_string(Int(terminated, {"exitCode"}));
}

// Returns true while an init container is still to finish; sidecars are counted on the way.
bool InitContainers(const Json& pod, PodState* state, PodState* sidecars) {
  std::map<std::string, bool> is_sidecar;
  const Json& specs = List(pod, {"spec", "initContainers"});
  for (const Json& spec : specs) {
    const bool sidecar = Text(spec, {"restartPolicy"}) == "Always";
    is_sidecar[Text(spec, {"name"})] = sidecar;
    state->total += sidecar ? 1 : 0;
  }
  std::size_t index = 0;
  for (const Json& status : List(pod, {"status", "initContainerStatuses"})) {
    const std::size_t at = index++;
    const bool sidecar = is_sidecar[Text(status, {"name"})];
    state->restarts += Int(status, {"restartCount"});
    NoteRestart(status, &state->last_restart);
    if (sidecar) {
      sidecars->restarts += Int(status, {"restartCount"});
      NoteRestart(status, &sidecars->last_restart);
    }
    const Json* terminated = Terminated(status);
    if (terminated != nullptr && Int(*terminated, {"exitCode"}) == 0) {
      continue;
    }
    if (sidecar && FindBool(status, {"started"})) {
      state->ready += FindBool(status, {"ready"}) ? 1 : 0;
      continue;
    }
    const std::string waiting = Text(status, {"state", "waiting", "reason"});
    if (terminated != nullptr) {
      state->reason = "Init:" + TerminatedReason(*terminated);
    } else if (!waiting.empty() && waiting != "PodInitializing") {
      state->reason = "Init:" + waiting;
    } else {
      state->reason = "Init:" + std::to_string(at) + "/" + std::to_string(specs.size());
    }
    return true;
  }
  return false;
}

void MainContainers(const Json& pod, PodState* state) {
  bool running = false;
  std::string error;
  const Json& statuses = List(pod, {"status", "containerStatuses"});
  for (auto it = statuses.rbegin(); it != statuses.rend(); ++it) {
    const Json& status = *it;
    state->restarts += Int(status, {"restartCount"});
    NoteRestart(status, &state->last_restart);
    const std::string waiting = Text(status, {"state", "waiting", "reason"});
    const Json* terminated = Terminated(status);
    if (!waiting.empty()) {
      state->reason = waiting;
    } else if (terminated != nullptr) {
      state->reason = TerminatedReason(*terminated);
      if (Int(*terminated, {"exitCode"}) != 0) {
        error = state->reason;
      }
    } else if (FindBool(status, {"ready"}) && Find(status, {"state", "running"}) != nullptr) {
      running = true;
      ++state->ready;
    }
  }
  if (state->reason == "Completed") {
    if (running && IsConditionTrue(pod, "Ready")) {
      state->reason = "Running";
    } else if (!error.empty()) {
      state->reason = error;
    } else if (running) {
      state->reason = "NotReady";
    }
  }
}

PodState StateOf(const Json& pod) {
  PodState state;
  const std::string phase = Text(pod, {"status", "phase"});
  state.reason = Text(pod, {"status", "reason"}, phase);
  if (state.reason.empty()) {
    state.reason = phase;
  }
  state.total = static_cast<std::int64_t>(List(pod, {"spec", "containers"}).size());
  if (const Json* scheduled = FindCondition(pod, "PodScheduled");
      scheduled != nullptr && Text(*scheduled, {"reason"}) == "SchedulingGated") {
    state.reason = "SchedulingGated";
  }
  PodState sidecars;
  const bool initializing = InitContainers(pod, &state, &sidecars);
  if (!initializing || IsConditionTrue(pod, "Initialized")) {
    state.restarts = sidecars.restarts;
    state.last_restart = sidecars.last_restart;
    MainContainers(pod, &state);
  }
  if (IsDeleting(pod)) {
    if (Text(pod, {"status", "reason"}) == "NodeLost") {
      state.reason = "Unknown";
    } else if (phase != "Succeeded" && phase != "Failed") {
      state.reason = "Terminating";
    }
  }
  return state;
}

std::string ReadinessGates(const Json& pod) {
  const Json& gates = List(pod, {"spec", "readinessGates"});
  if (gates.empty()) {
    return "<none>";
  }
  std::size_t met = 0;
  for (const Json& gate : gates) {
    met += IsConditionTrue(pod, Text(gate, {"conditionType"})) ? 1 : 0;
  }
  return std::to_string(met) + "/" + std::to_string(gates.size());
}

std::string JobStatus(const Json& job) {
  if (IsConditionTrue(job, "Complete")) {
    return "Complete";
  }
  if (IsConditionTrue(job, "Failed")) {
    return "Failed";
  }
  if (IsDeleting(job)) {
    return "Terminating";
  }
  for (const char* type : {"Suspended", "FailureTarget", "SuccessCriteriaMet"}) {
    if (IsConditionTrue(job, type)) {
      return type;
    }
  }
  return "Running";
}

std::string JobDuration(const Json& job, WallTime now) {
  const auto start = FindTime(Text(job, {"status", "startTime"}));
  if (!start) {
    return "";
  }
  const auto end = FindTime(Text(job, {"status", "completionTime"}));
  return HumanDuration((end ? *end : now) - *start);
}

// One metric as "name: current/target".
std::string Metric(const Json& spec, const Json* status) {
  static constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"External", "external"},
      {"Pods", "pods"},
      {"Object", "object"},
      {"Resource", "resource"},
      {"ContainerResource", "containerResource"}};
  const std::string type = Text(spec, {"type"});
  std::string_view key;
  for (const auto& [name, member] : kKinds) {
    key = name == type ? member : key;
  }
  if (key.empty()) {
    return "<unknown type>";
  }
  const bool resource = key == "resource" || key == "containerResource";
  const Json empty = Json::object();
  const Json* current = status == nullptr ? nullptr : Find(*status, {key, "current"});
  const auto of = [](const Json* object, const char* field, const std::string& fallback) {
    return object == nullptr ? fallback : Text(*object, {field}, fallback);
  };
  const Json* target = Find(spec, {key, "target"});
  const std::string average = of(target, "averageValue", "");
  const std::string prefix = resource ? Text(spec, {key, "name"}) + ": " : "";
  if (!average.empty() || key == "pods") {
    const bool avg = key == "external" || key == "object";
    return prefix + of(current, "averageValue", "<unknown>") + "/" + average +
           (avg ? " (avg)" : "");
  }
  if (!resource) {
    return of(current, "value", "<unknown>") + "/" + of(target, "value", "");
  }
  const auto percent = [&](const Json* object, const char* fallback) {
    const Json* value = object == nullptr ? nullptr : Find(*object, {"averageUtilization"});
    return value == nullptr ? std::string(fallback)
                            : std::to_string(value->get<std::int64_t>()) + "%";
  };
  return prefix + percent(current, "<unknown>") + "/" + percent(target, "<auto>");
}

std::string Metrics(const Json& object) {
  const Json& specs = List(object, {"spec", "metrics"});
  if (specs.empty()) {
    return "<none>";
  }
  const Json& statuses = List(object, {"status", "currentMetrics"});
  std::string list;
  for (std::size_t i = 0; i < specs.size() && i < 2; ++i) {
    list += (i == 0 ? "" : ", ") + Metric(specs[i], i < statuses.size() ? &statuses[i] : nullptr);
  }
  return Shortened(std::move(list), specs.size() > 2, specs.size(), 2);
}

}  // namespace

Json Pod(const Json& pod, WallTime now) {
  const PodState state = StateOf(pod);
  std::string restarts = std::to_string(state.restarts);
  if (state.restarts != 0 && !state.last_restart.empty()) {
    restarts += " (" + HumanAge(state.last_restart, now) + " ago)";
  }
  const Json& ips = List(pod, {"status", "podIPs"});
  const auto or_none = [](std::string text) { return text.empty() ? "<none>" : text; };
  return Json::array(
      {NameText(pod), std::to_string(state.ready) + "/" + std::to_string(state.total), state.reason,
       restarts, Age(pod, now), or_none(ips.empty() ? "" : Text(ips.front(), {"ip"})),
       or_none(Text(pod, {"spec", "nodeName"})),
       or_none(Text(pod, {"status", "nominatedNodeName"})), ReadinessGates(pod)});
}

Json PodTemplate(const Json& object, WallTime) {
  Json row = Json::array({NameText(object)});
  AddPodCells(object, {"template", "spec"}, &row);
  row.push_back(Labels(Find(object, {"template", "metadata", "labels"})));
  return row;
}

Json ReplicationController(const Json& object, WallTime now) {
  Json row = Numbers(object, now,
                     {{"spec", "replicas"}, {"status", "replicas"}, {"status", "readyReplicas"}});
  AddPodCells(object, {"spec", "template", "spec"}, &row);
  row.push_back(Labels(Find(object, {"spec", "selector"})));
  return row;
}

Json ReplicaSet(const Json& object, WallTime now) {
  Json row = Numbers(object, now,
                     {{"spec", "replicas"}, {"status", "replicas"}, {"status", "readyReplicas"}});
  AddPodCells(object, {"spec", "template", "spec"}, &row);
  row.push_back(FormatLabelSelector(Find(object, {"spec", "selector"})));
  return row;
}

Json Deployment(const Json& object, WallTime now) {
  const auto selector = LabelSelector::FromJson(Find(object, {"spec", "selector"}));
  Json row = Json::array({NameText(object),
                          std::to_string(Int(object, {"status", "readyReplicas"})) + "/" +
                              std::to_string(Int(object, {"spec", "replicas"})),
                          Int(object, {"status", "updatedReplicas"}),
                          Int(object, {"status", "availableReplicas"}), Age(object, now)});
  AddPodCells(object, {"spec", "template", "spec"}, &row);
  row.push_back(selector.ok() ? selector->Text() : "<invalid>");
  return row;
}

Json StatefulSet(const Json& object, WallTime now) {
  Json row = Json::array({NameText(object),
                          std::to_string(Int(object, {"status", "readyReplicas"})) + "/" +
                              std::to_string(Int(object, {"spec", "replicas"})),
                          Age(object, now)});
  AddPodCells(object, {"spec", "template", "spec"}, &row);
  return row;
}

Json DaemonSet(const Json& object, WallTime now) {
  Json row = Json::array({NameText(object)});
  for (const char* field : {"desiredNumberScheduled", "currentNumberScheduled", "numberReady",
                            "updatedNumberScheduled", "numberAvailable"}) {
    row.push_back(Int(object, {"status", field}));
  }
  row.push_back(Labels(Find(object, {"spec", "template", "spec", "nodeSelector"})));
  row.push_back(Age(object, now));
  AddPodCells(object, {"spec", "template", "spec"}, &row);
  row.push_back(FormatLabelSelector(Find(object, {"spec", "selector"})));
  return row;
}

Json ControllerRevision(const Json& object, WallTime now) {
  std::string controller = "<none>";
  if (const auto owner = ControllerOf(object)) {
    const std::string group = GroupVersion::Parse(owner->api_version).group;
    controller = owner->kind + (group.empty() ? "" : "." + group) + "/" + owner->name;
    std::transform(controller.begin(), controller.end() - static_cast<long>(owner->name.size()),
                   controller.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  }
  return Json::array({NameText(object), controller, Int(object, {"revision"}), Age(object, now)});
}

Json Job(const Json& object, WallTime now) {
  std::string completions = std::to_string(Int(object, {"status", "succeeded"})) + "/";
  if (const Json* wanted = Find(object, {"spec", "completions"})) {
    completions += std::to_string(wanted->get<std::int64_t>());
  } else {
    const std::int64_t parallelism = Int(object, {"spec", "parallelism"});
    completions += parallelism > 1 ? "1 of " + std::to_string(parallelism) : "1";
  }
  Json row = Json::array({NameText(object), JobStatus(object), completions,
                          JobDuration(object, now), Age(object, now)});
  AddPodCells(object, {"spec", "template", "spec"}, &row);
  row.push_back(FormatLabelSelector(Find(object, {"spec", "selector"})));
  return row;
}

Json CronJob(const Json& object, WallTime now) {
  const std::string last = Text(object, {"status", "lastScheduleTime"});
  const Json* suspend = Find(object, {"spec", "suspend"});
  Json row = Json::array({NameText(object), Text(object, {"spec", "schedule"}),
                          Text(object, {"spec", "timeZone"}, "<none>"),
                          suspend == nullptr     ? "<unset>"
                          : suspend->get<bool>() ? "True"
                                                 : "False",
                          List(object, {"status", "active"}).size(),
                          last.empty() ? "<none>" : HumanAge(last, now), Age(object, now)});
  AddPodCells(object, {"spec", "jobTemplate", "spec", "template", "spec"}, &row);
  row.push_back(FormatLabelSelector(Find(object, {"spec", "jobTemplate", "spec", "selector"})));
  return row;
}

Json HorizontalPodAutoscaler(const Json& object, WallTime now) {
  const Json* min = Find(object, {"spec", "minReplicas"});
  return Json::array({NameText(object),
                      Text(object, {"spec", "scaleTargetRef", "kind"}) + "/" +
                          Text(object, {"spec", "scaleTargetRef", "name"}),
                      Metrics(object),
                      min == nullptr ? "<unset>" : std::to_string(min->get<std::int64_t>()),
                      Int(object, {"spec", "maxReplicas"}),
                      Int(object, {"status", "currentReplicas"}), Age(object, now)});
}

Json PodDisruptionBudget(const Json& object, WallTime now) {
  const auto shown = [&](const char* field) {
    const auto value = IntOrString::FromJson(Find(object, {"spec", field}));
    return value ? value->Text() : std::string("N/A");
  };
  return Json::array({NameText(object), shown("minAvailable"), shown("maxUnavailable"),
                      Int(object, {"status", "disruptionsAllowed"}), Age(object, now)});
}

}  // namespace sublet::kube::cells
