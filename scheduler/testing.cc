#include "scheduler/testing.h"

#include <algorithm>
#include <map>
#include <set>

namespace sublet::scheduler::testing {

namespace {

template <typename T>
std::string Numbers(const T& list) {
  std::string text;
  for (const auto& value : list) {
    text += std::to_string(value) + ",";
  }
  return text;
}

}  // namespace

std::string Digest(const State& state) {
  std::map<std::string, std::string> lines;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    if (!state.hot[i].present) {
      continue;
    }
    std::string& line = lines["node " + state.nodes[i].spec.name];
    line = Numbers(state.hot[i].idle) + Numbers(state.hot[i].releasing);
    for (const GpuGroup& group : state.nodes[i].groups) {
      line += " " + state.group_names.Name(group.name) + ":" + std::to_string(group.active) + "/" +
              std::to_string(group.releasing) + "/" + std::to_string(group.pipelined);
    }
    std::map<std::string, std::string> scalars;
    for (const NodeScalar& scalar : state.nodes[i].scalars) {
      scalars[state.names.Name(scalar.name)] =
          std::to_string(scalar.idle) + "/" + std::to_string(scalar.releasing);
    }
    for (const auto& [name, text] : scalars) {
      line += " " + name + "=" + text;
    }
  }
  for (const Queue& queue : state.queues) {
    if (queue.present) {
      lines["queue " + queue.spec.name] = Numbers(queue.allocated) + Numbers(queue.allocated_np) +
                                          Numbers(queue.request) + Numbers(queue.share.FairShare());
    }
  }
  for (const auto& task : state.tasks) {
    if (task != nullptr) {
      std::string line =
          std::string(StatusName(task->status)) + "@" +
          (task->node == kNone ? "" : state.nodes[static_cast<std::size_t>(task->node)].spec.name);
      for (int group : task->groups) {
        line += " " + state.group_names.Name(group);
      }
      lines["task " + task->uid] = line + " " + Numbers(task->accepted);
    }
  }
  for (const auto& job : state.jobs) {
    if (job != nullptr) {
      std::string& line = lines["job " + job->key];
      line = Numbers(job->held) + std::to_string(job->pending) + "/" +
             std::to_string(job->active_allocated) + "/" + std::to_string(job->active_used);
    }
  }
  std::string text;
  for (const auto& [key, line] : lines) {
    text += key + ": " + line + "\n";
  }
  return text;
}

std::string DecisionText(const CycleResult& result) {
  std::string text;
  for (const Decision& decision : result.decisions) {
    static constexpr const char* kKinds[] = {"bind", "evict", "promise"};
    text += std::string(kKinds[static_cast<int>(decision.kind)]) + " " + decision.pod_uid + " " +
            decision.node;
    for (const std::string& group : decision.gpu_groups) {
      text += " " + group;
    }
    text += "\n";
  }
  return text;
}

Snapshot RandomCluster(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int bound) {
    return static_cast<int>(random() % static_cast<std::uint32_t>(bound));
  };
  Snapshot out;
  const int nodes = 2 + pick(5);
  for (int i = 0; i < nodes; ++i) {
    out.nodes.push_back(MakeNode("n" + std::to_string(i), 1 + pick(4)));
    out.nodes.back().labels.insert(out.nodes.back().labels.begin() + 1,
                                   {"kubernetes.io/rack", "r" + std::to_string(i / 2)});
  }
  out.topologies.push_back({"racks", {"kubernetes.io/rack"}});
  out.queues.push_back(MakeQueue("root", "", kUnlimited));
  out.queues.push_back(MakeQueue("div", "root", 1 + pick(4)));
  for (int i = 0; i < 4; ++i) {
    out.queues.push_back(MakeQueue("q" + std::to_string(i), i < 2 ? "div" : "root", pick(4)));
    out.queues.back().created = i;
    out.queues.back().gpu.limit = pick(4) == 0 ? 1 + pick(4) : kUnlimited;
    out.queues.back().priority = pick(4) == 0 ? 200 : 100;
  }
  // Running pods are put where they fit, counted in thousandths of devices.
  std::vector<std::int64_t> room;
  for (const NodeSpec& node : out.nodes) {
    room.push_back(node.gpus);
  }
  const int groups = 3 + pick(10);
  for (int g = 0; g < groups; ++g) {
    const int pods = 1 + pick(4);
    static constexpr int kPriorities[] = {50, 50, 75, 100, 125};
    PodGroupSpec group = MakeGroup("g" + std::to_string(g), "q" + std::to_string(pick(4)),
                                   1 + pick(pods), kPriorities[pick(5)]);
    group.created = kNow - 100'000 + g * 1000;
    if (pick(6) == 0) {
      group.root.topology = TopologyConstraint{"racks", "kubernetes.io/rack", ""};
    }
    out.groups.push_back(group);
    const int kind = pick(4);
    const bool running = pick(2) == 0;
    for (int p = 0; p < pods; ++p) {
      PodSpec pod = MakePod(group.name, p, kind == 0 ? 0 : 1 + pick(2));
      if (kind == 2) {
        pod.request.gpu = GpuKind::kFraction;
        pod.request.gpu_count = 1;
        pod.request.portion = 0.25 * (1 + pick(3));
      } else if (kind == 3) {
        pod.request.gpu = GpuKind::kMemory;
        pod.request.gpu_count = 1;
        pod.request.gpu_memory_mib = 100 * (1 + pick(9));
      }
      const auto node = static_cast<std::size_t>(pick(nodes));
      const std::int64_t need = pod.request.gpu_count;
      if (running && room[node] >= need) {
        room[node] -= need;
        pod.node = out.nodes[node].name;
        pod.phase = pick(8) == 0 ? Phase::kReleasing : Phase::kRunning;
        if (kind >= 2) {
          pod.gpu_groups = {"d-" + pod.name};
        }
      }
      out.pods.push_back(pod);
    }
  }
  return out;
}

void PlayOut(Engine& engine, const CycleResult& result) {
  const Snapshot now = engine.Export();
  std::map<std::string, const PodSpec*> pods;
  for (const PodSpec& pod : now.pods) {
    pods[pod.uid] = &pod;
  }
  for (const Decision& decision : result.decisions) {
    PodSpec pod = *pods.at(decision.pod_uid);
    if (decision.kind == Decision::Kind::kBind) {
      pod.phase = Phase::kRunning;
      pod.node = decision.node;
      pod.gpu_groups = decision.gpu_groups;
    } else if (decision.kind == Decision::Kind::kEvict) {
      engine.DeletePod(pod.uid);
      pod.phase = Phase::kPending;
      pod.node.clear();
      pod.gpu_groups.clear();
    } else {
      continue;
    }
    engine.Apply(pod);
  }
}

std::string Oversubscribed(const State& state) {
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    if (!state.hot[i].present) {
      continue;
    }
    const Node& node = state.nodes[i];
    Fixed held{};
    std::map<int, std::int64_t> shared;
    // A task that moves between devices of a node stands there twice.
    for (TaskId id : std::set<TaskId>(node.tasks.begin(), node.tasks.end())) {
      const Task& task = state.task(id);
      for (const Placement& placement : task.placements) {
        if (placement.node != static_cast<NodeId>(i) || placement.status == Status::kPipelined) {
          continue;
        }
        for (int dim = 0; dim < kDims; ++dim) {
          held[dim] += task.shape->tracked[dim];
        }
        for (int group : placement.groups) {
          shared[group] += task.shape->request.gpu == GpuKind::kMemory
                               ? task.shape->request.gpu_memory_mib
                               : static_cast<std::int64_t>(task.shape->request.portion *
                                                           static_cast<double>(node.gpu_memory));
        }
      }
    }
    for (const auto& [group, memory] : shared) {
      if (memory > node.gpu_memory) {
        return node.spec.name + " device " + state.group_names.Name(group);
      }
    }
    held[kGpu] += static_cast<std::int64_t>(shared.size()) * kDevice;
    if (held[kCpu] > node.spec.cpu || held[kMemory] > node.spec.memory ||
        held[kGpu] > node.spec.gpus * kDevice || held[kPods] > node.spec.pods) {
      return node.spec.name;
    }
  }
  return "";
}

}  // namespace sublet::scheduler::testing
