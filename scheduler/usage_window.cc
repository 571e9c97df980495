#include "scheduler/usage_window.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

namespace sublet::scheduler {

namespace {

constexpr Millis kMinute = 60'000;
constexpr int kDaysBack = 5 * 366;

sublet::Status Bad(const std::string& text, const std::string& what) {
  return sublet::Status(Reason::kInvalid,
                        "cron expression \"" + text.substr(0, 100) + "\": " + what);
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

struct Field {
  const char* name;
  int least, most;
  std::vector<const char*> names;  // of `least`, least + 1, ...
};

const std::array<Field, 5>& Fields() {
  static const std::array<Field, 5> kFields = {
      Field{"minute", 0, 59, {}},
      {"hour", 0, 23, {}},
      {"day of month", 1, 31, {}},
      {"month",
       1,
       12,
       {"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
      {"day of week", 0, 7, {"sun", "mon", "tue", "wed", "thu", "fri", "sat"}}};
  return kFields;
}

std::optional<int> NumberOf(const Field& field, std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (std::size_t i = 0; i < field.names.size(); ++i) {
    if (text == field.names[i]) {
      return field.least + static_cast<int>(i);
    }
  }
  if (text.empty() || text.size() > 4 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return std::stoi(text);
}

// The numbers that one field names. Empty: it is not understood.
std::vector<int> NumbersOf(const Field& field, const std::string& text) {
  std::vector<int> out;
  for (const std::string& part : Split(text, ',')) {
    const std::vector<std::string> stepped = Split(part, '/');
    const std::vector<std::string> range = Split(stepped[0], '-');
    std::optional<int> first = field.least;
    std::optional<int> last = field.most == 7 ? 6 : field.most;
    if (stepped[0] != "*" && stepped[0] != "?") {
      first = NumberOf(field, range[0]);
      last = range.size() > 1 ? NumberOf(field, range[1]) : stepped.size() > 1 ? last : first;
    }
    const std::optional<int> step =
        stepped.size() > 1 ? NumberOf({field.name, 0, 9999, {}}, stepped[1]) : 1;
    if (stepped.size() > 2 || range.size() > 2 || !first || !last || !step || *step < 1 ||
        *first < field.least || *last > field.most || *first > *last) {
      return {};
    }
    for (int i = *first; i <= *last; i += *step) {
      out.push_back(i);
    }
  }
  return out;
}

}  // namespace

Result<CronTimes> CronTimes::Parse(const std::string& text) {
  static constexpr std::array<std::pair<const char*, const char*>, 6> kNames = {
      {{"@hourly", "0 * * * *"},
       {"@daily", "0 0 * * *"},
       {"@midnight", "0 0 * * *"},
       {"@weekly", "0 0 * * 0"},
       {"@monthly", "0 0 1 * *"},
       {"@yearly", "0 0 1 1 *"}}};
  std::string plain = text;
  for (const auto& [name, expression] : kNames) {
    plain = text == name ? expression : plain;
  }
  std::vector<std::string> fields;
  for (std::string& field : Split(plain, ' ')) {
    if (!field.empty()) {
      fields.push_back(std::move(field));
    }
  }
  if (fields.size() != Fields().size()) {
    return Bad(text, "five fields are needed: minute, hour, day of month, month, day of week");
  }
  CronTimes out;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::vector<int> numbers = NumbersOf(Fields()[i], fields[i]);
    if (numbers.empty()) {
      return Bad(text, std::string("the ") + Fields()[i].name + " is not understood");
    }
    for (int number : numbers) {
      const auto at = static_cast<std::size_t>(number);
      i == 0   ? (void)out.minutes_.set(at)
      : i == 1 ? (void)out.hours_.set(at)
      : i == 2 ? (void)out.days_.set(at)
      : i == 3 ? (void)out.months_.set(at)
               : (void)out.weekdays_.set(at % 7);
    }
  }
  out.any_day_ = fields[2][0] == '*' || fields[2][0] == '?';
  out.any_weekday_ = fields[4][0] == '*' || fields[4][0] == '?';
  return out;
}

bool CronTimes::Day(int month, int day, int weekday) const {
  const bool by_day = days_.test(static_cast<std::size_t>(day));
  const bool by_weekday = weekdays_.test(static_cast<std::size_t>(weekday));
  return months_.test(static_cast<std::size_t>(month)) &&
         (any_day_ || any_weekday_ ? by_day && by_weekday : by_day || by_weekday);
}

Millis CronTimes::LatestAt(Millis now) const {
  using std::chrono::days;
  using std::chrono::sys_days;
  const std::int64_t minute = now / kMinute;
  sys_days today{days{minute / (24 * 60)}};
  auto of_day = static_cast<int>(minute % (24 * 60));
  for (int back = 0; back < kDaysBack && minute >= 0; ++back, today -= days{1}) {
    const std::chrono::year_month_day date{today};
    if (Day(static_cast<int>(static_cast<unsigned>(date.month())),
            static_cast<int>(static_cast<unsigned>(date.day())),
            static_cast<int>(std::chrono::weekday{today}.c_encoding()))) {
      for (; of_day >= 0; --of_day) {
        if (hours_.test(static_cast<std::size_t>(of_day / 60)) &&
            minutes_.test(static_cast<std::size_t>(of_day % 60))) {
          return (today.time_since_epoch().count() * 24 * 60 + of_day) * kMinute;
        }
      }
    }
    of_day = 24 * 60 - 1;
  }
  return 0;
}

Result<void> UsageParams::Check() const {
  if (type == Window::kTumbling && start == 0) {
    return sublet::Status(Reason::kInvalid,
                          "a tumbling usage window needs usageParams.tumblingWindowStartTime");
  }
  if (type == Window::kCron) {
    if (auto parsed = CronTimes::Parse(cron); !parsed.ok()) {
      return std::move(parsed).error();
    }
  }
  return Ok();
}

}  // namespace sublet::scheduler
