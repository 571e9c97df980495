#include "scheduler/claims.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "scheduler/device_selector.h"
#include "scheduler/filters.h"

namespace sublet::scheduler {

// What is derived from `slices` and `claims`, made again when they changed.
struct DeviceIndex {
  struct Ref {
    const DeviceSlice* slice;
    const SliceDevice* device;
    ClaimDevice id;
  };
  std::uint64_t slices_at = 0, nodes_at = 0, claims_at = 0;
  std::set<std::string> current;                  // slices of complete pools' newest generation
  std::map<std::string, std::vector<Ref>> nodes;  // by node name, filled when asked
  std::set<ClaimDevice> taken;
};

namespace {

using Ref = DeviceIndex::Ref;

int Consumers(const ClaimSpec& claim) {
  return static_cast<int>(claim.reserved_for.size()) + claim.reserved_for_others;
}

std::set<std::string> CurrentSlices(const State& state) {
  struct Pool {
    std::int64_t newest = 0, wanted = 0, have = 0;
  };
  std::map<std::pair<std::string, std::string>, Pool> pools;
  for (const auto& [name, slice] : state.slices) {
    Pool& pool = pools[{slice.driver, slice.pool}];
    if (slice.generation > pool.newest) {
      pool = {slice.generation, 0, 0};
    }
    if (slice.generation == pool.newest) {
      ++pool.have;
      pool.wanted = slice.pool_slices;
    }
  }
  std::set<std::string> current;
  for (const auto& [name, slice] : state.slices) {
    const Pool& pool = pools[{slice.driver, slice.pool}];
    if (slice.generation == pool.newest && pool.have >= pool.wanted) {
      current.insert(name);
    }
  }
  return current;
}

DeviceIndex& IndexOf(const State& state) {
  if (state.device_index == nullptr) {
    state.device_index = std::make_shared<DeviceIndex>();
  }
  DeviceIndex& index = *state.device_index;
  if (index.slices_at != state.slice_generation || index.nodes_at != state.node_generation) {
    index.slices_at = state.slice_generation;
    index.nodes_at = state.node_generation;
    index.nodes.clear();
    index.current = CurrentSlices(state);
  }
  if (index.claims_at != state.claim_generation) {
    index.claims_at = state.claim_generation;
    index.taken.clear();
    for (const auto& [key, claim] : state.claims) {
      index.taken.insert(claim.allocated.begin(), claim.allocated.end());
    }
  }
  return index;
}

bool Reaches(const DeviceSlice& slice, const NodeSpec& node) {
  return slice.node.empty()
             ? slice.nodes.empty() ||
                   std::any_of(slice.nodes.begin(), slice.nodes.end(),
                               [&](const NodeTerm& term) { return TermMatches(term, node); })
             : slice.node == node.name;
}

const std::vector<Ref>& DevicesOn(const State& state, const NodeSpec& node) {
  DeviceIndex& index = IndexOf(state);
  const auto [it, added] = index.nodes.try_emplace(node.name);
  if (added) {
    for (const auto& [name, slice] : state.slices) {
      if (index.current.count(name) == 0 || !Reaches(slice, node)) {
        continue;
      }
      for (const SliceDevice& device : slice.devices) {
        it->second.push_back({&slice, &device, {slice.driver, slice.pool, device.name}});
      }
    }
  }
  return it->second;
}

bool OnNode(const State& state, const ClaimSpec& claim, const NodeSpec& node) {
  if (claim.allocated_on) {
    return claim.allocated_on->empty() ||
           std::any_of(claim.allocated_on->begin(), claim.allocated_on->end(),
                       [&](const NodeTerm& term) { return TermMatches(term, node); });
  }
  const std::vector<Ref>& here = DevicesOn(state, node);
  return std::all_of(claim.allocated.begin(), claim.allocated.end(), [&](const auto& device) {
    return std::any_of(here.begin(), here.end(), [&](const Ref& ref) { return ref.id == device; });
  });
}

struct Pick {
  bool found = false;
  std::vector<ClaimDevice> devices;
  std::vector<std::string> requests;  // parallel
};

// `also` is taken besides what claims hold, and gains what is picked.
Pick PickDevices(const State& state, const ClaimSpec& claim, const NodeSpec& node,
                 std::set<ClaimDevice>* also) {
  const std::set<ClaimDevice>& taken = IndexOf(state).taken;
  struct Wanted {
    const ClaimRequest* request;
    std::vector<const Ref*> candidates;
    bool blocked = false;  // All, and one of them is another's
  };
  std::vector<Wanted> all;
  for (const ClaimRequest& request : claim.requests) {
    Wanted wanted{&request, {}, false};
    for (const Ref& ref : DevicesOn(state, node)) {
      if (!std::all_of(request.selectors.begin(), request.selectors.end(),
                       [&](const auto& s) { return s->Matches(ref.slice->driver, *ref.device); })) {
        continue;
      }
      if (!ref.device->usable || taken.count(ref.id) > 0 || also->count(ref.id) > 0) {
        wanted.blocked = wanted.blocked || request.all;
      } else {
        wanted.candidates.push_back(&ref);
      }
    }
    all.push_back(std::move(wanted));
  }
  std::stable_sort(all.begin(), all.end(), [](const Wanted& a, const Wanted& b) {
    return a.candidates.size() < b.candidates.size();
  });
  Pick pick;
  for (const Wanted& wanted : all) {
    const std::size_t count = wanted.request->all
                                  ? std::max<std::size_t>(wanted.candidates.size(), 1)
                                  : static_cast<std::size_t>(wanted.request->count);
    std::size_t got = 0;
    for (const Ref* ref : wanted.candidates) {
      if (got < count && also->insert(ref->id).second) {
        ++got;
        pick.devices.push_back(ref->id);
        pick.requests.push_back(wanted.request->name);
      }
    }
    if (wanted.blocked || got < count) {
      return {};
    }
  }
  pick.found = true;
  return pick;
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
  std::int64_t gpus = 0;
  for (const ClaimRequest& request : claim.requests) {
    if (NamesGpu(request.device_class)) {
      const auto got =
          std::count(claim.allocated_for.begin(), claim.allocated_for.end(), request.name);
      gpus += request.all && got > 0 ? got : request.count;
    }
  }
  return gpus * kDevice;
}

void AllocateClaim(State& state, ClaimSpec& claim, const std::string& pod_uid, NodeId node) {
  state.TouchClaims();
  if (std::find(claim.reserved_for.begin(), claim.reserved_for.end(), pod_uid) ==
      claim.reserved_for.end()) {
    claim.reserved_for.push_back(pod_uid);
  }
  if (claim.payer.empty() && !claim.from_template) {
    claim.payer = pod_uid;
  }
  if (!claim.allocated.empty()) {
    return;
  }
  std::set<ClaimDevice> also;
  Pick pick = PickDevices(state, claim, state.nodes[static_cast<std::size_t>(node)].spec, &also);
  claim.allocated = std::move(pick.devices);
  claim.allocated_for = std::move(pick.requests);
  claim.allocated_on.reset();
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
  std::set<ClaimDevice> also;
  for (const std::string& claim_name : task.claims) {
    auto it = state.claims.find(task.ns + "/" + claim_name);
    if (it == state.claims.end()) {
      return "cannot allocate all claims";
    }
    const ClaimSpec& claim = it->second;
    if (!claim.allocated.empty()) {
      if (!OnNode(state, claim, spec)) {
        return "resourceclaim not available on the node";
      }
      continue;
    }
    if (!PickDevices(state, claim, spec, &also).found) {
      return "cannot allocate all claims";
    }
  }
  return "";
}

}  // namespace sublet::scheduler
