#include "controllers/cron_schedule.h"

#include <charconv>

#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

struct Field {
  int first;
  int last;
  std::vector<std::string_view> names;  // of `first`, `first` + 1, ...
};
const Field kMinute{0, 59, {}};
const Field kHour{0, 23, {}};
const Field kDay{1, 31, {}};
const Field kMonth{
    1, 12, {"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}};
const Field kWeekday{0, 6, {"sun", "mon", "tue", "wed", "thu", "fri", "sat"}};

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return out;
}

Result<int> FieldNumber(std::string_view text, const Field& field) {
  const std::string lower = Lower(text);
  for (std::size_t i = 0; i < field.names.size(); ++i) {
    if (lower == field.names[i]) {
      return field.first + static_cast<int>(i);
    }
  }
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
      value < 0) {
    return BadRequest("failed to parse int from " + std::string(text));
  }
  return value;
}

// One part between commas: * | n | n-m, each with an optional /step.
Result<std::uint64_t> PartBits(std::string_view part, const Field& field, bool* any) {
  const std::size_t slash = part.find('/');
  const std::string_view range = part.substr(0, slash);
  const std::size_t dash = range.find('-');
  int first = field.first;
  int last = field.last;
  const bool star = range == "*" || range == "?";
  if (star) {
    *any = true;
  } else {
    SUBLET_TRY(first, FieldNumber(range.substr(0, dash), field));
    last = first;
    if (dash != std::string_view::npos) {
      SUBLET_TRY(last, FieldNumber(range.substr(dash + 1), field));
    }
  }
  int step = 1;
  if (slash != std::string_view::npos) {
    SUBLET_TRY(step, FieldNumber(part.substr(slash + 1), {0, 0, {}}));
    if (!star && dash == std::string_view::npos) {
      last = field.last;  // "n/step" runs to the end
    }
    if (step > 1) {
      *any = false;
    }
  }
  if (first < field.first) {
    return BadRequest("beginning of range (" + std::to_string(first) + ") below minimum (" +
                      std::to_string(field.first) + "): " + std::string(part));
  }
  if (last > field.last) {
    return BadRequest("end of range (" + std::to_string(last) + ") above maximum (" +
                      std::to_string(field.last) + "): " + std::string(part));
  }
  if (first > last) {
    return BadRequest("beginning of range (" + std::to_string(first) + ") beyond end of range (" +
                      std::to_string(last) + "): " + std::string(part));
  }
  if (step == 0) {
    return BadRequest("step of range should be a positive number: " + std::string(part));
  }
  std::uint64_t bits = 0;
  for (int i = first; i <= last; i += step) {
    bits |= 1ULL << i;
  }
  return bits;
}

Result<std::uint64_t> FieldBits(std::string_view text, const Field& field, bool* any) {
  std::uint64_t bits = 0;
  *any = false;
  while (true) {
    const std::size_t comma = text.find(',');
    bool part_any = false;
    SUBLET_TRY(const std::uint64_t part, PartBits(text.substr(0, comma), field, &part_any));
    bits |= part;
    *any |= part_any;
    if (comma == std::string_view::npos) {
      return bits;
    }
    text.remove_prefix(comma + 1);
  }
}

std::string_view Descriptor(std::string_view text) {
  if (text == "@yearly" || text == "@annually") return "0 0 1 1 *";
  if (text == "@monthly") return "0 0 1 * *";
  if (text == "@weekly") return "0 0 * * 0";
  if (text == "@daily" || text == "@midnight") return "0 0 * * *";
  if (text == "@hourly") return "0 * * * *";
  return "";
}

struct Civil {
  std::int64_t year;
  int month;  // 1-12
  int day;
  int weekday;  // 0 = Sunday
  int hour;
  int minute;
};

