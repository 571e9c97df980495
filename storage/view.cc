#include "storage/view.h"

namespace sublet::storage {

bool View::WaitFor(Revision revision, Deadline deadline) const {
  MutexLock lock(mutex_);
  ++waiting_;
  while (revision_.load(std::memory_order_relaxed) < revision) {
    if (deadline == Deadline::max()) {
      grown_.Wait(mutex_);
    } else if (!grown_.WaitUntil(mutex_, deadline)) {
      break;
    }
  }
  --waiting_;
  return revision_.load(std::memory_order_relaxed) >= revision;
}

void View::Publish(const KeyTree& tree, Revision revision, std::span<const StoredEventPtr> events) {
  KeyTree old;  // dies after the lock is gone: it may be the last owner of many nodes
  bool wake = false;
  {
    MutexLock lock(mutex_);
    old = std::move(tree_);
    tree_ = tree;
    for (const StoredEventPtr& event : events) {
      log_.Append(event);
    }
    revision_.store(revision, std::memory_order_release);
    wake = waiting_ > 0;
  }
  if (wake) {
    grown_.NotifyAll();
  }
}

void View::SetCompacted(Revision revision) {
  MutexLock lock(mutex_);
  compacted_.store(revision, std::memory_order_release);
  log_.TrimTo(revision);
}

}  // namespace sublet::storage
