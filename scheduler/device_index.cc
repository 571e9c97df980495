#include "scheduler/device_index.h"

#include <algorithm>

#include "scheduler/filters.h"

namespace sublet::scheduler {

namespace {

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

void IndexSlices(const State& state, DeviceIndex* index) {
  index->nodes.clear();
  index->pools.clear();
  index->partitions.clear();
  index->current = CurrentSlices(state);
  for (const auto& [name, slice] : state.slices) {
    if (index->current.count(name) == 0) {
      continue;
    }
    for (const auto& [set, counters] : slice.counters) {
      for (const auto& [counter, amount] : counters) {
        index->pools[{slice.driver, slice.pool}].total[{set, counter}] = amount;
      }
    }
    for (const SliceDevice& device : slice.devices) {
      if (!device.uses.empty()) {
        index->partitions[{slice.driver, slice.pool, device.name}] = &device;
      }
    }
  }
}

void IndexClaims(const State& state, DeviceIndex* index) {
  index->taken.clear();
  index->parts.clear();
  for (auto& [key, pool] : index->pools) {
    pool.used.clear();
  }
  for (const auto& [key, claim] : state.claims) {
    for (std::size_t i = 0; i < claim.allocated.size(); ++i) {
      const ClaimDevice& id = claim.allocated[i];
      const DeviceHold hold = i < claim.holds.size() ? claim.holds[i] : DeviceHold{};
      if (hold.admin) {
        continue;
      }
      if (!hold.shared) {
        index->taken.insert(id);
      } else {
        for (const auto& [name, amount] : hold.parts) {
          index->parts[id][name] += amount;
        }
      }
      const auto partition = index->partitions.find(id);
      if (partition != index->partitions.end()) {
        for (const CounterUse& use : partition->second->uses) {
          for (const auto& [counter, amount] : use.amounts) {
            index->pools[{id.driver, id.pool}].used[{use.set, counter}] += amount;
          }
        }
      }
    }
  }
}

bool Reaches(const std::string& name, const std::vector<NodeTerm>& terms, const NodeSpec& node) {
  return name.empty()
             ? terms.empty() ||
                   std::any_of(terms.begin(), terms.end(),
                               [&](const NodeTerm& term) { return TermMatches(term, node); })
             : name == node.name;
}

}  // namespace

DeviceIndex& IndexOf(const State& state) {
  if (state.device_index == nullptr) {
    state.device_index = std::make_shared<DeviceIndex>();
  }
  DeviceIndex& index = *state.device_index;
  if (index.slices_at != state.slice_generation || index.nodes_at != state.node_generation) {
    index.slices_at = state.slice_generation;
    index.nodes_at = state.node_generation;
    index.claims_at = 0;
    IndexSlices(state, &index);
  }
  if (index.claims_at != state.claim_generation) {
    index.claims_at = state.claim_generation;
    IndexClaims(state, &index);
  }
  return index;
}

const std::vector<DeviceRef>& DevicesOn(const State& state, const NodeSpec& node) {
  DeviceIndex& index = IndexOf(state);
  const auto [it, added] = index.nodes.try_emplace(node.name);
  if (added) {
    for (const auto& [name, slice] : state.slices) {
      if (index.current.count(name) == 0 ||
          (!slice.each_device_says && !Reaches(slice.node, slice.nodes, node))) {
        continue;
      }
      for (const SliceDevice& device : slice.devices) {
        if (!slice.each_device_says || Reaches(device.node, device.nodes, node)) {
          it->second.push_back({&slice, &device, {slice.driver, slice.pool, device.name}});
        }
      }
    }
  }
  return it->second;
}

}  // namespace sublet::scheduler
