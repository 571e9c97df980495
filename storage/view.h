// View: what readers see: the key index, the revision it is true at, and the recent changes that
// lead to it. Replaced by the writer in one step per group of commits, so that a reader never sees
// an index without the changes that made it.
// Threads: Publish and the setters from the writer; everything else from any. No call under the
// lock.
#pragma once

#include <atomic>
#include <span>

#include "base/clock.h"
#include "base/mutex.h"
#include "storage/event_log.h"
#include "storage/key_tree.h"

namespace sublet::storage {

class View {
 public:
  struct Snapshot {
    KeyTree tree;
    Revision revision = 0;
  };
  struct SnapshotWithLog {
    KeyTree tree;
    Revision revision = 0;
    EventLog::Window log;
  };

  View(KeyTree tree, Revision revision, Revision compacted, Revision history_compacted,
       EventLog::Limits limits)
      : tree_(std::move(tree)),
        log_(revision, limits),
        revision_(revision),
        compacted_(compacted),
        history_compacted_(history_compacted) {}

  Snapshot Current() const SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return {tree_, revision_.load(std::memory_order_relaxed)};
  }
  // The log part holds the changes with row > `after`.
  SnapshotWithLog CurrentWithLog(RowId after) const SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return {tree_, revision_.load(std::memory_order_relaxed), log_.Look(after)};
  }
  Revision revision() const { return revision_.load(std::memory_order_acquire); }
  Revision compacted() const { return compacted_.load(std::memory_order_acquire); }
  Revision history_compacted() const { return history_compacted_.load(std::memory_order_acquire); }
  std::size_t log_bytes() const SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return log_.bytes();
  }
  // Waits until revision() >= `revision`. False at the deadline.
  bool WaitFor(Revision revision, Deadline deadline) const SUBLET_EXCLUDES(mutex_);

  void Publish(const KeyTree& tree, Revision revision, std::span<const StoredEventPtr> events)
      SUBLET_EXCLUDES(mutex_);
  // From now on reads at or below `revision` answer Expired. Called before anything they would need
  // is deleted from the file.
  void SetCompacted(Revision revision) SUBLET_EXCLUDES(mutex_);
  void SetHistoryCompacted(Revision revision) {
    history_compacted_.store(revision, std::memory_order_release);
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar grown_;
  mutable int waiting_ SUBLET_GUARDED_BY(mutex_) = 0;
  KeyTree tree_ SUBLET_GUARDED_BY(mutex_);
  EventLog log_ SUBLET_GUARDED_BY(mutex_);
  std::atomic<Revision> revision_;  // written under mutex_
  std::atomic<Revision> compacted_;
  std::atomic<Revision> history_compacted_;
};

}  // namespace sublet::storage
