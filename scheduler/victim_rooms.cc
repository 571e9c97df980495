// Which nodes a victim search looks at, and what it can rule out by counting devices before it
// simulates anything (Solver in scheduler/solver.h). Threads: one, the scheduler's.
#include <algorithm>
#include <cmath>

#include "scheduler/filters.h"
#include "scheduler/solver.h"

namespace sublet::scheduler {

namespace {

double Devices(std::int64_t amount) {
  return static_cast<double>(amount) / static_cast<double>(kDevice);
}

}  // namespace

std::set<NodeId> Solver::FeasibleNodes(const Job& job) {
  State& state = session_.state;
  bool gpu_only = true;
  for (const PodSet& set : job.pod_sets) {
    for (TaskId id : set.tasks) {
      const Task& task = state.task(id);
      gpu_only = gpu_only && (task.shape->gpus > 0 || state.Dra(task) > 0 || task.shape->shared ||
                              task.shape->request.gpu == GpuKind::kMig);
    }
  }
  std::set<NodeId> nodes;
  for (NodeId id : state.NodesByName()) {
    const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
    const Node& node = state.nodes[static_cast<std::size_t>(id)];
    bool any = !gpu_only || hot.idle[kGpu] > 0 || hot.releasing[kGpu] > 0;
    for (const GpuGroup& group : node.groups) {
      any = any || group.Allocated() < node.gpu_memory || group.releasing - group.pipelined > 0;
    }
    for (const NodeScalar& scalar : node.scalars) {
      any = any || ((scalar.idle > 0 || scalar.releasing > 0) && node.mig);
    }
    if (any) {
      nodes.insert(id);
    }
  }
  return nodes;
}

// What the pod takes of a node's devices, as the bounds count it.
double Solver::Wanted(const Task& task) const {
  const std::int64_t slices = session_.profile.smart_search ? task.shape->mig_slices * kDevice : 0;
  return Devices(task.shape->gpus + slices + session_.state.Dra(task));
}

// What the victim's leaving frees of its node's devices. KAI before 0.16 counts nothing for the
// slices of a MIG pod: those who wait for devices cannot use them.
double Solver::Freed(const Task& victim) const {
  return victim.shape->request.gpu == GpuKind::kMig && !session_.profile.smart_search
             ? 0
             : Devices(victim.accepted[kGpu]);
}

// Devices of the node that nobody is on, or whose pods are leaving, parts of shared ones included.
double Solver::RoomOf(NodeId id) const {
  const State& state = session_.state;
  const Node& node = state.nodes[static_cast<std::size_t>(id)];
  const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
  const auto share = [&](std::int64_t memory) {
    return std::ceil(static_cast<double>(memory) / static_cast<double>(node.gpu_memory) * 100) /
           100;
  };
  double idle = 0;
  double leaving = 0;
  for (const GpuGroup& group : node.groups) {
    idle += group.Allocated() > 0 ? 1 - share(group.Allocated()) : 0;
    const std::int64_t going = group.releasing - group.pipelined;
    leaving += going > 0 && going != group.Used() ? share(going) : 0;
  }
  double mig_idle = 0;
  double mig_leaving = 0;
  for (const NodeScalar& scalar : node.scalars) {
    std::int64_t slices = 0;
    std::int64_t size = 0;
    if (node.mig && ParseMigProfile(state.names.Name(scalar.name), &slices, &size)) {
      mig_idle += static_cast<double>(slices * scalar.idle);
      mig_leaving += static_cast<double>(slices * scalar.releasing);
    }
  }
  return (idle + (Devices(hot.idle[kGpu]) + mig_idle)) +
         (leaving + (Devices(hot.releasing[kGpu]) + mig_leaving));
}

void Solver::CountRooms(Search& search) {
  const State& state = session_.state;
  search.room.assign(state.nodes.size(), -1);
  if (search.wanted.empty() || search.wanted[0] == 0) {
    return;
  }
  for (NodeId node : search.feasible) {
    search.room[static_cast<std::size_t>(node)] = RoomOf(node);
    search.roomiest.push_back(node);
  }
  const auto more = [&](NodeId a, NodeId b) {
    const double left = search.room[static_cast<std::size_t>(a)];
    const double right = search.room[static_cast<std::size_t>(b)];
    return left != right ? left > right
                         : state.hot[static_cast<std::size_t>(a)].rank <
                               state.hot[static_cast<std::size_t>(b)].rank;
  };
  const std::size_t kept = std::min(search.roomiest.size(), search.wanted.size());
  std::partial_sort(search.roomiest.begin(),
                    search.roomiest.begin() + static_cast<std::ptrdiff_t>(kept),
                    search.roomiest.end(), more);
  search.roomiest.resize(kept);
}

void Solver::FreeRoom(Search& search, const Task& victim) {
  if (search.wanted.empty() || search.wanted[0] == 0) {
    return;
  }
  const auto room = [&](NodeId id) -> double& { return search.room[static_cast<std::size_t>(id)]; };
  if (room(victim.node) < 0) {
    room(victim.node) = RoomOf(victim.node);
  }
  room(victim.node) += Freed(victim);
  auto& list = search.roomiest;
  list.erase(std::remove(list.begin(), list.end(), victim.node), list.end());
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](NodeId other) { return room(other) <= room(victim.node); });
  list.insert(at, victim.node);
  list.resize(std::min(list.size(), search.wanted.size()));
}

// A cheap bound: with all victims so far gone, the pending pods, largest first, find room on the
// nodes with the most of it.
bool Solver::EnoughGpus(const Search& search) const {
  std::vector<double> left;
  for (NodeId node : search.roomiest) {
    left.push_back(search.room[static_cast<std::size_t>(node)]);
  }
  for (double wanted : search.wanted) {
    if (wanted == 0) {
      return true;
    }
    const auto fits =
        std::find_if(left.begin(), left.end(), [&](double room) { return room >= wanted; });
    if (fits == left.end()) {
      return false;
    }
    *fits -= wanted;
  }
  return true;
}

// False when some pod is larger than every node it may run on: no eviction helps.
bool Solver::CouldEverFit(const std::vector<TaskId>& tasks) {
  const State& state = session_.state;
  std::set<int> seen;
  for (TaskId id : tasks) {
    const Task& task = state.task(id);
    if (task.shape->shared || !seen.insert(task.shape->id).second) {
      continue;
    }
    bool fits = false;
    for (NodeId node_id : session_.state.NodesByName()) {
      const NodeSpec& node = state.nodes[static_cast<std::size_t>(node_id)].spec;
      fits = task.shape->tracked[kGpu] + state.Dra(task) <= node.gpus * kDevice &&
             task.shape->tracked[kCpu] <= node.cpu && task.shape->tracked[kMemory] <= node.memory &&
             (!task.shape->node_constraints || NodeAffinityMatches(*task.shape, node));
      if (fits) {
        break;
      }
    }
    if (!fits) {
      return false;
    }
  }
  return true;
}

}  // namespace sublet::scheduler
