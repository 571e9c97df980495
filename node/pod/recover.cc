#include "node/pod/recover.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "node/pod/actions.h"

namespace sublet::node {
namespace {

void AddSandbox(const ContainerState& state, PodRecord* record) {
  SandboxRecord sandbox;
  sandbox.id = state.id;
  sandbox.phase = state.phase;
  sandbox.pid = state.pid;
  sandbox.ip = state.Label(kLabelPodIp);
  sandbox.attempt = std::atoi(state.Label(kLabelAttempt).c_str());
  if (!record->sandbox || record->sandbox->attempt < sandbox.attempt) {
    record->sandbox = std::move(sandbox);
  }
}

void AddContainer(const ContainerState& state, PodRecord* record) {
  Incarnation run = RecoverIncarnation(state);
  ContainerRecord& container = record->containers[state.Label(kLabelContainer)];
  // The two newest runs, newest first.
  if (!container.current || container.current->attempt < run.attempt) {
    container.previous = std::move(container.current);
    container.current = std::move(run);
  } else if (!container.previous || container.previous->attempt < run.attempt) {
    container.previous = std::move(run);
  }
}

}  // namespace

Result<std::map<std::string, RecoveredPod>> RecoverPods(ContainerEngine& engine,
                                                        const std::string& instance) {
  SUBLET_TRY(const auto list, engine.List(kLabelNode, instance));
  std::map<std::string, RecoveredPod> pods;
  for (const ContainerSummary& summary : list) {
    auto state = engine.Inspect(summary.id);
    if (!state.ok()) {
      if (state.error().Is(Reason::kNotFound)) {
        continue;
      }
      return std::move(state).error();
    }
    if (state->phase == ContainerPhase::kCreated) {
      if (auto removed = engine.Remove(state->id); !removed.ok()) {
        log::Warn("cannot remove a container that never ran", {{"error", removed.error()}});
      }
      continue;
    }
    RecoveredPod& pod = pods[state->Label(kLabelPodUid)];
    pod.namespace_name = state->Label(kLabelPodNamespace);
    pod.name = state->Label(kLabelPodName);
    if (state->Label(kLabelKind) == "sandbox") {
      pod.grace = seconds(std::atoi(state->Label(kLabelGrace).c_str()));
      AddSandbox(*state, &pod.record);
    } else {
      AddContainer(*state, &pod.record);
    }
  }
  for (auto& [uid, pod] : pods) {
    // The end of the run before last needs no more than its code; its message is not looked up.
    for (auto& [name, container] : pod.record.containers) {
      if (container.previous && container.previous->reason.empty()) {
        container.previous->reason = container.previous->exit_code == 0 ? "Completed" : "Error";
      }
    }
  }
  return pods;
}

std::shared_ptr<const PodPlan> PlanForOrphan(const std::string& uid, const RecoveredPod& pod) {
  kube::Json containers = kube::Json::array();
  for (const auto& [name, record] : pod.record.containers) {
    containers.push_back({{"name", name}, {"image", record.current ? record.current->image : ""}});
  }
  kube::Json object = {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata", {{"name", pod.name}, {"namespace", pod.namespace_name}, {"uid", uid}}},
      {"spec",
       {{"containers", std::move(containers)},
        {"terminationGracePeriodSeconds", pod.grace.count()}}}};
  return ParsePod(std::make_shared<const kube::Json>(std::move(object)));
}

}  // namespace sublet::node
