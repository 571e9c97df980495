// Minimum runtime: how long a victim is protected after its start, resolved through the queue tree.
// Source: reference facts on KAI 3.4. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scheduler/model.h"

namespace sublet::scheduler {

struct RuntimeQueue {
  std::string name;
  int parent = -1;
  std::optional<Millis> preempt, reclaim;
};

// Root first. Empty when `queue` is -1.
std::vector<int> QueuePath(const std::vector<RuntimeQueue>& queues, int queue);
// Nearest queue upwards that sets it; -1 for a missing queue gives the default and *error = true.
Millis PreemptMinRuntime(const std::vector<RuntimeQueue>& queues, int victim, Millis fallback,
                         bool* error);
// `by_lca`: what the sibling just under the lowest common ancestor of both says, or its ancestors;
// else like PreemptMinRuntime from the victim's queue.
Millis ReclaimMinRuntime(const std::vector<RuntimeQueue>& queues, int reclaimer, int victim,
                         bool by_lca, Millis fallback, bool* error);

}  // namespace sublet::scheduler
