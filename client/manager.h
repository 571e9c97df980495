// Manager: runs reconcilers on a small pool of threads ("reconcile-N") that serves all their queues
// in turn, so that thirty idle controllers cost no thirty threads. Start: informers and threads; a
// controller gets its first key when its own informers have synced, so that a kind the server
// refuses holds up only who needs it. Stop: no key is handed out any more, the informers stop, each
// worker finishes its key.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/informer.h"
#include "client/reconciler.h"
#include "client/work_queue.h"

namespace sublet::client {

struct ControllerOptions {
  std::string name;  // "replicaset", for logs
  Reconcile reconcile;
  int workers_max = 1;  // keys of this controller worked on at once
  // No key is handed out before these have their first state. A reconciler that acted on a cache
  // that is still empty would make everything a second time.
  std::vector<const Informer*> needs;
};

class Manager {
 public:
  Manager(InformerFactory& informers, const Clock& clock, int threads = 4);
  ~Manager();

  // Registers a controller and returns its queue, to which its informer handlers add keys.
  // Before Start. Lifetime of the queue: the manager's.
  WorkQueue& Add(ControllerOptions options);

  // Starts the informers and the threads; returns at once.
  void Start();
  void Stop();  // idempotent; joins

  // For tests without threads: works on due keys of every queue until none is due or `steps_max`
  // keys were worked on; returns how many. Not after Start.
  int RunUntilIdle(int steps_max = 10000);

 private:
  struct Controller;
  void Run();
  // The next (controller, key) in turn; nullopt when nothing is due.
  std::optional<std::pair<Controller*, kube::ObjectKey>> Pick() SUBLET_REQUIRES(mutex_);
  void Work(Controller& controller, const kube::ObjectKey& key);

  InformerFactory& informers_;
  const Clock& clock_;
  const int threads_;
  std::vector<std::unique_ptr<Controller>> controllers_;  // constant after Start

  Mutex mutex_;
  CondVar wake_;
  bool started_ SUBLET_GUARDED_BY(mutex_) = false;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::size_t turn_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> pool_;
};

}  // namespace sublet::client
