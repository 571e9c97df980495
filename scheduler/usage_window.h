// Over which time past use counts in the fair share: KAI's usageParams. A sliding window reaches
// back by its size; a tumbling one begins anew every `size` since `start`; a cron one begins anew
// at every time its expression names. Threads: values, any.
#pragma once

#include <array>
#include <bitset>
#include <string>

#include "base/result.h"
#include "scheduler/model.h"

namespace sublet::scheduler {

// Five fields (minute, hour, day of month, month, day of week), in UTC: lists, ranges, steps, names
// of months and days, and @hourly, @daily, @weekly, @monthly, @yearly. As everywhere, a day counts
// when either of its two fields names it, if both are restricted.
class CronTimes {
 public:
  // Errors: kInvalid, with what is wrong.
  static Result<CronTimes> Parse(const std::string& text);
  // The latest time at or before `now`, a whole minute; 0 when there was none within five years.
  Millis LatestAt(Millis now) const;

 private:
  bool Day(int month, int day, int weekday) const;

  std::bitset<60> minutes_;
  std::bitset<24> hours_;
  std::bitset<32> days_;
  std::bitset<13> months_;
  std::bitset<7> weekdays_;
  bool any_day_ = true, any_weekday_ = true;
};

struct UsageParams {
  enum class Window : std::uint8_t { kSliding, kTumbling, kCron };

  bool on = false;       // any of them was set: past use counts
  Millis half_life = 0;  // 0 = all of the window counts alike
  Window type = Window::kSliding;
  Millis size = INT64_C(7) * 24 * 3600 * 1000;
  Millis start = 0;       // of a tumbling window
  std::string cron;       // of a cron window; one that CronTimes parses
  Millis fetch = 60'000;  // how often the shares are told to the engine

  // Whether the parts go together. Errors: kInvalid.
  Result<void> Check() const;
};

}  // namespace sublet::scheduler
