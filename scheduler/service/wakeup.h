// Wakeup: how the scheduler's thread learns that there is something new. News that comes while it is
// reading what came before is never lost: the mark is taken off before the reading begins, so that
// what the reading misses wakes the next cycle. Threads: Wake any; Take and WaitUntil the reader's.
#pragma once

#include "base/clock.h"
#include "base/mutex.h"

namespace sublet::scheduler {

class Wakeup {
 public:
  void Wake() SUBLET_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      woken_ = true;
    }
    wake_.NotifyAll();
  }
  // Runs `read`, which takes over all that was told of by Wake before this call.
  template <typename F>
  void Take(F read) SUBLET_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      woken_ = false;
    }
    read();
  }
  // True when Wake was called since Take began; false when `until` came first.
  bool WaitUntil(Deadline until) SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!woken_) {
      if (until == Deadline::max()) {
        wake_.Wait(mutex_);
      } else if (!wake_.WaitUntil(mutex_, until)) {
        break;
      }
    }
    return woken_;
  }

 private:
  Mutex mutex_;
  CondVar wake_;
  bool woken_ SUBLET_GUARDED_BY(mutex_) = false;
};

}  // namespace sublet::scheduler
