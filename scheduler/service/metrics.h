// SchedulerMetrics: what the scheduler did, under KAI's names (pkg/scheduler/metrics/metrics.go and
// the queue controller's), so that dashboards made for KAI show it; what KAI does not have is called
// sublet_scheduler_*. Differs: the search is bounded in steps, not in seconds, so KAI's
// scenario_search_*_budget_configured_seconds are not served; plugins are no objects here, and only
// the fair shares (KAI's plugin proportion) take time when a cycle opens. Threads: any; counted on
// the scheduler's thread and the binder's, read by whoever scrapes.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "scheduler/engine.h"

namespace sublet::scheduler {

class SchedulerMetrics {
 public:
  // A cycle that took `micros`. `engine` has just run it: the groups of what it evicted are read
  // there.
  void Cycle(const CycleResult& cycle, std::int64_t micros, Millis now, const Engine& engine);
  void Bound(std::int64_t micros);      // one pod's binding, slices and claims apart
  void UsageRead(std::int64_t micros);  // the usage history, from where it is kept
  void Queues(std::vector<QueueView> queues);
  void Usage(std::map<std::string, std::array<double, 3>> shares);
  void Append(std::string& out) const;

  static constexpr std::size_t kGroupsMax = 2048;  // of evicted pods; the rest is "other"

 private:
  // KAI's buckets: 5 ms doubled nine times.
  struct Histogram {
    std::array<std::int64_t, 11> counts{};
    double sum = 0;
    void Observe(double milliseconds);
  };
  struct PerAction {
    ActionStats last, all;
  };
  void AppendLatencies(std::string& out) const SUBLET_REQUIRES(mutex_);
  void AppendActions(std::string& out) const SUBLET_REQUIRES(mutex_);
  void AppendQueues(std::string& out) const SUBLET_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::int64_t cycles_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::int64_t micros_ SUBLET_GUARDED_BY(mutex_) = 0, micros_last_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::int64_t open_last_ SUBLET_GUARDED_BY(mutex_) = 0, close_last_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::int64_t shares_last_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::int64_t bound_ SUBLET_GUARDED_BY(mutex_) = 0, refused_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::array<PerAction, kActions> actions_ SUBLET_GUARDED_BY(mutex_);
  std::map<std::string, std::int64_t> evicted_ SUBLET_GUARDED_BY(mutex_);  // by label text
  Histogram scheduled_in_ SUBLET_GUARDED_BY(mutex_), bound_in_ SUBLET_GUARDED_BY(mutex_),
      usage_read_in_ SUBLET_GUARDED_BY(mutex_);
  std::vector<QueueView> queues_ SUBLET_GUARDED_BY(mutex_);
  std::map<std::string, std::array<double, 3>> usage_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::scheduler
