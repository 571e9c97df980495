// Replay: one history of a cluster (scheduler/history.h) under several profiles, to compare them
// before choosing. A pod that was evicted starts again. Source: DESIGN.md section 4, scheduler.
// Threads: pure, any.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/history.h"

namespace sublet::scheduler {

struct ReplayReport {
  std::string profile;
  std::map<std::string, std::pair<std::string, Millis>>
      places;  // ns/name -> first node, wait; absent: never placed
  std::size_t pods = 0, placed = 0, evictions = 0;
  double wait_mean_s = 0, wait_p50_s = 0, wait_p95_s = 0, wait_max_s = 0;  // of placed pods
  double gpu_utilisation = 0;  // GPU time used / GPU time there was, from first arrival to the end
  double fairness =
      1;  // Jain's index over the queues' GPU time per GPU time asked for; 1 = all alike
  Millis makespan = 0;
};

// Plays `history` under `profile`. Bound: 10 cycles per pod and 1,000 more.
ReplayReport Replay(const History& history, const Profile& profile);

// `sublet scheduler replay FILE --profile A --profile B [-o json]`: the reports side by side, then
// the pods that differ. Returns 0, 1 when the file cannot be read, 2 for bad arguments.
int RunReplayCommand(const std::vector<std::string>& args);

}  // namespace sublet::scheduler
