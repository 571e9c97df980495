// Helpers of the scheduler's tests: small clusters in few words, a digest of a state, random
// histories. Threads: one.
#pragma once

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "scheduler/engine.h"

namespace sublet::scheduler::testing {

constexpr Millis kNow = 1'800'000'000'000;

inline std::string SourceFile(const std::string& path) {
  const char* root = std::getenv("SUBLET_SOURCE_DIR");
  return std::string(root != nullptr ? root : ".") + "/" + path;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Devices of the driver gpu.example.com on one node.
inline DeviceSlice MakeSlice(const std::string& node, const std::vector<std::string>& devices) {
  DeviceSlice slice;
  slice.name = "slice-" + node;
  slice.driver = "gpu.example.com";
  slice.pool = node;
  slice.node = node;
  for (const std::string& device : devices) {
    slice.devices.push_back({device, {}, {}, true});
  }
  return slice;
}
// One request for `count` devices of the class gpu.example.com, in the namespace of MakePod.
inline ClaimSpec MakeClaim(const std::string& name, std::int64_t count, const std::string& queue) {
  ClaimSpec claim;
  claim.ns = "t";
  claim.name = name;
  claim.queue_label = queue;
  claim.requests.push_back({"r", "gpu.example.com", count, false, {}});
  return claim;
}

inline NodeSpec MakeNode(const std::string& name, int gpus, std::int64_t cpu = 64'000) {
  NodeSpec node;
  node.name = name;
  node.cpu = cpu;
  node.memory = INT64_C(256) << 30;
  node.gpus = gpus;
  node.labels = {{"kubernetes.io/hostname", name},
                 {"nvidia.com/gpu.count", std::to_string(gpus)},
                 {"nvidia.com/gpu.memory", "1000"}};
  return node;
}

inline QueueSpec MakeQueue(const std::string& name, const std::string& parent, double gpus) {
  QueueSpec queue;
  queue.name = name;
  queue.parent = parent;
  queue.cpu.quota = queue.memory.quota = kUnlimited;
  queue.gpu.quota = gpus;
  return queue;
}

inline PodGroupSpec MakeGroup(const std::string& name, const std::string& queue, int minimum,
                              int priority = 50) {
  PodGroupSpec group;
  group.ns = "t";
  group.name = name;
  group.uid = name;
  group.queue = queue;
  group.scheduler_name = "kai-scheduler";
  group.priority = priority;
  group.created = kNow - 1000;
  group.root.pod_sets.push_back({"default", minimum, std::nullopt});
  return group;
}

inline PodSpec MakePod(const std::string& group, int index, int gpus,
                       const std::string& node = "") {
  PodSpec pod;
  pod.ns = "t";
  pod.name = group + "-" + std::to_string(index);
  pod.uid = pod.name;
  pod.group = "t/" + group;
  pod.scheduler_name = "kai-scheduler";
  pod.request.cpu = 1000;
  pod.request.memory = INT64_C(1) << 30;
  pod.request.gpu_count = gpus;
  pod.node = node;
  pod.phase = node.empty() ? Phase::kPending : Phase::kRunning;
  pod.created = kNow - 1000;
  return pod;
}

// A pod for kube-scheduler: it has no group.
inline PodSpec MakeKubePod(const std::string& name, const std::string& node = "") {
  PodSpec pod = MakePod(name, 0, 0, node);
  pod.scheduler_name = "default-scheduler";
  pod.group.clear();
  return pod;
}

// One node n1, and the queues a and b with one GPU each.
struct Cluster {
  Engine engine;
  explicit Cluster(Profile profile = *NamedProfile("kai-0.13"), int gpus = 2)
      : engine({std::move(profile)}) {
    engine.Apply(MakeNode("n1", gpus));
    engine.Apply(MakeQueue("root", "", kUnlimited));
    engine.Apply(MakeQueue("a", "root", 1));
    engine.Apply(MakeQueue("b", "root", 1));
  }
  void Add(const PodGroupSpec& group, std::vector<PodSpec> pods) {
    engine.Apply(group);
    for (const PodSpec& pod : pods) {
      engine.Apply(pod);
    }
  }
};

// Everything that decisions depend on, by name, so that two states can be compared.
std::string Digest(const State& state);
std::string DecisionText(const CycleResult& result);

// A random cluster: nodes, a queue tree, groups with pods in all states. `seed` decides everything.
Snapshot RandomCluster(std::uint32_t seed);
// What the API would say next: bound pods run, evicted ones come back as pending.
void PlayOut(Engine& engine, const CycleResult& result);
// "" or what is held twice.
std::string Oversubscribed(const State& state);

}  // namespace sublet::scheduler::testing
