// One blocking step of a pod worker on a thread of its own. Private to worker.cc and
// worker_steps.cc. Threads: `done` is the worker's, `cancel` anyone's.
#pragma once

#include <thread>

#include "kube/timestamp.h"
#include "node/pod/worker.h"

namespace sublet::node {

struct PodWorker::Job {
  std::thread thread;
  Canceller cancel;
  bool ends_with_pod = false;  // is given up when the pod is told to end
  bool done = false;
};

}  // namespace sublet::node
