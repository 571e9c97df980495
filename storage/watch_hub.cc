#include "storage/watch_hub.h"

#include <algorithm>
#include <deque>

namespace sublet::storage {
namespace {

// Changes looked at in memory per step of catching up, so that one Pull stays short.
constexpr std::size_t kLogScanMax = 8192;

Status StoppedStatus() { return ServiceUnavailable("the store is stopping"); }

}  // namespace

// The part of a subscription that the hub touches.
class WatchHub::Live {
 public:
  Live(std::string prefix, std::size_t items_max, std::function<void()> on_ready)
      : prefix_(std::move(prefix)), items_max_(items_max), on_ready_(std::move(on_ready)) {}

  const std::string& prefix() const { return prefix_; }

  // Returns true when the reader must be woken.
  bool Push(const StoredEventPtr& event) {
    MutexLock lock(queue_mutex_);
    if (event->row <= after_ || failed_) {
      return false;
    }
    if (queue_.size() >= items_max_) {
      return FailLocked(Expired("the watch fell behind: more than " + std::to_string(items_max_) +
                                " events were waiting to be read"));
    }
    queue_.push_back(event);
    return std::exchange(armed_, false);
  }

  bool Fail(Status status) {
    MutexLock lock(queue_mutex_);
    return FailLocked(std::move(status));
  }

  Result<std::size_t> Take(std::vector<EventPtr>& out, std::size_t max) {
    MutexLock lock(queue_mutex_);
    if (failed_) {
      return *failed_;
    }
    const std::size_t moved = std::min(max, queue_.size());
    for (std::size_t i = 0; i < moved; ++i) {
      out.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    armed_ = moved == 0;
    return moved;
  }

  // The highest revision whose events are all taken, given that `published` were handed out.
  Revision Progress(Revision published) const {
    MutexLock lock(queue_mutex_);
    if (!queue_.empty()) {
      return queue_.front()->revision - 1;
    }
    return failed_ ? 0 : std::max(published, RevisionOf(after_));
  }

  void SetAfter(RowId row) {
    MutexLock lock(queue_mutex_);
    after_ = row;
  }

  void Notify() {
    MutexLock lock(notify_mutex_);
    if (on_ready_) {
      on_ready_();
    }
  }
  void EndNotify() {
    MutexLock lock(notify_mutex_);
    on_ready_ = nullptr;
  }

 private:
  bool FailLocked(Status status) SUBLET_REQUIRES(queue_mutex_) {
    if (failed_) {
      return false;
    }
    failed_ = std::move(status);
    queue_.clear();
    return std::exchange(armed_, false);
  }

  const std::string prefix_;
  const std::size_t items_max_;
  mutable Mutex queue_mutex_;
  std::deque<StoredEventPtr> queue_ SUBLET_GUARDED_BY(queue_mutex_);
  std::optional<Status> failed_ SUBLET_GUARDED_BY(queue_mutex_);
  RowId after_ SUBLET_GUARDED_BY(queue_mutex_) = 0;
  // True until the first Pull too: who waits before pulling must be woken as well.
  bool armed_ SUBLET_GUARDED_BY(queue_mutex_) = true;
  Mutex notify_mutex_;
  std::function<void()> on_ready_ SUBLET_GUARDED_BY(notify_mutex_);
};

// What the caller of Watch holds.
class HubSubscription final : public Subscription {
 public:
  HubSubscription(std::shared_ptr<WatchHub> hub, WatchHub::LivePtr live, RowId after)
      : hub_(std::move(hub)), live_(std::move(live)), after_(after) {}
  ~HubSubscription() override { hub_->Remove(live_); }

  Result<std::size_t> Pull(std::vector<EventPtr>& out, std::size_t max) override {
    MutexLock lock(pull_mutex_);
    while (!is_live_) {
      SUBLET_TRY(const std::size_t moved, CatchUp(out, max));
      if (moved > 0) {
        return moved;
      }
    }
    return live_->Take(out, max);
  }

  Revision Progress() const override {
    const Revision published = hub_->published_.load(std::memory_order_acquire);
    MutexLock lock(pull_mutex_);
    if (!is_live_) {
      return Done();
    }
    return live_->Progress(published);
  }

 private:
  // One step towards live. Returns the number of events appended; 0: look again at is_live_.
  Result<std::size_t> CatchUp(std::vector<EventPtr>& out, std::size_t max)
      SUBLET_REQUIRES(pull_mutex_) {
    {
      MutexLock hub_lock(hub_->mutex_);
      if (hub_->stopped_) {
        return StoppedStatus();
      }
      const auto now = hub_->view_->CurrentWithLog(after_);
      // A future `after` waits live: nothing to catch up with.
      if (Done() >= now.revision) {
        GoLive(after_);
        return std::size_t{0};
      }
      SUBLET_RETURN_IF_ERROR(CheckHorizon());
      if (now.log.floor() <= Done()) {
        return FromLog(now, out, max);
      }
    }
    return FromFile(out, max);
  }

  Result<void> CheckHorizon() const SUBLET_REQUIRES(pull_mutex_) {
    if (Done() <= hub_->view_->compacted()) {
      return TooOld(Done(), hub_->view_->compacted());
    }
    return {};
  }

  // The highest revision that is wholly behind us: the last row may be one of several of its own.
  Revision Done() const SUBLET_REQUIRES(pull_mutex_) {
    return after_ == LastRow(RevisionOf(after_)) ? RevisionOf(after_) : RevisionOf(after_) - 1;
  }

  std::size_t FromLog(const View::SnapshotWithLog& now, std::vector<EventPtr>& out, std::size_t max)
      SUBLET_REQUIRES(pull_mutex_, hub_->mutex_) {
    std::size_t moved = 0;
    std::size_t scanned = 0;
    bool end = true;
    // The lock analysis does not look into lambdas, so this one touches a local copy.
    RowId after = after_;
    now.log.ForEachAfter(after_, [&](const StoredEventPtr& event) {
      if (moved == max || scanned == kLogScanMax) {
        end = false;
        return false;
      }
      ++scanned;
      after = event->row;
      if (event->key.starts_with(live_->prefix())) {
        out.push_back(event);
        ++moved;
      }
      return true;
    });
    after_ = after;
    if (end) {
      GoLive(LastRow(now.revision));
    }
    return moved;
  }

  Result<std::size_t> FromFile(std::vector<EventPtr>& out, std::size_t max)
      SUBLET_REQUIRES(pull_mutex_) {
    const RowId until = LastRow(hub_->view_->revision());
    SUBLET_TRY(PastEvents::Batch batch,
               hub_->past_->ReadEvents(live_->prefix(), after_, until, max));
    after_ = batch.scanned;
    out.insert(out.end(), batch.events.begin(), batch.events.end());
    return batch.events.size();
  }

  void GoLive(RowId after) SUBLET_REQUIRES(pull_mutex_, hub_->mutex_) {
    live_->SetAfter(after);
    hub_->by_prefix_[live_->prefix()].push_back(live_);
    ++hub_->lengths_[live_->prefix().size()];
    is_live_ = true;
  }

  const std::shared_ptr<WatchHub> hub_;
  const WatchHub::LivePtr live_;
  mutable Mutex pull_mutex_;
  RowId after_ SUBLET_GUARDED_BY(pull_mutex_);
  bool is_live_ SUBLET_GUARDED_BY(pull_mutex_) = false;
};

Status TooOld(Revision revision, Revision compacted) {
  return Expired("too old resource version: " + std::to_string(revision) + " (" +
                 std::to_string(compacted + 1) + ")");
}

Result<std::unique_ptr<Subscription>> WatchHub::Subscribe(WatchOptions options) {
  const Revision after = options.after == 0 ? view_->revision() : options.after;
  if (after <= view_->compacted()) {
    return TooOld(after, view_->compacted());
  }
  auto live = std::make_shared<Live>(std::move(options.prefix), options.items_max,
                                     std::move(options.on_ready));
  MutexLock lock(mutex_);
  if (stopped_) {
    return StoppedStatus();
  }
  all_.push_back(live);
  return std::unique_ptr<Subscription>(
      std::make_unique<HubSubscription>(shared_from_this(), std::move(live), LastRow(after)));
}

void WatchHub::Publish(std::span<const StoredEventPtr> events, Revision revision) {
  std::vector<LivePtr> to_wake;
  {
    MutexLock lock(mutex_);
    to_wake.swap(to_wake_);
    for (const StoredEventPtr& event : events) {
      for (const auto& [length, count] : lengths_) {
        if (length > event->key.size()) {
          break;
        }
        const auto found = by_prefix_.find(std::string_view(event->key).substr(0, length));
        if (found == by_prefix_.end()) {
          continue;
        }
        for (const LivePtr& live : found->second) {
          if (live->Push(event)) {
            to_wake.push_back(live);
          }
        }
      }
    }
    published_.store(revision, std::memory_order_release);
  }
  for (const LivePtr& live : to_wake) {
    live->Notify();
  }
  to_wake.clear();
  MutexLock lock(mutex_);
  to_wake_.swap(to_wake);  // keeps the allocation for the next time
}

void WatchHub::Stop() {
  std::vector<LivePtr> all;
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
    stopped_ = true;
    all = all_;
  }
  for (const LivePtr& live : all) {
    if (live->Fail(StoppedStatus())) {
      live->Notify();
    }
  }
}

std::size_t WatchHub::size() const {
  MutexLock lock(mutex_);
  return all_.size();
}

void WatchHub::Remove(const LivePtr& live) {
  {
    MutexLock lock(mutex_);
    std::erase(all_, live);
    if (const auto found = by_prefix_.find(live->prefix()); found != by_prefix_.end()) {
      if (std::erase(found->second, live) > 0) {
        const auto length = lengths_.find(live->prefix().size());
        if (--length->second == 0) {
          lengths_.erase(length);
        }
      }
      if (found->second.empty()) {
        by_prefix_.erase(found);
      }
    }
  }
  live->EndNotify();
}

}  // namespace sublet::storage