// Source: the civil_from_days algorithm (H. Hinnant).
Civil CivilOf(std::int64_t local_seconds) {
  std::int64_t days = local_seconds / 86400;
  std::int64_t rest = local_seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  const std::int64_t shifted = days + 719468;
  const std::int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const std::int64_t day_of_era = shifted - era * 146097;
  const std::int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const std::int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t month_index = (5 * day_of_year + 2) / 153;
  Civil out{};
  out.day = static_cast<int>(day_of_year - (153 * month_index + 2) / 5 + 1);
  out.month = static_cast<int>(month_index < 10 ? month_index + 3 : month_index - 9);
  out.year = year_of_era + era * 400 + (out.month <= 2 ? 1 : 0);
  out.weekday = static_cast<int>(((days + 4) % 7 + 7) % 7);
  out.hour = static_cast<int>(rest / 3600);
  out.minute = static_cast<int>(rest % 3600 / 60);
  return out;
}

}  // namespace

Result<CronSchedule> CronSchedule::Parse(std::string_view text) {
  if (text.starts_with("TZ=") || text.starts_with("CRON_TZ=")) {
    return BadRequest("cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
  }
  CronSchedule out;
  if (text.starts_with("@every ")) {
    SUBLET_TRY(const auto every, kube::ParseDuration(text.substr(7)));
    out.every_ =
        std::max(std::chrono::duration_cast<std::chrono::seconds>(every), std::chrono::seconds(1));
    return out;
  }
  const std::string original(text);
  if (text.starts_with('@')) {
    text = Descriptor(text);
    if (text.empty()) {
      return BadRequest("unrecognized descriptor: " + original);
    }
  }
  std::vector<std::string_view> fields;
  while (!text.empty()) {
    const std::size_t start = text.find_first_not_of(" \t");
    if (start == std::string_view::npos) {
      break;
    }
    text.remove_prefix(start);
    const std::size_t end = text.find_first_of(" \t");
    fields.push_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), fields.back().size()));
  }
  if (fields.size() != 5) {
    return BadRequest("expected exactly 5 fields, found " + std::to_string(fields.size()) + ": " +
                      original);
  }
  bool any = false;
  SUBLET_TRY(out.minutes_, FieldBits(fields[0], kMinute, &any));
  SUBLET_TRY(out.hours_, FieldBits(fields[1], kHour, &any));
  SUBLET_TRY(out.days_, FieldBits(fields[2], kDay, &out.any_day_));
  SUBLET_TRY(out.months_, FieldBits(fields[3], kMonth, &any));
  SUBLET_TRY(out.weekdays_, FieldBits(fields[4], kWeekday, &out.any_weekday_));
  return out;
}

bool CronSchedule::DayMatches(int day, int month, int weekday) const {
  if ((months_ >> month & 1) == 0) {
    return false;
  }
  const bool by_day = (days_ >> day & 1) != 0;
  const bool by_weekday = (weekdays_ >> weekday & 1) != 0;
  // Both given: either suffices.
  return any_day_ || any_weekday_ ? by_day && by_weekday : by_day || by_weekday;
}

std::optional<WallTime> CronSchedule::Next(WallTime after, const TimeZone& zone) const {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(after.time_since_epoch()).count();
  if (every_) {
    return WallTime(std::chrono::seconds(seconds) + *every_);
  }
  std::int64_t at = (seconds / 60 + 1) * 60;
  const std::int64_t end = at + 5LL * 366 * 86400;
  while (at < end) {
    const std::int64_t offset = zone.OffsetAt(at);
    const Civil civil = CivilOf(at + offset);
    if (!DayMatches(civil.day, civil.month, civil.weekday)) {
      // To the next local midnight; a change of the offset in between only costs another step.
      at += 86400 - (civil.hour * 3600 + civil.minute * 60);
      if (CivilOf(at + zone.OffsetAt(at)).hour == 23) {
        at += 3600;  // clocks went back: still the old day
      } else if (const Civil landed = CivilOf(at + zone.OffsetAt(at)); landed.hour > 0) {
        at -= landed.hour * 3600 + landed.minute * 60;
      }
      continue;
    }
    if ((hours_ >> civil.hour & 1) == 0) {
      at += 3600 - civil.minute * 60;
      continue;
    }
    if ((minutes_ >> civil.minute & 1) == 0) {
      at += 60;
      continue;
    }
    return WallTime(std::chrono::seconds(at));
  }
  return std::nullopt;
}

}  // namespace sublet::controllers
