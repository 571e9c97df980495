#include "client/work_queue.h"

#include <algorithm>

namespace sublet::client {
namespace {

constexpr std::chrono::milliseconds kRetryFirst{5};
constexpr std::chrono::seconds kRetryMost{1000};

}  // namespace

void WorkQueue::Add(const kube::ObjectKey& key) {
  bool ready = false;
  {
    MutexLock lock(mutex_);
    ready = AddLocked(key);
    NoteIdle();
  }
  if (ready) {
    Signal();
  }
}

void WorkQueue::AddAfter(const kube::ObjectKey& key, std::chrono::nanoseconds delay) {
  bool sooner = false;
  {
    MutexLock lock(mutex_);
    if (closed_) {
      return;
    }
    if (delay.count() <= 0) {
      sooner = AddLocked(key);
    } else {
      const MonotonicTime when =
          clock_.Monotonic() + std::chrono::duration_cast<MonotonicTime::duration>(delay);
      const auto [found, added] = due_by_key_.try_emplace(key, when);
      if (!added) {
        if (found->second <= when) {
          return;
        }
        due_.erase({found->second, key});
        found->second = when;
      }
      const auto put = due_.insert({when, key}).first;
      sooner = put == due_.begin();
    }
    NoteIdle();
  }
  if (sooner) {
    Signal();
  }
}

void WorkQueue::Retry(const kube::ObjectKey& key) {
  std::chrono::nanoseconds delay{};
  {
    MutexLock lock(mutex_);
    const int shift = std::min(failures_[key]++, 20);
    delay = std::min<std::chrono::nanoseconds>(kRetryFirst * (1LL << shift), kRetryMost);
  }
  AddAfter(key, delay);
}

void WorkQueue::Forget(const kube::ObjectKey& key) {
  MutexLock lock(mutex_);
  failures_.erase(key);
}

bool WorkQueue::AddLocked(const kube::ObjectKey& key) {
  if (closed_) {
    return false;
  }
  if (const auto found = due_by_key_.find(key); found != due_by_key_.end()) {
    due_.erase({found->second, key});
    due_by_key_.erase(found);
  }
  if (!waiting_.insert(key).second || processing_.contains(key)) {
    return false;
  }
  ready_.push_back(key);
  return true;
}

void WorkQueue::NoteIdle() {
  idle_.store(ready_.empty() && due_.empty(), std::memory_order_release);
}

void WorkQueue::MoveDue() {
  if (due_.empty()) {
    return;
  }
  const MonotonicTime now = clock_.Monotonic();
  while (!due_.empty() && due_.begin()->first <= now) {
    AddLocked(kube::ObjectKey(due_.begin()->second));
  }
}

std::optional<kube::ObjectKey> WorkQueue::TakeLocked() {
  MoveDue();
  if (ready_.empty() || closed_) {
    NoteIdle();
    return std::nullopt;
  }
  kube::ObjectKey key = std::move(ready_.front());
  ready_.pop_front();
  waiting_.erase(key);
  processing_.insert(key);
  NoteIdle();
  return key;
}

std::optional<kube::ObjectKey> WorkQueue::TryGet() {
  MutexLock lock(mutex_);
  return TakeLocked();
}

std::optional<kube::ObjectKey> WorkQueue::Get(Deadline deadline) {
  MutexLock lock(mutex_);
  for (;;) {
    if (closed_) {
      return std::nullopt;
    }
    if (auto key = TakeLocked()) {
      return key;
    }
    const Deadline until = due_.empty() ? deadline : std::min(deadline, due_.begin()->first);
    if (until == Deadline::max()) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitUntil(mutex_, until) && until == deadline) {
      return TakeLocked();
    }
  }
}

void WorkQueue::Done(const kube::ObjectKey& key) {
  bool again = false;
  {
    MutexLock lock(mutex_);
    processing_.erase(key);
    if (waiting_.contains(key)) {
      ready_.push_back(key);
      NoteIdle();
      again = true;
    }
  }
  if (again) {
    Signal();
  }
}

std::optional<MonotonicTime> WorkQueue::NextDue() const {
  MutexLock lock(mutex_);
  return due_.empty() ? std::nullopt : std::optional(due_.begin()->first);
}

void WorkQueue::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.NotifyAll();
}

std::size_t WorkQueue::size() const {
  MutexLock lock(mutex_);
  return ready_.size() + due_.size();
}

int WorkQueue::failures(const kube::ObjectKey& key) const {
  MutexLock lock(mutex_);
  const auto found = failures_.find(key);
  return found != failures_.end() ? found->second : 0;
}

void WorkQueue::Signal() {
  changed_.NotifyOne();
  if (on_ready_) {
    on_ready_();
  }
}

}  // namespace sublet::client
