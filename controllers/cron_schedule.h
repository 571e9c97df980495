// CronSchedule: the five-field cron expression of a CronJob with robfig/cron's extensions (@hourly,
// names, steps, TZ= is refused as in Kubernetes), and TimeZone: a tz database zone. Values, but for
// TimeZone::Load, which reads a file.
// Source: github.com/robfig/cron/v3 parser.go; RFC 8536 (TZif).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sublet::controllers {

class TimeZone {
 public:
  TimeZone() = default;  // UTC
  // "Europe/Berlin". Errors: NotFound (no such zone on this machine), BadRequest (unreadable file).
  static Result<TimeZone> Load(const std::string& name);
  // From the bytes of a TZif file. Errors: BadRequest.
  static Result<TimeZone> Parse(std::string_view bytes);

  // Seconds east of UTC at `unix_seconds`.
  std::int64_t OffsetAt(std::int64_t unix_seconds) const;

 private:
  struct Transition {
    std::int64_t at;
    std::int32_t offset;
  };
  // The rule after the last transition ("CET-1CEST,M3.5.0,M10.5.0/3").
  struct Rule {
    std::int32_t standard_offset = 0;
    std::int32_t daylight_offset = 0;
    bool has_daylight = false;
    int month[2] = {};  // start, end of daylight time
    int week[2] = {};
    int day[2] = {};
    std::int32_t time[2] = {};
  };
  static std::optional<Rule> ParseRule(std::string_view text);
  static std::int64_t RuleDay(const Rule& rule, int which, std::int64_t year);

  std::int32_t first_offset_ = 0;
  std::vector<Transition> transitions_;
  std::optional<Rule> rule_;
};

class CronSchedule {
 public:
  // Errors: BadRequest ("expected exactly 5 fields, found 4: ...").
  static Result<CronSchedule> Parse(std::string_view text);

  // The first time after `after` that matches, in `zone`; nullopt when there is none in five years.
  std::optional<WallTime> Next(WallTime after, const TimeZone& zone) const;

 private:
  bool DayMatches(int day, int month_index, int weekday) const;

  std::uint64_t minutes_ = 0;
  std::uint64_t hours_ = 0;
  std::uint64_t days_ = 0;
  std::uint64_t months_ = 0;
  std::uint64_t weekdays_ = 0;
  bool any_day_ = false;  // day of month is * or ?
  bool any_weekday_ = false;
  std::optional<std::chrono::seconds> every_;  // "@every 1h30m"
};

}  // namespace sublet::controllers
