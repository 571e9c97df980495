#include "kube/timestamp.h"

#include <cstdint>
#include <cstdio>

#include "kube/field_error.h"

namespace sublet::kube {
namespace {

using std::chrono::nanoseconds;

struct Civil {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  int micros = 0;
};

Civil ToCivil(WallTime time) {
  const auto micros = std::chrono::floor<std::chrono::microseconds>(time);
  const auto days = std::chrono::floor<std::chrono::days>(micros);
  const std::chrono::year_month_day date{days};
  const std::int64_t rest = (micros - days).count();
  Civil civil;
  civil.year = static_cast<int>(date.year());
  civil.month = static_cast<unsigned>(date.month());
  civil.day = static_cast<unsigned>(date.day());
  const std::int64_t seconds = rest / 1'000'000;
  civil.micros = static_cast<int>(rest % 1'000'000);
  civil.hour = static_cast<int>(seconds / 3600);
  civil.minute = static_cast<int>(seconds / 60 % 60);
  civil.second = static_cast<int>(seconds % 60);
  return civil;
}

// Reads exactly `width` digits at `pos`.
bool TakeNumber(std::string_view text, std::size_t* pos, std::size_t width, int* out) {
  if (*pos + width > text.size()) {
    return false;
  }
  *out = 0;
  for (std::size_t i = 0; i < width; ++i) {
    const char c = text[*pos + i];
    if (c < '0' || c > '9') {
      return false;
    }
    *out = *out * 10 + (c - '0');
  }
  *pos += width;
  return true;
}

bool TakeChar(std::string_view text, std::size_t* pos, char c) {
  if (*pos >= text.size() || text[*pos] != c) {
    return false;
  }
  ++*pos;
  return true;
}

// "Z" or "+hh:mm", as seconds east.
bool TakeOffset(std::string_view text, std::size_t* pos, int* seconds) {
  *seconds = 0;
  if (TakeChar(text, pos, 'Z')) {
    return true;
  }
  const int sign = *pos < text.size() && text[*pos] == '-' ? -1 : 1;
  int hours = 0;
  int minutes = 0;
  if (!(TakeChar(text, pos, '+') || TakeChar(text, pos, '-')) ||
      !TakeNumber(text, pos, 2, &hours) || !TakeChar(text, pos, ':') ||
      !TakeNumber(text, pos, 2, &minutes) || hours > 24 || minutes > 59) {
    return false;
  }
  *seconds = sign * (hours * 3600 + minutes * 60);
  return true;
}

bool Parse(std::string_view text, WallTime* out) {
  Civil civil;
  std::size_t pos = 0;
  int month = 0;
  int day = 0;
  const bool shape = TakeNumber(text, &pos, 4, &civil.year) && TakeChar(text, &pos, '-') &&
                     TakeNumber(text, &pos, 2, &month) && TakeChar(text, &pos, '-') &&
                     TakeNumber(text, &pos, 2, &day) && TakeChar(text, &pos, 'T') &&
                     TakeNumber(text, &pos, 2, &civil.hour) && TakeChar(text, &pos, ':') &&
                     TakeNumber(text, &pos, 2, &civil.minute) && TakeChar(text, &pos, ':') &&
                     TakeNumber(text, &pos, 2, &civil.second);
  if (!shape) {
    return false;
  }
  std::int64_t nanos = 0;
  if (TakeChar(text, &pos, '.') || TakeChar(text, &pos, ',')) {
    std::int64_t unit = 100'000'000;
    const std::size_t start = pos;
    while (pos < text.size() && text[pos] >= '0' && text[pos] <= '9') {
      nanos += unit * (text[pos] - '0');
      unit /= 10;
      ++pos;
    }
    if (pos == start) {
      return false;
    }
  }
  int offset = 0;
  const std::chrono::year_month_day date{std::chrono::year(civil.year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!TakeOffset(text, &pos, &offset) || pos != text.size() || !date.ok() || civil.hour > 23 ||
      civil.minute > 59 || civil.second > 59) {
    return false;
  }
  const std::int64_t seconds = std::chrono::sys_days(date).time_since_epoch().count() * 86400LL +
                               civil.hour * 3600 + civil.minute * 60 + civil.second - offset;
  // system_clock counts nanoseconds in 64 bits: years 1678 to 2262.
  constexpr std::int64_t kSecondsMax = 9'223'372'036;
  if (seconds > kSecondsMax - 1) {
    *out = WallTime(nanoseconds(INT64_MAX));
  } else if (seconds < -kSecondsMax + 1) {
    *out = WallTime(nanoseconds(INT64_MIN));
  } else {
    *out = WallTime(nanoseconds(seconds * 1'000'000'000 + nanos));
  }
  return true;
}

// Digits of `value` below the point, without trailing zeros: 1500 of 1000 -> "1.5".
std::string Fraction(std::int64_t value, std::int64_t unit) {
  std::string text = std::to_string(value / unit);
  std::int64_t rest = value % unit;
  if (rest != 0) {
    text.push_back('.');
    while (rest != 0) {
      rest *= 10;
      text.push_back(static_cast<char>('0' + rest / unit));
      rest %= unit;
    }
  }
  return text;
}

std::string Two(std::int64_t big, const char* big_unit, std::int64_t small,
                const char* small_unit) {
  std::string text = std::to_string(big) + big_unit;
  return small == 0 ? text : text + std::to_string(small) + small_unit;
}

}  // namespace

std::string FormatTime(WallTime time) {
  const Civil c = ToCivil(time);
  char buffer[40];
  const int n = std::snprintf(buffer, sizeof(buffer), "%04d-%02u-%02uT%02d:%02d:%02dZ", c.year,
                              c.month, c.day, c.hour, c.minute, c.second);
  return {buffer, static_cast<std::size_t>(n)};
}

std::string FormatMicroTime(WallTime time) {
  const Civil c = ToCivil(time);
  char buffer[48];
  const int n = std::snprintf(buffer, sizeof(buffer), "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ", c.year,
                              c.month, c.day, c.hour, c.minute, c.second, c.micros);
  return {buffer, static_cast<std::size_t>(n)};
}

Result<WallTime> ParseTime(std::string_view text) {
  WallTime time;
  if (!Parse(text, &time)) {
    const std::string quoted = GoQuote(text);
    // Go names the part of its layout where reading stopped; the year is by far the usual one.
    return BadRequest("parsing time " + quoted +
                      " as \"2006-01-02T15:04:05Z07:00\": cannot parse " + quoted + " as \"2006\"");
  }
  return time;
}

std::optional<WallTime> FindTime(std::string_view text) {
  WallTime time;
  if (!Parse(text, &time)) {
    return std::nullopt;
  }
  return time;
}

std::string FormatDuration(nanoseconds duration) {
  std::int64_t left = duration.count();
  if (left == 0) {
    return "0s";
  }
  std::string sign;
  std::uint64_t magnitude = static_cast<std::uint64_t>(left);
  if (left < 0) {
    sign = "-";
    magnitude = 0 - magnitude;
  }
  if (magnitude > static_cast<std::uint64_t>(INT64_MAX)) {
    return "-2562047h47m16.854775808s";
  }
  left = static_cast<std::int64_t>(magnitude);
  if (left < 1000) {
    return sign + std::to_string(left) + "ns";
  }
  if (left < 1'000'000) {
    return sign + Fraction(left, 1000) + "\xc2\xb5s";
  }
  if (left < 1'000'000'000) {
    return sign + Fraction(left, 1'000'000) + "ms";
  }
  const std::int64_t minute = 60'000'000'000;
  std::string text = Fraction(left % minute, 1'000'000'000) + "s";
  const std::int64_t minutes = left / minute;
  if (minutes > 0) {
    text = std::to_string(minutes % 60) + "m" + text;
    if (minutes >= 60) {
      text = std::to_string(minutes / 60) + "h" + text;
    }
  }
  return sign + text;
}

namespace {

// The longest duration has 2^63 ns; only a negative one may be that long.
constexpr std::uint64_t kLongestNanos = std::uint64_t{1} << 63;

// A number of a Go duration: digits, or digits with a point before, after or among them.
struct GoNumber {
  std::uint64_t whole = 0;
  double fraction = 0;        // the digits behind the point, as many as fit
  double fraction_scale = 1;  // 10 to the power of their count
};

// Takes a number off the front of *left. False when there is none, or when it is beyond 2^63.
bool ReadGoNumber(std::string_view* left, GoNumber* number) {
  std::size_t at = 0;
  const auto digit = [&] { return at < left->size() && (*left)[at] >= '0' && (*left)[at] <= '9'; };
  for (; digit(); ++at) {
    const auto value = static_cast<std::uint64_t>((*left)[at] - '0');
    if (number->whole > (kLongestNanos - value) / 10) {
      return false;
    }
    number->whole = number->whole * 10 + value;
  }
  std::size_t digits = at;
  if (at < left->size() && (*left)[at] == '.') {
    std::uint64_t fraction = 0;
    bool full = false;  // what no longer fits is below a nanosecond
    for (++at; digit(); ++at) {
      ++digits;
      const auto value = static_cast<std::uint64_t>((*left)[at] - '0');
      full = full || fraction > (kLongestNanos - value) / 10;
      if (!full) {
        fraction = fraction * 10 + value;
        number->fraction_scale *= 10;
      }
    }
    number->fraction = static_cast<double>(fraction);
  }
  left->remove_prefix(at);
  return digits > 0;
}

// 0 for an unknown unit.
std::uint64_t NanosOfUnit(std::string_view unit) {
  static constexpr std::pair<std::string_view, std::uint64_t> kUnits[] = {
      {"ns", 1},
      {"us", 1'000},
      {"\xc2\xb5s", 1'000},  // U+00B5, the micro sign
      {"\xce\xbcs", 1'000},  // U+03BC, the Greek letter mu
      {"ms", 1'000'000},
      {"s", 1'000'000'000},
      {"m", 60'000'000'000},
      {"h", 3'600'000'000'000},
  };
  for (const auto& [name, nanos] : kUnits) {
    if (unit == name) {
      return nanos;
    }
  }
  return 0;
}

}  // namespace

Result<nanoseconds> ParseDuration(std::string_view text) {
  const auto invalid = [&] { return BadRequest("time: invalid duration " + GoQuote(text)); };
  std::string_view left = text;
  bool negative = false;
  if (!left.empty() && (left[0] == '-' || left[0] == '+')) {
    negative = left[0] == '-';
    left.remove_prefix(1);
  }
  if (left == "0") {
    return nanoseconds(0);
  }
  if (left.empty()) {
    return invalid();
  }
  std::uint64_t total = 0;
  while (!left.empty()) {
    GoNumber number;
    if (!ReadGoNumber(&left, &number)) {
      return invalid();
    }
    const std::size_t width = std::min(left.find_first_of("0123456789."), left.size());
    const std::string_view unit = left.substr(0, width);
    left.remove_prefix(width);
    if (unit.empty()) {
      return BadRequest("time: missing unit in duration " + GoQuote(text));
    }
    const std::uint64_t scale = NanosOfUnit(unit);
    if (scale == 0) {
      return BadRequest("time: unknown unit " + GoQuote(unit) + " in duration " + GoQuote(text));
    }
    if (number.whole > kLongestNanos / scale) {
      return invalid();
    }
    // Each part is cut to whole nanoseconds by itself, as Go does.
    const std::uint64_t part =
        number.whole * scale +
        static_cast<std::uint64_t>(number.fraction *
                                   (static_cast<double>(scale) / number.fraction_scale));
    total += part;  // both at most 2^63 and a second part below one unit: no wrap before the check
    if (part > kLongestNanos || total > kLongestNanos) {
      return invalid();
    }
  }
  if (negative) {
    return nanoseconds(static_cast<std::int64_t>(0 - total));
  }
  if (total == kLongestNanos) {
    return invalid();
  }
  return nanoseconds(static_cast<std::int64_t>(total));
}

std::string HumanDuration(nanoseconds duration) {
  const std::int64_t seconds = duration.count() / 1'000'000'000;
  if (seconds < -1) {
    return "<invalid>";
  }
  if (seconds < 0) {
    return "0s";
  }
  if (seconds < 120) {
    return std::to_string(seconds) + "s";
  }
  const std::int64_t minutes = seconds / 60;
  if (minutes < 10) {
    return Two(minutes, "m", seconds % 60, "s");
  }
  if (minutes < 180) {
    return std::to_string(minutes) + "m";
  }
  const std::int64_t hours = minutes / 60;
  if (hours < 8) {
    return Two(hours, "h", minutes % 60, "m");
  }
  if (hours < 48) {
    return std::to_string(hours) + "h";
  }
  if (hours < 24 * 8) {
    return Two(hours / 24, "d", hours % 24, "h");
  }
  if (hours < 24 * 365 * 2) {
    return std::to_string(hours / 24) + "d";
  }
  if (hours < 24 * 365 * 8) {
    return Two(hours / 24 / 365, "y", hours / 24 % 365, "d");
  }
  return std::to_string(hours / 24 / 365) + "y";
}

std::string ShortHumanDuration(nanoseconds duration) {
  const std::int64_t seconds = duration.count() / 1'000'000'000;
  if (seconds < -1) {
    return "<invalid>";
  }
  if (seconds < 0) {
    return "0s";
  }
  if (seconds < 60) {
    return std::to_string(seconds) + "s";
  }
  if (seconds < 3600) {
    return std::to_string(seconds / 60) + "m";
  }
  if (seconds < 86400) {
    return std::to_string(seconds / 3600) + "h";
  }
  if (seconds < 86400 * 365) {
    return std::to_string(seconds / 86400) + "d";
  }
  return std::to_string(seconds / 86400 / 365) + "y";
}

std::string HumanAge(std::string_view timestamp, WallTime now) {
  const auto time = FindTime(timestamp);
  return time ? HumanDuration(now - *time) : "<unknown>";
}

}  // namespace sublet::kube
