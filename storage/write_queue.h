// WriteQueue: what waits for the writer thread. Many threads add, the writer takes everything that
// is there as one group. Bounded in requests and bytes; past a bound the request is refused.
// Threads: Add and Close from any; Take from the writer.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "storage/store.h"

namespace sublet::storage {

struct RollbackRequest {
  std::string prefix;
  Revision revision = 0;
  std::function<void(Result<RollbackResult>)> done;
};

// One waiting request: a transaction, facts outside the revisions, or a rollback.
struct WriteRequest {
  std::vector<Op> ops;
  std::vector<std::pair<std::string, std::optional<std::string>>> local;
  TxnCallback done;  // of ops or local
  std::unique_ptr<RollbackRequest> rollback;
  std::size_t bytes = 0;
};

class WriteQueue {
 public:
  struct Limits {
    std::size_t requests_max = 8192;
    std::size_t bytes_max = 64u << 20;
    // Of one group: keeps a commit, and so the wait of those in it, short.
    std::size_t group_requests_max = 512;
    std::size_t group_bytes_max = 8u << 20;
  };
  enum class Added : std::uint8_t { kYes, kFull, kClosed };
  struct Group {
    std::vector<WriteRequest> requests;
    bool closed = false;  // and nothing is left
  };

  explicit WriteQueue(Limits limits) : limits_(limits) {}

  // kFull, kClosed: `request` is untouched.
  Added Add(WriteRequest& request) SUBLET_EXCLUDES(mutex_) {
    bool wake = false;
    {
      MutexLock lock(mutex_);
      if (closed_) {
        return Added::kClosed;
      }
      if (requests_.size() >= limits_.requests_max ||
          (!requests_.empty() && bytes_ + request.bytes > limits_.bytes_max)) {
        return Added::kFull;
      }
      bytes_ += request.bytes;
      requests_.push_back(std::move(request));
      wake = std::exchange(writer_waits_, false);
    }
    if (wake) {
      ready_.NotifyOne();
    }
    return Added::kYes;
  }

  // Waits for a request, Close or `deadline`; returns what is there, up to the group limits.
  Group Take(Deadline deadline) SUBLET_EXCLUDES(mutex_) {
    Group group;
    MutexLock lock(mutex_);
    while (requests_.empty() && !closed_ && !poked_) {
      writer_waits_ = true;
      if (deadline == Deadline::max()) {
        ready_.Wait(mutex_);
      } else if (!ready_.WaitUntil(mutex_, deadline)) {
        break;
      }
    }
    writer_waits_ = false;
    poked_ = false;
    std::size_t bytes = 0;
    while (!requests_.empty() && group.requests.size() < limits_.group_requests_max &&
           bytes < limits_.group_bytes_max) {
      bytes += requests_.front().bytes;
      group.requests.push_back(std::move(requests_.front()));
      requests_.pop_front();
    }
    bytes_ -= bytes;
    group.closed = closed_ && group.requests.empty();
    return group;
  }

  bool empty() const SUBLET_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return requests_.empty();
  }

  // Makes Take return at once: the writer looks at its timers again.
  void Poke() SUBLET_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      poked_ = true;
    }
    ready_.NotifyOne();
  }

  // What waits is still taken; what comes later is refused.
  void Close() SUBLET_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    ready_.NotifyOne();
  }

 private:
  const Limits limits_;
  mutable Mutex mutex_;
  CondVar ready_;
  std::deque<WriteRequest> requests_ SUBLET_GUARDED_BY(mutex_);
  std::size_t bytes_ SUBLET_GUARDED_BY(mutex_) = 0;
  bool writer_waits_ SUBLET_GUARDED_BY(mutex_) = false;
  bool poked_ SUBLET_GUARDED_BY(mutex_) = false;
  bool closed_ SUBLET_GUARDED_BY(mutex_) = false;
};

}  // namespace sublet::storage
