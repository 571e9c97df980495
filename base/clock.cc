#include "base/clock.h"

namespace sublet {
namespace {
class MachineClock final : public Clock {
 public:
  WallTime Now() const override { return std::chrono::system_clock::now(); }
  MonotonicTime Monotonic() const override { return std::chrono::steady_clock::now(); }
};
}  // namespace

const Clock& SystemClock() {
  static const MachineClock clock;
  return clock;
}
}  // namespace sublet
