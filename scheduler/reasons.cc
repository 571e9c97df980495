// Why amounts do not fit on a node (scheduler/filters.h).
#include <algorithm>

#include "scheduler/filters.h"

namespace sublet::scheduler {

std::vector<std::string> ResourceReasons(const Session& session, const Task& task, NodeId id) {
  const State& state = session.state;
  const Node& node = state.nodes[static_cast<std::size_t>(id)];
  const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
  const Shape& shape = *task.shape;
  const bool kube = session.profile.kube;
  // What was promised to others is not free either.
  const auto free = [&](int dim) {
    return std::min(hot.idle[dim], hot.idle[dim] + hot.releasing[dim]);
  };
  std::vector<std::string> reasons;
  const auto lacks = [&](const char* kai, const std::string& name) {
    reasons.push_back(kube ? "Insufficient " + name
                           : std::string("node(s) didn't have enough resources: ") + kai);
  };
  if (!shape.shared && shape.tracked[kGpu] + state.Dra(task) > free(kGpu)) {
    lacks("GPUs", "nvidia.com/gpu");
  } else if (shape.request.gpu == GpuKind::kMemory &&
             shape.request.gpu_memory_mib > node.gpu_memory) {
    lacks("GPU memory", "nvidia.com/gpu.memory");
  } else if (shape.shared) {
    std::int64_t devices = std::max<std::int64_t>(free(kGpu), 0) / kDevice;
    for (const GpuGroup& group : node.groups) {
      devices += FitsGroup(node, shape, group) ? 1 : 0;
    }
    if (devices < shape.request.gpu_count) {
      lacks("GPUs", "nvidia.com/gpu");
    }
  }
  if (shape.tracked[kCpu] > free(kCpu)) {
    lacks("CPU cores", "cpu");
  }
  if (shape.tracked[kMemory] > free(kMemory)) {
    lacks("memory", "memory");
  }
  if (shape.tracked[kPods] > free(kPods)) {
    reasons.push_back(kube ? "Too many pods" : "node(s) pod number exceeded");
  }
  for (const Scalar& scalar : shape.scalars) {
    const NodeScalar* have = node.FindScalar(scalar.name);
    const std::string& name = state.names.Name(scalar.name);
    if (have != nullptr && scalar.amount <= std::min(have->idle, have->idle + have->releasing)) {
      continue;
    }
    if (!kube && name.compare(0, 15, "nvidia.com/mig-") == 0) {
      reasons.push_back("node(s) didn't have enough of mig profile: " + name);
    } else {
      lacks(name.c_str(), name);
    }
  }
  return reasons;
}

}  // namespace sublet::scheduler
