// Amounts of resources: a fixed part (cpu, memory, GPU, pods) that the placement loop reads and a
// short list of named amounts (MIG profiles, extended resources) that few pods have.
// GPU amounts are thousandths of a device, so that quotas add up exactly; KAI rounds shares of a
// device to hundredths, which this unit holds without loss.
// Threads: values, any.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/model.h"

namespace sublet::scheduler {

enum Dim : int { kCpu = 0, kMemory = 1, kGpu = 2, kPods = 3, kDims = 4 };
constexpr int kShareDims = 3;  // cpu, memory, gpu take part in quotas
constexpr std::int64_t kDevice = 1000;

using Fixed = std::array<std::int64_t, kDims>;
using Quota = std::array<std::int64_t, kShareDims>;

inline void Add(Quota& to, const Quota& what, int sign) {
  for (int i = 0; i < kShareDims; ++i) {
    to[i] += sign * what[i];
  }
}

struct Scalar {
  int name = 0;  // index in NameTable
  std::int64_t amount = 0;
  auto operator<=>(const Scalar&) const = default;
};

// Names of scalar resources <-> small numbers. Numbers depend on the order of arrival, so nothing
// may be decided by comparing them.
class NameTable {
 public:
  int Intern(const std::string& name);
  const std::string& Name(int id) const { return names_[static_cast<std::size_t>(id)]; }

 private:
  std::map<std::string, int> ids_;
  std::vector<std::string> names_;
};

// Returns true for "nvidia.com/mig-<g>g.<mem>gb" and sets what one instance counts for; other
// names, also those with a suffix such as +me, are false (KAI does not parse them).
bool ParseMigProfile(const std::string& name, std::int64_t* slices, std::int64_t* memory_gb);

// KAI: GPUs of a request of `count` devices with `portion` of each, rounded to hundredths.
std::int64_t GpuAmount(double portion, std::int64_t count);
// KAI: `memory` of a device of `device` MiB as thousandths, rounded up to hundredths.
std::int64_t MemoryShare(std::int64_t memory, std::int64_t device);

// What is known of a request once and for all; shared by all pods of one template.
struct Shape {
  Request request;
  Constraints constraints;
  std::vector<Scalar> scalars;  // interned
  Fixed tracked{};              // what a node's idle loses; GPU 0 for shared devices
  Quota quota{};                // pending pods: cpu, memory, gpu without gpu-memory requests
  std::int64_t gpus = 0;        // thousandths of whole and fraction requests
  std::int64_t mig_slices = 0;
  std::int64_t mig_memory = 0;
  bool shared = false;  // fraction or memory
  bool best_effort = false;
  bool node_constraints = false;  // selector, affinity or volumes
  bool pod_constraints = false;   // depends on other pods: affinity, anti-affinity, spread, ports
  int id = 0;
};

Shape MakeShape(const Request& request, const Constraints& constraints, NameTable& names);

}  // namespace sublet::scheduler
