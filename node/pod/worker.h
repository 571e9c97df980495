// PodWorker: runs one pod. A thread of its own holds the pod's record, asks Decide what to do, lets
// job threads do it (they block in the engine), and publishes the status. It sleeps until something
// happens: the object changed, a process ended, a probe crossed its threshold, a job finished, or
// the time that Decide named has come.
//
// Invariants:
//  1. The record is touched by the worker's thread only; everything else goes through the inbox.
//  2. At most one job per container, one for the volumes and one for the sandbox run at a time.
//  3. Stop() leaves the containers as they are: a new agent takes them over by their labels.
//
// Threads: "pod-..." (the worker) and "job" (at most 2 + number of containers). The inbox holds at
// most kInboxMax entries; probe reports beyond that are dropped, which delays their effect by one
// period.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "node/pod/actions.h"
#include "node/pod/decide.h"
#include "node/pod/services.h"
#include "node/pod/state.h"

namespace sublet::node {

// What others may look at. Immutable. Threads: any.
struct PodSnapshot {
  std::shared_ptr<const PodPlan> plan;
  PodRecord record;
  std::shared_ptr<const kube::Json> status;  // as published last
};

class PodWorker {
 public:
  // `record` is what was found in the engine (empty for a new pod).
  PodWorker(PodServices& services, std::shared_ptr<const PodPlan> plan, PodRecord record);
  ~PodWorker();
  PodWorker(const PodWorker&) = delete;
  PodWorker& operator=(const PodWorker&) = delete;

  void Start();
  // Leaves the containers alone; joins. Idempotent.
  void Stop();

  void Update(std::shared_ptr<const PodPlan> plan);
  void NoteRemovedFromApi();
  // A ConfigMap or Secret that the pod refers to has changed.
  void NoteObjectsChanged();
  // Ends the pod for a reason of the node (eviction). Later reasons are ignored.
  void GiveVerdict(Failure verdict);

  std::shared_ptr<const PodSnapshot> Snapshot() const SUBLET_EXCLUDES(mutex_);
  bool done() const { return done_.load(); }

 private:
  struct Inbox;
  struct Job;

  void Run();
  void Post(std::function<void()> task);
  void Wake();
  void Recover();
  void Act();
  void Carry(const Action& action);
  void PublishSnapshot(bool status_too);
  std::optional<MonotonicTime> NextWake(std::optional<MonotonicTime> decided) const;
  void CheckTimers();

  void SetUpVolumes(bool is_refresh);
  void StartSandbox();
  void StopSandbox();
  void StartOne(const ContainerPlan& container);
  void StopOne(const Action& action);
  void TearDown();
  void ApplyStart(const std::string& name, const StartResult& result, bool is_final);
  void NoteRunning(const std::string& name);
  void NoteEnded(const std::string& container_id, bool out_of_memory);
  void NoteProbe(const ProbeReport& report);
  void UpdateResources(const PodPlan& before, const PodPlan& after);
  void WatchRun(const std::string& container_id, int pid);
  void Emit(const std::string& container, bool warning, const std::string& reason,
            const std::string& message);

  // Runs `work` on a thread of its own, then what it returns on the worker's thread.
  Job& RunJob(std::function<std::function<void()>(Job&)> work);
  void ReapJobs(bool all);

  PodServices& services_;
  const std::shared_ptr<Inbox> inbox_;
  std::thread thread_;
  std::atomic<bool> done_{false};

  // The worker's thread only.
  std::shared_ptr<const PodPlan> plan_;
  PodRecord record_;
  kube::Json* status_;  // owned; behind a pointer to keep the full JSON header out of this one
  bool was_terminating_ = false;
  bool gone_ = false;
  bool volumes_dirty_ = false;
  std::chrono::milliseconds volumes_backoff_{0};
  seconds sandbox_backoff_{0};
  std::optional<WallTime> token_renew_at_;
  std::optional<MonotonicTime> decided_at_;
  std::map<std::string, MonotonicTime> image_backoff_notes_;  // ErrImagePull -> ImagePullBackOff
  std::map<std::string, bool> pending_ends_;  // container id -> OOM seen; the engine was away
  MonotonicTime pending_ends_at_{};
  std::list<std::unique_ptr<Job>> jobs_;
  std::map<std::string, std::shared_ptr<StopControl>> stops_;  // by container name

  mutable Mutex mutex_;
  std::shared_ptr<const PodSnapshot> snapshot_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::node
