// Clock: where a decision needs the time it takes a Clock, so that a test can hold it still.
#pragma once

#include <chrono>

namespace sublet {

using WallTime = std::chrono::system_clock::time_point;
using MonotonicTime = std::chrono::steady_clock::time_point;
// The moment by which an answer is needed. MonotonicTime::max() means never.
using Deadline = MonotonicTime;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual WallTime Now() const = 0;             // for timestamps in objects
  virtual MonotonicTime Monotonic() const = 0;  // for durations and deadlines
};

// The machine's clocks. Threads: any. Lifetime: static.
const Clock& SystemClock();

inline Deadline After(std::chrono::milliseconds duration) {
  return std::chrono::steady_clock::now() + duration;
}

// A clock that moves only when told. Threads: one at a time; a test owns it.
class FakeClock final : public Clock {
 public:
  WallTime Now() const override { return now_; }
  MonotonicTime Monotonic() const override { return monotonic_; }
  void Advance(std::chrono::nanoseconds by) {
    now_ += std::chrono::duration_cast<WallTime::duration>(by);
    monotonic_ += std::chrono::duration_cast<MonotonicTime::duration>(by);
  }
  void SetNow(WallTime now) { now_ = now; }

 private:
  WallTime now_{std::chrono::seconds(1767225600)};  // 2026-01-01T00:00:00Z
  MonotonicTime monotonic_{std::chrono::seconds(1)};
};

}  // namespace sublet
