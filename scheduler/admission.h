// Admission rules of a KAI-like scheduler as pure functions: what KAI's webhooks refuse, plus what
// would make the accounts of the engine wrong. The API server's admission list calls them through
// server/kai_admission.h before anything is stored. Source: reference facts on KAI 1.3 and 2.4.
// Threads: pure, any.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace sublet::scheduler {

// Queue: resources must be there, no negative amounts but -1, a queue is not its own parent.
Result<void> CheckQueue(const kube::Json& queue);
// A queue with children stays. `queues`: all that exist.
Result<void> CheckQueueDelete(const std::string& name, const std::vector<kube::Json>& queues);

// PodGroup: names of sub groups are unique, parents exist, no cycles, minimums where they belong.
// Texts of what is only doubtful are added to `warnings`.
Result<void> CheckPodGroup(const kube::Json& group, const kube::Json* old,
                           std::vector<std::string>* warnings);

// Topology: levels are unique, do not change, and kubernetes.io/hostname is the last.
Result<void> CheckTopology(const kube::Json& topology, const kube::Json* old);

}  // namespace sublet::scheduler
