// The history of a cluster, as the replay (scheduler/replay.h) plays it: what `kubectl get
// nodes,pods,queues,podgroups,topologies,priorityclasses -A -o json` shows, or watch events
// ({"type": ..., "object": ...}, `kubectl get --watch --output-watch-events -o json`). Every pod
// arrives when it was created and, where the history tells how long it ran, ends that long after
// it was placed. Threads: pure, any.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "scheduler/engine.h"

namespace sublet::scheduler {

struct HistoryPod {
  PodSpec spec;  // as it arrives: pending
  Millis arrives = 0;
  Millis runs = -1;  // -1 = for ever
};

struct History {
  Snapshot base;                 // everything but pods and groups that come with pods
  std::vector<HistoryPod> pods;  // by arrival, then name
  Millis begin = 0;
};

// Reads a history. At most 200,000 pods.
// Errors: BadRequest (no JSON, no objects of a cluster, no pods), RequestEntityTooLarge.
Result<History> ReadHistory(const std::string& text);

}  // namespace sublet::scheduler
