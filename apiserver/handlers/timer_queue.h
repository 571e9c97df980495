// TimerQueue: one thread that calls wake-ups at given moments (bookmarks and ends of watches).
// Threads: all methods from any thread. Callbacks run on the thread "api-timer" with no lock held
// but the entry's own guarantee: after Cancel returned, the callback does not run and is not
// running.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace sublet::apiserver {

class TimerQueue {
 public:
  using Id = std::uint64_t;  // 0 = none

  TimerQueue();
  ~TimerQueue();
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  // Calls `callback` once at `when` or soon after (up to 250 ms late, so that many timers share one
  // wake-up). The callback must be short. Bound: one entry per watch, so the limit on connections
  // bounds it.
  Id Add(MonotonicTime when, std::function<void()> callback) SUBLET_EXCLUDES(mutex_);
  // Waits while the callback of `id` runs, unless called from that callback.
  void Cancel(Id id) SUBLET_EXCLUDES(mutex_);
  // Ends the thread; waiting callbacks are dropped. Idempotent.
  void Stop() SUBLET_EXCLUDES(mutex_);

 private:
  void Run() SUBLET_EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  CondVar done_;
  std::map<std::pair<MonotonicTime, Id>, std::function<void()>> entries_ SUBLET_GUARDED_BY(mutex_);
  std::map<Id, MonotonicTime> times_ SUBLET_GUARDED_BY(mutex_);
  Id next_ SUBLET_GUARDED_BY(mutex_) = 1;
  Id running_ SUBLET_GUARDED_BY(mutex_) = 0;
  MonotonicTime sleeping_until_ SUBLET_GUARDED_BY(mutex_) = MonotonicTime::max();
  bool stopping_ SUBLET_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sublet::apiserver
