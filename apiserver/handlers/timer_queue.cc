#include "apiserver/handlers/timer_queue.h"

#include <pthread.h>

namespace sublet::apiserver {
namespace {
// Entries due within one slot run together.
constexpr auto kSlot = std::chrono::milliseconds(250);

MonotonicTime RoundUp(MonotonicTime when) {
  const auto slots = (when.time_since_epoch() + kSlot - std::chrono::nanoseconds(1)) / kSlot;
  return MonotonicTime(slots * kSlot);
}
}  // namespace

TimerQueue::TimerQueue() : thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "api-timer");
}

TimerQueue::~TimerQueue() { Stop(); }

TimerQueue::Id TimerQueue::Add(MonotonicTime when, std::function<void()> callback) {
  when = RoundUp(when);
  bool wake = false;
  Id id = 0;
  {
    MutexLock lock(mutex_);
    if (stopping_) {
      return 0;
    }
    id = next_++;
    entries_.emplace(std::pair(when, id), std::move(callback));
    times_.emplace(id, when);
    wake = when < sleeping_until_;
  }
  if (wake) {
    changed_.NotifyOne();
  }
  return id;
}

void TimerQueue::Cancel(Id id) {
  if (id == 0) {
    return;
  }
  MutexLock lock(mutex_);
  if (const auto it = times_.find(id); it != times_.end()) {
    entries_.erase({it->second, id});
    times_.erase(it);
    return;
  }
  while (running_ == id && std::this_thread::get_id() != thread_.get_id()) {
    done_.Wait(mutex_);
  }
}

void TimerQueue::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    entries_.clear();
    times_.clear();
  }
  changed_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void TimerQueue::Run() {
  while (true) {
    std::function<void()> callback;
    {
      MutexLock lock(mutex_);
      running_ = 0;
      done_.NotifyAll();
      while (!stopping_) {
        const auto now = std::chrono::steady_clock::now();
        if (!entries_.empty() && entries_.begin()->first.first <= now) {
          break;
        }
        sleeping_until_ = entries_.empty() ? MonotonicTime::max() : entries_.begin()->first.first;
        if (entries_.empty()) {
          changed_.Wait(mutex_);
        } else {
          changed_.WaitUntil(mutex_, sleeping_until_);
        }
      }
      if (stopping_) {
        return;
      }
      const auto first = entries_.begin();
      running_ = first->first.second;
      callback = std::move(first->second);
      times_.erase(running_);
      entries_.erase(first);
    }
    callback();
  }
}

}  // namespace sublet::apiserver
