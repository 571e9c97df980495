// SchedulerService: the engine inside a control plane. Reads through informers, decides on one
// thread, binds through pods/binding after slices are granted, writes conditions, Events and queue
// status. Level based: after a restart everything is read again, and nothing is bound twice because
// a bound pod says so itself. Threads: "scheduler" owns the engine; the informers' thread converts;
// "bind-N" writes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/events.h"
#include "client/manager.h"
#include "scheduler/engine.h"
#include "scheduler/service/binder.h"
#include "scheduler/service/feed.h"
#include "scheduler/service/metrics.h"
#include "scheduler/service/pod_grouper.h"
#include "scheduler/service/slices.h"
#include "scheduler/service/status_writer.h"
#include "scheduler/service/wakeup.h"
#include "scheduler/usage.h"

namespace sublet::scheduler {

struct SchedulerServiceOptions {
  std::vector<Profile> profiles;      // their scheduler names are disjoint
  client::Client client;              // as system:kube-scheduler
  bool kai = true;                    // KAI's kinds are served
  bool gpu_nodes = false;             // GpuNode is served
  bool storage_classes_known = true;  // FeedOptions
  // Set when nodes grant slices. Where and as whom they are asked for.
  std::optional<SliceBrokerOptions> slices;
  bool enforce = true;
};

class SchedulerService {
 public:
  SchedulerService(SchedulerServiceOptions options, const Clock& clock);
  ~SchedulerService();

  void Start();
  void Stop();  // idempotent; joins

  // Answers from the engine's state, on the scheduler's thread; block for at most one cycle.
  // Errors: NotFound (no such pod), ServiceUnavailable (stopped).
  Result<kube::Json> Explain(const std::string& ns, const std::string& name);
  Result<kube::Json> Queues();
  // What would come of `objects` (scheduler/service/what_if.h), on a copy: nothing is written.
  Result<kube::Json> WhatIf(const std::vector<kube::Json>& objects);
  // KAI's metrics as of the last cycle (scheduler/service/metrics.h).
  void AppendMetrics(std::string& out) const { metrics_.Append(out); }

 private:
  using Question = std::function<void(Engine&)>;

  void Run();
  void Cycle();
  // Counts what queues held; tells the engine and keeps it in a ConfigMap once a minute. Returns
  // when it must be called again; never when no profile asks for a history.
  Deadline KeepUsage(Millis now);
  void ReadUsage();
  // Runs `question` between two cycles. False: stopped.
  bool Ask(Question question);
  Millis NowMillis() const;
  std::int64_t MicrosSince(MonotonicTime begun) const;

  const SchedulerServiceOptions options_;
  const Clock& clock_;
  Engine engine_;  // the scheduler thread's
  client::EventRecorder recorder_;
  client::InformerFactory informers_;
  client::Manager manager_;
  std::unique_ptr<SliceBroker> broker_;
  std::unique_ptr<Feed> feed_;
  std::unique_ptr<Binder> binder_;
  std::unique_ptr<PodGrouper> grouper_;
  std::unique_ptr<StatusWriter> status_;

  // The scheduler thread's; unset when no profile counts past use.
  std::optional<UsageHistory> usage_;
  Millis usage_counted_ = 0, usage_told_ = 0, usage_told_every_ = 0;  // KAI's fetchInterval

  SchedulerMetrics metrics_;
  Wakeup wakeup_;  // for all that the members below and the feed take in
  Mutex mutex_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::vector<BindResult> results_ SUBLET_GUARDED_BY(mutex_);
  std::vector<Question> questions_ SUBLET_GUARDED_BY(mutex_);  // at most kQuestionsMax
  std::thread thread_;
};

}  // namespace sublet::scheduler
