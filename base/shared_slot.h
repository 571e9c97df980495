// SharedSlot: a pointer that many read and few replace; readers keep what they got. In place of
// std::atomic<std::shared_ptr>, whose load in g++ 12's library gives its lock back without an order
// that the next store could rely on (ThreadSanitizer reports it). Threads: any; synchronises itself.
#pragma once

#include <memory>
#include <utility>

#include "base/mutex.h"

namespace sublet {

template <typename T>
class SharedSlot {
 public:
  explicit SharedSlot(std::shared_ptr<T> value = nullptr) : value_(std::move(value)) {}

  std::shared_ptr<T> Load() const SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return value_;
  }
  void Store(std::shared_ptr<T> value) SUBLET_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      value_.swap(value);
    }
    // What was replaced ends here, without the lock.
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<T> value_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet
