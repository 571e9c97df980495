// WatchHub: hands every committed change to the subscriptions whose prefix it matches. A
// subscription starts by catching up (events after its revision, from the log in memory or from the
// file) and then turns live: the hub queues events for it as they are published.
//
// Invariants
//  1. A subscription gets each change of its range once, in row order: it turns live under the
//     hub's lock, remembers the last row it saw, and drops what is delivered at or below it.
//  2. The queue of a live subscription is bounded (items_max); past it the subscription is dead
//     with Expired. Publishing never waits for a reader.
//  3. on_ready runs with only its own subscription's notify lock held; ending a subscription takes
//     that lock, so on_ready never runs afterwards.
// Locks, in order: pull (one per subscription) -> hub -> queue (one per subscription); notify
// alone. Threads: Publish from the writer; the rest from any.
#pragma once

#include <atomic>
#include <map>
#include <span>
#include <unordered_map>

#include "base/mutex.h"
#include "storage/entry.h"
#include "storage/view.h"

namespace sublet::storage {

// Kubernetes' answer to a revision that is no longer kept.
Status TooOld(Revision revision, Revision compacted);

// Where a subscription finds changes that are no longer in memory.
class PastEvents {
 public:
  virtual ~PastEvents() = default;
  struct Batch {
    std::vector<StoredEventPtr> events;
    RowId scanned = 0;  // every change up to this row was looked at
  };
  // Changes with `after` < row <= `until` and key prefix, oldest first, at most `max` of them.
  // Errors: Expired (compacted), InternalError (I/O).
  virtual Result<Batch> ReadEvents(std::string_view prefix, RowId after, RowId until,
                                   std::size_t max) const = 0;
};

class WatchHub : public std::enable_shared_from_this<WatchHub> {
 public:
  WatchHub(std::shared_ptr<const View> view, std::shared_ptr<const PastEvents> past)
      : view_(std::move(view)), past_(std::move(past)) {}

  // Errors: Expired (options.after is compacted), ServiceUnavailable (stopped).
  Result<std::unique_ptr<Subscription>> Subscribe(WatchOptions options) SUBLET_EXCLUDES(mutex_);
  // Queues `events`, already visible in the view, and wakes the subscriptions that asked for it.
  void Publish(std::span<const StoredEventPtr> events, Revision revision) SUBLET_EXCLUDES(mutex_);
  // Ends every subscription with ServiceUnavailable. They may outlive the store.
  void Stop() SUBLET_EXCLUDES(mutex_);
  std::size_t size() const SUBLET_EXCLUDES(mutex_);

 private:
  class Live;
  friend class HubSubscription;
  using LivePtr = std::shared_ptr<Live>;
  struct PrefixHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  void Remove(const LivePtr& live) SUBLET_EXCLUDES(mutex_);

  const std::shared_ptr<const View> view_;
  const std::shared_ptr<const PastEvents> past_;
  std::atomic<Revision> published_{0};
  mutable Mutex mutex_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::vector<LivePtr> all_ SUBLET_GUARDED_BY(mutex_);
  // Live subscriptions by prefix, and how many prefixes there are of each length: an event looks up
  // one substring of its key per length instead of comparing with every subscription.
  std::unordered_map<std::string, std::vector<LivePtr>, PrefixHash, std::equal_to<>> by_prefix_
      SUBLET_GUARDED_BY(mutex_);
  std::map<std::size_t, std::size_t> lengths_ SUBLET_GUARDED_BY(mutex_);
  std::vector<LivePtr> to_wake_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::storage
