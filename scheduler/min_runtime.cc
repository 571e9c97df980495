#include "scheduler/min_runtime.h"

#include <algorithm>

namespace sublet::scheduler {

std::vector<int> QueuePath(const std::vector<RuntimeQueue>& queues, int queue) {
  std::vector<int> path;
  for (int at = queue; at >= 0; at = queues[static_cast<std::size_t>(at)].parent) {
    path.push_back(at);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

Millis PreemptMinRuntime(const std::vector<RuntimeQueue>& queues, int victim, Millis fallback,
                         bool* error) {
  *error = victim < 0;
  for (int at = victim; at >= 0; at = queues[static_cast<std::size_t>(at)].parent) {
    if (queues[static_cast<std::size_t>(at)].preempt.has_value()) {
      return *queues[static_cast<std::size_t>(at)].preempt;
    }
  }
  return fallback;
}

Millis ReclaimMinRuntime(const std::vector<RuntimeQueue>& queues, int reclaimer, int victim,
                         bool by_lca, Millis fallback, bool* error) {
  *error = reclaimer < 0 || victim < 0;
  if (*error) {
    return fallback;
  }
  const std::vector<int> theirs = QueuePath(queues, victim);
  std::size_t from = theirs.size() - 1;
  if (by_lca) {
    const std::vector<int> mine = QueuePath(queues, reclaimer);
    if (mine[0] != theirs[0]) {
      return queues[static_cast<std::size_t>(theirs[0])].reclaim.value_or(fallback);
    }
    from = 0;
    for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()) && mine[i] == theirs[i]; ++i) {
      from = i;
    }
    from += from + 1 < theirs.size() ? 1 : 0;
  }
  for (std::size_t i = from + 1; i-- > 0;) {
    if (queues[static_cast<std::size_t>(theirs[i])].reclaim.has_value()) {
      return *queues[static_cast<std::size_t>(theirs[i])].reclaim;
    }
  }
  return fallback;
}

}  // namespace sublet::scheduler
