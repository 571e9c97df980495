// WorkQueue: the keys that wait for a reconciler. One type for all controllers, the syncer and the
// scheduler's binder.
// Invariants:
//  1. A key is handed out once at a time: added again while it is worked on, it comes back after
//     Done. Adding a waiting key changes nothing, so the queue is bounded by the number of keys.
//  2. AddAfter keeps the earliest time asked for; Add makes a delayed key due at once.
//  3. Retry delays a key by 5 ms doubling to 1000 s (as client-go); Forget resets that.
// Threads: any. Time is the injected clock; blocking Get waits in real time until the next delayed
// key, so a test with a FakeClock uses TryGet.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/mutex.h"
#include "kube/names.h"

namespace sublet::client {

class WorkQueue {
 public:
  explicit WorkQueue(const Clock& clock) : clock_(clock) {}
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Add(const kube::ObjectKey& key);
  void AddAfter(const kube::ObjectKey& key, std::chrono::nanoseconds delay);
  // The next try of a key that failed.
  void Retry(const kube::ObjectKey& key);
  void Forget(const kube::ObjectKey& key);

  // The next key; Done must follow. nullopt: nothing is due (TryGet), closed or deadline (Get).
  std::optional<kube::ObjectKey> TryGet();
  std::optional<kube::ObjectKey> Get(Deadline deadline = Deadline::max());
  void Done(const kube::ObjectKey& key);

  // When the next delayed key is due (by the clock's Monotonic), if there is one.
  std::optional<MonotonicTime> NextDue() const;
  // Called without a lock whenever a key became ready or a nearer delay was set; set once, before
  // use.
  void OnReady(std::function<void()> callback) { on_ready_ = std::move(callback); }

  // Whether nothing is ready and nothing delayed; without a lock, so that one who looks after many
  // queues passes by those without work. Exact for who comes because of OnReady.
  bool idle() const { return idle_.load(std::memory_order_acquire); }

  void Close();              // Get returns nullopt from now on; Add does nothing
  std::size_t size() const;  // waiting and ready, without those being worked on
  int failures(const kube::ObjectKey& key) const;

 private:
  void MoveDue() SUBLET_REQUIRES(mutex_);
  // True when `key` became ready by it.
  bool AddLocked(const kube::ObjectKey& key) SUBLET_REQUIRES(mutex_);
  void NoteIdle() SUBLET_REQUIRES(mutex_);  // after each change of ready_ or due_
  std::optional<kube::ObjectKey> TakeLocked() SUBLET_REQUIRES(mutex_);
  void Signal();

  const Clock& clock_;
  std::function<void()> on_ready_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::atomic<bool> idle_{true};
  bool closed_ SUBLET_GUARDED_BY(mutex_) = false;
  std::deque<kube::ObjectKey> ready_ SUBLET_GUARDED_BY(mutex_);
  std::set<kube::ObjectKey> waiting_
      SUBLET_GUARDED_BY(mutex_);  // in ready_, or dirty while worked on
  std::set<kube::ObjectKey> processing_ SUBLET_GUARDED_BY(mutex_);
  std::map<kube::ObjectKey, MonotonicTime> due_by_key_ SUBLET_GUARDED_BY(mutex_);
  std::set<std::pair<MonotonicTime, kube::ObjectKey>> due_ SUBLET_GUARDED_BY(mutex_);
  std::map<kube::ObjectKey, int> failures_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::client
