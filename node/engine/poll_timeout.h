// How long poll() may wait until a deadline. Threads: any; pure.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace sublet::node {

// Milliseconds, rounded up; 0 once it has passed, -1 (no end) for Deadline::max().
inline int PollTimeout(Deadline deadline) {
  if (deadline == Deadline::max()) {
    return -1;
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<long long>(left.count(), 0, 1 << 30));
}

}  // namespace sublet::node
