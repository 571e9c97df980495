#include "scheduler/simulation.h"

#include <algorithm>

namespace sublet::scheduler {

Simulation::Simulation(const std::vector<Profile>& profiles, const Snapshot& snapshot)
    : engine_(std::make_unique<Engine>(profiles)) {
  engine_->Apply(snapshot);
}

bool Simulation::PlayOut(const CycleResult& result) {
  bool acted = false;
  for (const Decision& decision : result.decisions) {
    if (decision.kind == Decision::Kind::kPipeline) {
      continue;
    }
    std::optional<PodSpec> pod = engine_->ExportPod(decision.pod_uid);
    if (!pod) {
      continue;
    }
    acted = true;
    if (decision.kind == Decision::Kind::kBind) {
      pod->phase = Phase::kRunning;
      pod->node = decision.node;
      pod->gpu_groups = decision.gpu_groups;
      pod->gpu_devices = decision.gpu_devices;
    } else {
      engine_->DeletePod(pod->uid);
      pod->phase = Phase::kPending;
      pod->node.clear();
      pod->gpu_groups.clear();
      pod->gpu_devices.clear();
    }
    engine_->Apply(*pod);
  }
  return acted;
}

SimulationResult Simulation::Settle(Millis now, int cycles_max) {
  SimulationResult out;
  std::vector<std::string> bound;  // in order
  std::map<std::string, SimulatedPlace> places;
  std::map<std::string, SimulatedPlace> verdicts;
  for (; out.cycles < cycles_max && !out.settled; ++out.cycles) {
    const CycleResult cycle = engine_->Run(now + out.cycles * 1000);
    for (const Decision& decision : cycle.decisions) {
      if (decision.kind == Decision::Kind::kBind) {
        bound.push_back(decision.pod_uid);
        SimulatedPlace place{decision.pod_uid, decision.ns,         decision.name,
                             decision.node,    decision.gpu_groups, ""};
        place.devices.insert(place.devices.end(), decision.gpu_devices.begin(),
                             decision.gpu_devices.end());
        places[decision.pod_uid] = std::move(place);
        verdicts.erase(decision.pod_uid);
      } else if (decision.kind == Decision::Kind::kEvict) {
        out.evicted.push_back({decision.pod_uid, decision.ns, decision.name, decision.node,
                               decision.action, decision.message, ""});
        places.erase(decision.pod_uid);
      }
    }
    for (const GroupVerdict& verdict : cycle.verdicts) {
      for (const GroupVerdict::Pod& pod : verdict.pods) {
        verdicts[pod.uid] = {pod.uid, pod.ns, pod.name,
                             "",      {},     pod.message.empty() ? verdict.message : pod.message};
      }
    }
    out.settled = !PlayOut(cycle) && !cycle.more;
  }
  for (const std::string& uid : bound) {
    if (const auto found = places.find(uid); found != places.end()) {
      out.placed.push_back(std::move(found->second));
      places.erase(found);
    }
  }
  for (auto& [uid, place] : verdicts) {
    out.waiting.push_back(std::move(place));
  }
  for (SimulatedEviction& eviction : out.evicted) {
    if (const auto pod = engine_->ExportPod(eviction.uid)) {
      eviction.back_on = pod->node;
    }
  }
  return out;
}

}  // namespace sublet::scheduler
