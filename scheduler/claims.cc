#include "scheduler/claims.h"

#include <algorithm>
#include <set>

namespace sublet::scheduler {

namespace {

int Consumers(const ClaimSpec& claim) {
  return static_cast<int>(claim.reserved_for.size()) + claim.reserved_for_others;
}

std::set<ClaimDevice> TakenDevices(const State& state) {
  std::set<ClaimDevice> taken;
  for (const auto& [key, claim] : state.claims) {
    taken.insert(claim.allocated.begin(), claim.allocated.end());
  }
  return taken;
}

std::vector<ClaimDevice> FreeDevices(const State& state, const std::string& node,
                                     const std::set<ClaimDevice>& taken) {
  std::vector<ClaimDevice> free;
  for (const auto& [name, slice] : state.slices) {
    if (!slice.node.empty() && slice.node != node) {
      continue;
    }
    for (const std::string& device : slice.devices) {
      ClaimDevice candidate{slice.driver, slice.pool, device};
      if (taken.count(candidate) == 0) {
        free.push_back(std::move(candidate));
      }
    }
  }
  return free;
}

bool OnNode(const State& state, const ClaimSpec& claim, const std::string& node) {
  return std::all_of(
      claim.allocated.begin(), claim.allocated.end(), [&](const ClaimDevice& device) {
        return std::any_of(state.slices.begin(), state.slices.end(), [&](const auto& entry) {
          const DeviceSlice& slice = entry.second;
          return slice.driver == device.driver && slice.pool == device.pool &&
                 (slice.node.empty() || slice.node == node) &&
                 std::find(slice.devices.begin(), slice.devices.end(), device.device) !=
                     slice.devices.end();
        });
      });
}

}  // namespace

void AllocateClaim(State& state, ClaimSpec& claim, const std::string& pod_uid, NodeId node) {
  if (std::find(claim.reserved_for.begin(), claim.reserved_for.end(), pod_uid) ==
      claim.reserved_for.end()) {
    claim.reserved_for.push_back(pod_uid);
  }
  if (!claim.allocated.empty()) {
    return;
  }
  const std::vector<ClaimDevice> free = FreeDevices(
      state, state.nodes[static_cast<std::size_t>(node)].spec.name, TakenDevices(state));
  const auto wanted = claim.all ? free.size() : static_cast<std::size_t>(claim.count);
  if (free.size() >= wanted) {
    claim.allocated.assign(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(wanted));
  }
}

void ReleaseClaim(ClaimSpec& claim, const std::string& pod_uid) {
  std::erase(claim.reserved_for, pod_uid);
  if (Consumers(claim) == 0) {
    claim.allocated.clear();
  }
}

std::string CheckClaims(const State& state, const Task& task, const std::string& queue) {
  for (const std::string& name : task.claims) {
    auto it = state.claims.find(task.ns + "/" + name);
    if (it == state.claims.end()) {
      return "failed to get resource claim " + task.ns + "/" + name + ": not found";
    }
    const ClaimSpec& claim = it->second;
    if (Consumers(claim) >= kMaxConsumers) {
      return "resource claim " + claim.Key() + " has reached its maximum number of consumers (" +
             std::to_string(kMaxConsumers) + ")";
    }
    const bool gpu = claim.device_class.find("gpu") != std::string::npos;
    if (claim.from_template || !gpu || claim.queue_label == queue) {
      continue;
    }
    const std::string pod =
        "pod " + task.ns + "/" + task.name + " cannot be scheduled: DRA claim " + claim.name;
    if (claim.queue_label.empty()) {
      return pod + " is a shared GPU claim but does not have a queue label (kai.scheduler/queue)";
    }
    return pod + " is a shared GPU claim with wrong queue label (expected queue: " + queue +
           ", claim queue label: " + claim.queue_label + ")";
  }
  return "";
}

std::string ClaimsFit(const State& state, const Task& task, NodeId node) {
  const std::string& name = state.nodes[static_cast<std::size_t>(node)].spec.name;
  std::set<ClaimDevice> taken;
  bool gathered = false;
  for (const std::string& claim_name : task.claims) {
    auto it = state.claims.find(task.ns + "/" + claim_name);
    if (it == state.claims.end()) {
      return "cannot allocate all claims";
    }
    const ClaimSpec& claim = it->second;
    if (!claim.allocated.empty()) {
      if (!OnNode(state, claim, name)) {
        return "resourceclaim not available on the node";
      }
      continue;
    }
    if (!gathered) {
      gathered = true;
      taken = TakenDevices(state);
    }
    const std::vector<ClaimDevice> free = FreeDevices(state, name, taken);
    const auto wanted =
        claim.all ? std::max<std::size_t>(free.size(), 1) : static_cast<std::size_t>(claim.count);
    if (free.size() < wanted) {
      return "cannot allocate all claims";
    }
    taken.insert(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(wanted));
  }
  return "";
}

}  // namespace sublet::scheduler
