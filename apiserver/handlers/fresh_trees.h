// FreshTrees: the parsed form of what was just written, for readers in this process. A write ends
// with a tree in hand and encodes it; controllers, scheduler and syncer then need a tree of the same
// object for their records. This keeps the writer's tree for the moment in between, so that nobody
// parses what this process has just encoded. A reader that comes too late parses the bytes, as a
// remote one does: nothing depends on a tree being here.
//
// Invariants
//  1. A tree that was handed out is never changed again: readers on several threads share it.
//  2. Bounded in number, in bytes and in time: trees are heavy, and none outlives a pause in writing.
// Threads: any; synchronises itself.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "apiserver/handlers/timer_queue.h"
#include "apiserver/registry/object_codec.h"
#include "base/mutex.h"

namespace sublet::apiserver {

class FreshTrees {
 public:
  // `timers` outlives this, or is stopped before this ends.
  explicit FreshTrees(TimerQueue& timers) : timers_(timers) {}
  ~FreshTrees();
  FreshTrees(const FreshTrees&) = delete;
  FreshTrees& operator=(const FreshTrees&) = delete;

  // A watch of this process that takes trees of `type`; only such types are kept. Pairs with Leave.
  void Join(const StoredType& type);
  void Leave(const StoredType& type);

  // Keeps what was encoded as `facts`, before its write is queued. Drops it when nobody reads `type`;
  // past the bounds the oldest goes.
  void Keep(const StoredType& type, std::shared_ptr<const ObjectFacts> facts, kube::Json tree,
            std::size_t bytes);
  // The tree of a published value, with its resourceVersion; null when it is not here (any more).
  // `value` is the state that was written, not the last one of a deleted object.
  std::shared_ptr<const kube::Json> Find(const storage::Value& value);

  std::size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<const ObjectFacts> facts;  // so that the key below stays this object's
    std::size_t bytes = 0;
  };
  struct Tree {
    std::shared_ptr<kube::Json> tree;
    bool handed_out = false;  // has its resourceVersion
  };
  // Into `dropped`, which the caller destroys without the lock: a tree takes its time.
  void DropOldest(std::vector<Tree>* dropped) SUBLET_REQUIRES(mutex_);
  void Arm() SUBLET_REQUIRES(mutex_);
  void Expire();

  TimerQueue& timers_;
  mutable Mutex mutex_;
  std::map<std::string, int, std::less<>> readers_ SUBLET_GUARDED_BY(mutex_);  // by type's prefix
  std::deque<Entry> order_ SUBLET_GUARDED_BY(mutex_);
  std::unordered_map<const ObjectFacts*, Tree> trees_ SUBLET_GUARDED_BY(mutex_);
  std::size_t bytes_ SUBLET_GUARDED_BY(mutex_) = 0;
  bool closed_ SUBLET_GUARDED_BY(mutex_) = false;
  bool kept_since_timer_ SUBLET_GUARDED_BY(mutex_) = false;
  TimerQueue::Id timer_ SUBLET_GUARDED_BY(mutex_) = 0;
};

}  // namespace sublet::apiserver
