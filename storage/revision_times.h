// RevisionTimes: which revision was current when, coarsely and in bounded memory: one mark per slot
// of time. Answers "up to which revision is everything older than the horizon".
// Threads: confined to the writer.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

#include "storage/store.h"

namespace sublet::storage {

class RevisionTimes {
 public:
  using Millis = std::int64_t;  // on a clock that never goes back

  // At most `slots` + 2 marks; a revision is kept for `horizon` up to `horizon` * (1 + 1 / slots).
  RevisionTimes(std::chrono::milliseconds horizon, int slots)
      : horizon_(horizon.count()), slot_(std::max<Millis>(1, horizon.count() / slots)) {}

  // `revision` was committed at `now`. Both never decrease from call to call.
  void Note(Millis now, Revision revision) {
    const Millis start = FloorToSlot(now);
    if (!marks_.empty() && marks_.back().start >= start) {
      marks_.back().revision = revision;
    } else {
      marks_.push_back({start, revision});
    }
  }

  // The newest revision that was current one horizon ago, forgetting older marks; nullopt when
  // nothing new got that old.
  std::optional<Revision> TakeExpired(Millis now) {
    std::optional<Revision> expired;
    while (!marks_.empty() && marks_.front().start + slot_ + horizon_ <= now) {
      expired = marks_.front().revision;
      marks_.pop_front();
    }
    return expired;
  }

  // When TakeExpired will next have an answer; nullopt: never without a new Note.
  std::optional<Millis> Next() const {
    if (marks_.empty()) {
      return std::nullopt;
    }
    return marks_.front().start + slot_ + horizon_;
  }

  std::size_t size() const { return marks_.size(); }

 private:
  struct Mark {
    Millis start;
    Revision revision;
  };
  Millis FloorToSlot(Millis now) const {
    const Millis rest = now % slot_;
    return now - (rest < 0 ? rest + slot_ : rest);
  }

  const Millis horizon_;
  const Millis slot_;
  std::deque<Mark> marks_;
};

}  // namespace sublet::storage
