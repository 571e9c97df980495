// StatusManager: sends pod statuses to the API server and removes pods that have ended. The newest
// status of a pod replaces one that still waits; a removal follows the last status of its pod.
// Bounds: one entry per pod; a failed write is tried again after 0.2 s doubling to 30 s, for ever,
// since the status is the agent's only word about the pod.
// Source: kubelet status_manager.go. Threads: "status-N"; Put and Finalize from any.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "client/client.h"
#include "node/pod/plan.h"

namespace sublet::node {

class StatusManager {
 public:
  StatusManager(client::Client client, int threads) : client_(std::move(client)), count_(threads) {}
  ~StatusManager() { Stop(); }
  StatusManager(const StatusManager&) = delete;
  StatusManager& operator=(const StatusManager&) = delete;

  void Start();
  void Stop();  // idempotent; joins; what waits is dropped (a new agent derives it again)

  void Put(std::shared_ptr<const PodPlan> plan, kube::Json status) SUBLET_EXCLUDES(mutex_);
  void Finalize(std::shared_ptr<const PodPlan> plan) SUBLET_EXCLUDES(mutex_);
  std::size_t waiting() const SUBLET_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<const PodPlan> plan;
    std::shared_ptr<const kube::Json> status;  // nullptr = none to send
    bool finalize = false;
    bool is_busy = false;
    MonotonicTime not_before{};
    std::chrono::milliseconds backoff{0};
  };
  void Run();
  // The work of one entry. Errors: those worth another try.
  Result<void> Send(const PodPlan& plan, const kube::Json* status, bool finalize);

  const client::Client client_;
  const int count_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::map<std::string, Entry> entries_ SUBLET_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace sublet::node
