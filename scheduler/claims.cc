#include "scheduler/claims.h"

#include <algorithm>
#include <cctype>

#include "scheduler/device_search.h"
#include "scheduler/filters.h"

namespace sublet::scheduler {

namespace {

int Consumers(const ClaimSpec& claim) {
  return static_cast<int>(claim.reserved_for.size()) + claim.reserved_for_others;
}

bool OnNode(const State& state, const ClaimSpec& claim, const NodeSpec& node) {
  if (claim.allocated_on) {
    return claim.allocated_on->empty() ||
           std::any_of(claim.allocated_on->begin(), claim.allocated_on->end(),
                       [&](const NodeTerm& term) { return TermMatches(term, node); });
  }
  const std::vector<DeviceRef>& here = DevicesOn(state, node);
  return std::all_of(claim.allocated.begin(), claim.allocated.end(), [&](const auto& device) {
    return std::any_of(here.begin(), here.end(),
                       [&](const DeviceRef& ref) { return ref.id == device; });
  });
}

std::string QueueProblem(const ClaimSpec& claim, const Task& task, const std::string& queue) {
  if (claim.from_template || GpusOf(claim) == 0 || claim.queue_label == queue) {
    return "";
  }
  const std::string pod =
      "pod " + task.ns + "/" + task.name + " cannot be scheduled: DRA claim " + claim.name;
  return claim.queue_label.empty()
             ? pod + " is a shared GPU claim but does not have a queue label (kai.scheduler/queue)"
             : pod + " is a shared GPU claim with wrong queue label (expected queue: " + queue +
                   ", claim queue label: " + claim.queue_label + ")";
}

}  // namespace

bool NamesGpu(const std::string& device_class) {
  std::string lower = device_class;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.find("gpu") != std::string::npos;
}

std::int64_t GpusOf(const ClaimSpec& claim) {
  const auto devices_for = [&](const std::string& name) {
    return std::count(claim.allocated_for.begin(), claim.allocated_for.end(), name);
  };
  std::int64_t gpus = 0;
  for (const ClaimRequest& request : claim.requests) {
    // Before it is known which alternative it becomes, the first counts.
    const ClaimRequest* one = &request;
    for (const ClaimRequest& alternative : request.alternatives) {
      if (one == &request || devices_for(alternative.name) > 0) {
        one = &alternative;
      }
    }
    if (NamesGpu(one->device_class) && !one->admin) {
      const auto got = devices_for(one->name);
      gpus += one->all && got > 0 ? got : one->count;
    }
  }
  return gpus * kDevice;
}

void AllocateClaims(State& state, const Task& task, NodeId node) {
  state.TouchClaims();
  std::vector<const ClaimSpec*> open;
  std::vector<ClaimSpec*> claims;
  for (const std::string& name : task.claims) {
    auto it = state.claims.find(task.ns + "/" + name);
    if (it == state.claims.end()) {
      continue;
    }
    ClaimSpec& claim = it->second;
    if (std::find(claim.reserved_for.begin(), claim.reserved_for.end(), task.uid) ==
        claim.reserved_for.end()) {
      claim.reserved_for.push_back(task.uid);
    }
    if (claim.payer.empty() && !claim.from_template) {
      claim.payer = task.uid;
    }
    if (claim.allocated.empty() && std::find(open.begin(), open.end(), &claim) == open.end()) {
      open.push_back(&claim);
      claims.push_back(&claim);
    }
  }
  std::vector<ClaimPick> picks;
  if (open.empty() || FindDevices(state, open, state.nodes[static_cast<std::size_t>(node)].spec,
                                  &picks) != SearchEnd::kFound) {
    return;
  }
  for (std::size_t i = 0; i < picks.size(); ++i) {
    claims[i]->allocated = std::move(picks[i].devices);
    claims[i]->allocated_for = std::move(picks[i].requests);
    claims[i]->holds = std::move(picks[i].holds);
    claims[i]->allocated_on = std::move(picks[i].reach);
  }
  state.TouchClaims();  // what was free for the choice no longer is
}

void ReleaseClaim(State& state, ClaimSpec& claim, const std::string& pod_uid) {
  if (std::erase(claim.reserved_for, pod_uid) == 0) {
    return;
  }
  state.TouchClaims();
  if (Consumers(claim) == 0) {
    claim.allocated.clear();
    claim.allocated_for.clear();
    claim.holds.clear();
    claim.allocated_on.reset();
    claim.payer.clear();
  }
}

std::string CheckClaims(const State& state, const Task& task, const std::string& queue, bool kube) {
  for (const std::string& name : task.claims) {
    auto it = state.claims.find(task.ns + "/" + name);
    if (it == state.claims.end()) {
      return kube ? "resourceclaim.resource.k8s.io \"" + name + "\" not found"
                  : "failed to get resource claim " + task.ns + "/" + name + ": not found";
    }
    const ClaimSpec& claim = it->second;
    if (claim.deleting) {
      return "resourceclaim \"" + name + "\" is being deleted";
    }
    if (claim.from_template && !claim.owner_uid.empty() && claim.owner_uid != task.uid) {
      return "ResourceClaim " + claim.Key() + " was not created for pod " + task.ns + "/" +
             task.name + " (pod is not owner)";
    }
    if (claim.allocated.empty() && !claim.problem.empty()) {
      return claim.problem;
    }
    if (Consumers(claim) >= kMaxConsumers) {
      return "resource claim " + claim.Key() + " has reached its maximum number of consumers (" +
             std::to_string(kMaxConsumers) + ")";
    }
    if (std::string problem = kube ? "" : QueueProblem(claim, task, queue); !problem.empty()) {
      return problem;
    }
  }
  return "";
}

std::string ClaimsFit(const State& state, const Task& task, NodeId node) {
  const NodeSpec& spec = state.nodes[static_cast<std::size_t>(node)].spec;
  std::vector<const ClaimSpec*> open;
  for (const std::string& claim_name : task.claims) {
    auto it = state.claims.find(task.ns + "/" + claim_name);
    if (it == state.claims.end()) {
      return "cannot allocate all claims";
    }
    const ClaimSpec& claim = it->second;
    if (claim.allocated.empty()) {
      if (std::find(open.begin(), open.end(), &claim) == open.end()) {
        open.push_back(&claim);
      }
    } else if (!OnNode(state, claim, spec)) {
      return "resourceclaim not available on the node";
    }
  }
  std::vector<ClaimPick> picks;
  switch (open.empty() ? SearchEnd::kFound : FindDevices(state, open, spec, &picks)) {
    case SearchEnd::kFound: return "";
    case SearchEnd::kNothing: return "cannot allocate all claims";
    case SearchEnd::kCutOff: break;
  }
  return "cannot allocate all claims: no choice of devices was found in " +
         std::to_string(kDeviceTries) + " tries";
}

}  // namespace sublet::scheduler
