// StatusWriter: tells users what a cycle found: PodScheduled=False with the reason, an Event, the
// nominated node of a preemptor, and the amounts in Queue status. Writes only what changed.
// Threads: Report on the scheduler's thread; writes on the thread "scheduler-status".
// Bound: one waiting write per object.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "client/client.h"
#include "client/events.h"
#include "scheduler/engine.h"
#include "scheduler/service/feed.h"

namespace sublet::scheduler {

class StatusWriter {
 public:
  // feed and recorder outlive the writer.
  StatusWriter(client::Client client, const Feed& feed, client::EventRecorder& recorder,
               const Clock& clock);
  ~StatusWriter();

  void Start();
  void Stop();  // idempotent; joins

  // Returns when it must be called again even if nothing happens: amounts that were not written
  // yet.
  MonotonicTime Report(const CycleResult& result, Engine& engine);
  // The queues as of the last Report that wrote their status.
  const std::vector<QueueView>& queues() const { return queues_; }

 private:
  using Write = std::function<void()>;

  void Put(const std::string& key, Write write);
  void Run();
  void PodUnschedulable(const std::string& uid, const std::string& message, bool kube);
  void PodNominated(const Decision& decision);
  void QueueStatus(const QueueView& view);
  void GroupVerdictStatus(const GroupVerdict& verdict, const Engine& engine);
  void GroupPlaced(const std::string& key);
  bool GroupAmounts(const Engine& engine);

  const client::Client client_;
  const Feed& feed_;
  client::EventRecorder& recorder_;
  const Clock& clock_;
  std::map<std::string, std::string> told_;  // pod uid → last message; the scheduler thread's
  std::map<std::string, std::string> queue_told_;  // queue → last status
  MonotonicTime queues_next_{};                    // not before
  std::vector<QueueView> queues_;
  MonotonicTime last_acted_{};  // when a pod was last bound or evicted
  struct GroupTold {
    std::string amounts;    // resourcesStatus as last written
    std::string condition;  // message of the condition that stands; "" = none
  };
  // By number of the job: which group stood there, and its version, when its amounts were looked
  // at.
  std::vector<std::pair<const Job*, std::uint64_t>> amounts_told_;
  std::uint64_t transitions_ = 0;
  std::map<std::string, GroupTold> groups_told_;  // by namespace/name; the scheduler thread's
  Mutex mutex_;
  CondVar wake_;
  std::map<std::string, Write> waiting_ SUBLET_GUARDED_BY(mutex_);
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sublet::scheduler
