// BoundedQueue: a FIFO between threads with a fixed capacity. What happens when it is full is the
// caller's decision, so Push says so instead of waiting.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace sublet {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t items_max) : items_max_(items_max) {}

  // Returns false when the queue is full or closed; the item is then untouched.
  bool Push(T&& item) SUBLET_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_ || items_.size() >= items_max_) {
        return false;
      }
      items_.push_back(std::move(item));
    }
    ready_.NotifyOne();
    return true;
  }

  // Blocks until an item, Close() (then drains first), or the deadline; nullopt for the latter two.
  std::optional<T> Pop(Deadline deadline = Deadline::max()) SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) {
      if (deadline == Deadline::max()) {
        ready_.Wait(mutex_);
      } else if (!ready_.WaitUntil(mutex_, deadline)) {
        break;
      }
    }
    if (items_.empty()) {
      return std::nullopt;
    }
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  void Close() SUBLET_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    ready_.NotifyAll();
  }

  bool closed() const SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return closed_;
  }

  std::size_t size() const SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  const std::size_t items_max_;
  mutable Mutex mutex_;
  CondVar ready_;
  std::deque<T> items_ SUBLET_GUARDED_BY(mutex_);
  bool closed_ SUBLET_GUARDED_BY(mutex_) = false;
};

}  // namespace sublet
