#include "scheduler/topology_capacity.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "scheduler/messages.h"

namespace sublet::scheduler {

namespace {

void AddTo(FreeAmounts* to, const FreeAmounts& what) {
  for (int i = 0; i < kDims; ++i) {
    to->fixed[i] += what.fixed[i];
  }
  for (const auto& [name, amount] : what.scalars) {
    to->scalars[name] += amount;
  }
}

// The largest of each amount over the batch, as KAI's test pods have it.
struct LargestPod {
  Fixed fixed{};
  std::map<std::string, std::int64_t> scalars;  // without MIG profiles
  std::int64_t devices = 0;
  double portion = 0;
  std::int64_t gpus = 0;  // JobRules::exact_capacity: thousandths, and nothing of the two above
  std::string error;
};

// The tasks of a batch are one job's.
bool CountsExactly(const State& state, const std::vector<TaskId>& tasks) {
  const JobId job = tasks.empty() ? kNone : state.task(tasks.front()).job;
  return job != kNone && state.RulesOf(job).exact_capacity;
}

LargestPod FindLargest(const State& state, const std::vector<TaskId>& tasks) {
  const bool exact = CountsExactly(state, tasks);
  LargestPod largest;
  std::int64_t gpus = 0;
  for (TaskId id : tasks) {
    const Request& request = state.task(id).shape->request;
    largest.fixed[kCpu] = std::max(largest.fixed[kCpu], request.cpu);
    largest.fixed[kMemory] = std::max(largest.fixed[kMemory], request.memory);
    for (const auto& [name, amount] : request.scalars) {
      if (exact || name.compare(0, 15, "nvidia.com/mig-") != 0) {
        std::int64_t& most = largest.scalars[name];
        most = std::max(most, amount);
      }
    }
    if (exact) {
      largest.gpus = std::max(largest.gpus, state.task(id).shape->gpus + state.Dra(state.task(id)));
      continue;
    }
    const double portion = request.gpu == GpuKind::kFraction ? request.portion
                           : request.gpu_count > 0 && request.gpu == GpuKind::kWhole ? 1
                                                                                     : 0;
    if (largest.portion != 0 && portion != 0 && largest.portion != portion) {
      largest.error =
          "cannot calculate max resource for GpuResourceRequirements with different fractional "
          "portions";
    }
    if (state.task(id).shape->gpus > gpus) {
      gpus = state.task(id).shape->gpus;
      largest.devices = request.gpu_count;
      largest.portion = portion;
    }
  }
  largest.fixed[kPods] = 1;
  return largest;
}

// What is free, or is being freed, of the node's shared devices, in thousandths of a device.
std::int64_t FreeParts(const Node& node) {
  std::int64_t memory = 0;
  for (const GpuGroup& group : node.groups) {
    const std::int64_t free =
        node.gpu_memory - group.Allocated() + group.releasing - group.pipelined;
    memory += group.Used() > 0 ? std::max<std::int64_t>(free, 0) : 0;
  }
  return memory * kDevice / node.gpu_memory;
}

int CopiesOnNode(const State& state, NodeId id, const LargestPod& pod, int tasks) {
  const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
  const Node& node = state.nodes[static_cast<std::size_t>(id)];
  if (pod.fixed[kCpu] == 0 && pod.fixed[kMemory] == 0 && pod.scalars.empty() && pod.devices == 0 &&
      pod.gpus == 0) {
    return tasks;
  }
  std::int64_t copies = std::numeric_limits<int>::max();
  for (int dim : {kCpu, kMemory, kPods}) {
    if (pod.fixed[dim] > 0) {
      copies = std::min(copies, (hot.idle[dim] + hot.releasing[dim]) / pod.fixed[dim]);
    }
  }
  for (const auto& [name, amount] : pod.scalars) {
    std::int64_t have = 0;
    for (const NodeScalar& scalar : node.scalars) {
      have = state.names.Name(scalar.name) == name ? scalar.idle + scalar.releasing : have;
    }
    copies = amount > 0 ? std::min(copies, have / amount) : copies;
  }
  if (pod.gpus > 0) {
    std::int64_t have = hot.idle[kGpu] + hot.releasing[kGpu];
    have += pod.gpus < kDevice ? FreeParts(node) : 0;
    copies = std::min(copies, have / pod.gpus);
  }
  if (pod.devices > 0) {
    std::int64_t devices =
        std::max<std::int64_t>(hot.idle[kGpu] + hot.releasing[kGpu], 0) / kDevice;
    const auto memory =
        static_cast<std::int64_t>(pod.portion * static_cast<double>(node.gpu_memory));
    for (const GpuGroup& group : node.groups) {
      devices += group.active + group.pipelined > 0 &&
                         node.gpu_memory - group.active - group.pipelined >= memory
                     ? 1
                     : 0;
    }
    copies = std::min(copies, devices / pod.devices);
  }
  return static_cast<int>(std::max<std::int64_t>(copies, 0));
}

bool Homogeneous(const State& state, const std::vector<TaskId>& tasks) {
  const bool exact = CountsExactly(state, tasks);
  std::map<std::string, std::size_t> users;
  std::size_t gpu = 0;
  for (TaskId id : tasks) {
    const Shape& shape = *state.task(id).shape;
    for (const auto& [name, amount] : shape.request.scalars) {
      const bool apart = !exact && name.compare(0, 15, "nvidia.com/mig-") == 0;
      users[name] += apart ? tasks.size() : 1;
    }
    gpu += shape.gpus > 0 ? 1 : 0;
  }
  if (gpu != 0 && gpu != tasks.size()) {
    return false;
  }
  return std::all_of(users.begin(), users.end(),
                     [&](const auto& user) { return user.second % tasks.size() == 0; });
}

std::int64_t Cores(std::int64_t milli) { return (milli + 999) / 1000; }

JobFailure Shortage(const std::string& sub_group, const Domain& domain, const FreeAmounts& asked) {
  std::vector<std::string> details;
  std::string message;
  const auto lacks = [&](const std::string& title, const std::string& want, const std::string& have,
                         const char* plural) {
    details.push_back(domain.id + " didn't have enough resource" + plural + ": " + title +
                      ", requested: " + want + ", available: " + have);
    message +=
        (message.empty() ? "" : ", ") + ("node-group(s) didn't have enough resources: " + title);
  };
  const auto text = [](std::int64_t value, double unit) {
    return Human(static_cast<double>(value), unit);
  };
  const Fixed& free = domain.free.fixed;
  if (asked.fixed[kGpu] > free[kGpu]) {
    lacks("GPUs", text(asked.fixed[kGpu], kDevice), text(free[kGpu], kDevice), "");
  }
  if (asked.fixed[kCpu] > free[kCpu]) {
    lacks("CPU cores", text(asked.fixed[kCpu], 1000), text(free[kCpu], 1000), "s");
  }
  if (asked.fixed[kMemory] > free[kMemory]) {
    lacks("memory", text(asked.fixed[kMemory], 1e9), text(free[kMemory], 1e9), "s");
  }
  for (const auto& [name, amount] : asked.scalars) {
    auto it = domain.free.scalars.find(name);
    const std::int64_t have = it == domain.free.scalars.end() ? 0 : it->second;
    if (have < amount) {
      lacks(name, std::to_string(amount), std::to_string(have), "");
    }
  }
  std::string detail = "<" + domain.id + ">: ";
  if (!sub_group.empty() && sub_group != "default") {
    detail += "subgroup " + sub_group + ": ";
  }
  for (std::size_t i = 0; i < details.size(); ++i) {
    detail += (i == 0 ? "" : ", ") + details[i];
  }
  return {"Not enough resources for the workload", message, detail, kNone, -1};
}

}  // namespace

FreeAmounts SumRequests(const State& state, const std::vector<TaskId>& tasks) {
  FreeAmounts sum;
  sum.exact = CountsExactly(state, tasks);
  sum.fixed[kGpu] = state.ClaimGpus(tasks);
  for (TaskId id : tasks) {
    const Task& task = state.task(id);
    sum.fixed[kCpu] += task.shape->request.cpu;
    sum.fixed[kMemory] += task.shape->request.memory;
    sum.fixed[kGpu] += task.shape->gpus;
    for (const auto& [name, amount] : task.shape->request.scalars) {
      sum.scalars[name] += amount;
    }
  }
  return sum;
}

std::string CountCapacity(State& state, TopologyTree& tree, int top,
                          const std::vector<TaskId>& tasks) {
  for (Domain& domain : tree.domains) {
    domain.capacity = kCapacityUnknown;
    domain.free = FreeAmounts{};
  }
  const bool count = Homogeneous(state, tasks);
  const LargestPod largest = count ? FindLargest(state, tasks) : LargestPod{};
  std::function<void(int)> visit = [&](int index) {
    Domain& domain = tree.domains[static_cast<std::size_t>(index)];
    domain.capacity = count ? 0 : kCapacityUnknown;
    if (domain.children.empty()) {
      for (NodeId id : domain.nodes) {
        const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
        for (int i = 0; i < kDims; ++i) {
          domain.free.fixed[i] += hot.idle[i] + hot.releasing[i];
        }
        for (const NodeScalar& scalar : state.nodes[static_cast<std::size_t>(id)].scalars) {
          domain.free.scalars[state.names.Name(scalar.name)] += scalar.idle + scalar.releasing;
        }
        domain.capacity +=
            count ? CopiesOnNode(state, id, largest, static_cast<int>(tasks.size())) : 0;
      }
      return;
    }
    for (int child : domain.children) {
      visit(child);
      Domain& below = tree.domains[static_cast<std::size_t>(child)];
      AddTo(&tree.domains[static_cast<std::size_t>(index)].free, below.free);
      tree.domains[static_cast<std::size_t>(index)].capacity += count ? below.capacity : 0;
    }
  };
  visit(top);
  return largest.error;
}

double LoadRatio(const FreeAmounts& asked, const FreeAmounts& free) {
  constexpr double kAbsent = 1000;
  double ratio = 0;
  const auto consider = [&](std::int64_t want, std::int64_t have) {
    if (want > 0) {
      ratio = std::max(ratio,
                       have <= 0 ? kAbsent : static_cast<double>(want) / static_cast<double>(have));
    }
  };
  if (asked.fixed[kGpu] > 0) {
    const double have = static_cast<double>(free.fixed[kGpu]);
    ratio = std::max(ratio, have <= 0 && asked.exact ? kAbsent
                            : have == 0              ? std::numeric_limits<double>::infinity()
                                        : static_cast<double>(asked.fixed[kGpu]) / have);
  }
  if (asked.exact) {
    consider(asked.fixed[kCpu], free.fixed[kCpu]);
  } else {
    consider(Cores(asked.fixed[kCpu]), Cores(free.fixed[kCpu]));
  }
  consider(asked.fixed[kMemory], free.fixed[kMemory]);
  for (const auto& [name, amount] : asked.scalars) {
    auto it = free.scalars.find(name);
    consider(amount, it == free.scalars.end() ? 0 : it->second);
  }
  return ratio;
}

bool DomainFits(const std::string& sub_group, const Domain& domain, const FreeAmounts& asked,
                int count, std::vector<JobFailure>* why) {
  if (domain.capacity != kCapacityUnknown) {
    if (domain.capacity >= count) {
      return true;
    }
    if (why != nullptr) {
      const std::string text = "node-group " + domain.id + " can allocate only " +
                               std::to_string(domain.capacity) + " of " + std::to_string(count) +
                               " required pods";
      const std::string sub =
          sub_group.empty() || sub_group == "default" ? "" : "subgroup " + sub_group + ": ";
      why->push_back({"Not enough resources for the workload", text,
                      "<" + domain.id + ">: " + sub + text, kNone, -1});
    }
    return false;
  }
  if (LoadRatio(asked, domain.free) <= 1.0) {
    return true;
  }
  if (why != nullptr) {
    why->push_back(Shortage(sub_group, domain, asked));
  }
  return false;
}

}  // namespace sublet::scheduler
