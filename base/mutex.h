// Mutex, MutexLock and CondVar with clang's thread safety annotations (no-ops under g++). Every
// shared member of a class is tagged SUBLET_GUARDED_BY; the `analyze` preset checks the tags.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SUBLET_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SUBLET_THREAD_ANNOTATION(x)
#endif
#define SUBLET_CAPABILITY(x) SUBLET_THREAD_ANNOTATION(capability(x))
#define SUBLET_SCOPED_CAPABILITY SUBLET_THREAD_ANNOTATION(scoped_lockable)
#define SUBLET_GUARDED_BY(x) SUBLET_THREAD_ANNOTATION(guarded_by(x))
#define SUBLET_REQUIRES(...) SUBLET_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SUBLET_ACQUIRE(...) SUBLET_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SUBLET_RELEASE(...) SUBLET_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define SUBLET_EXCLUDES(...) SUBLET_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define SUBLET_NO_THREAD_SAFETY_ANALYSIS SUBLET_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace sublet {

class SUBLET_CAPABILITY("mutex") Mutex {
 public:
  void Lock() SUBLET_ACQUIRE() { mutex_.lock(); }
  void Unlock() SUBLET_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SUBLET_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SUBLET_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() SUBLET_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits with the mutex held; spurious wake-ups happen, so callers loop on their condition.
class CondVar {
 public:
  void Wait(Mutex& mutex) SUBLET_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false when `deadline` passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      SUBLET_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const auto status = condition_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace sublet
