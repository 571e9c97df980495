// Backoff: the waits between tries that keep failing, doubling with jitter up to a limit.
// Threads: confined to its owner.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/random.h"

namespace sublet::client {

class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds most)
      : first_(first), most_(most) {}

  // The wait before the next try: between 1x and 2x of first * 2^failures, at most 2x `most`.
  std::chrono::milliseconds Next() {
    const int shift = std::min(failures_, 20);
    ++failures_;
    const std::chrono::milliseconds base =
        std::min<std::chrono::milliseconds>(first_ * (1LL << shift), most_);
    const double jitter = static_cast<double>(RandomUint64() >> 11) / 9007199254740992.0;
    return base + std::chrono::milliseconds(
                      static_cast<std::int64_t>(static_cast<double>(base.count()) * jitter));
  }
  void Reset() { failures_ = 0; }
  int failures() const { return failures_; }

 private:
  const std::chrono::milliseconds first_;
  const std::chrono::milliseconds most_;
  int failures_ = 0;
};

}  // namespace sublet::client
