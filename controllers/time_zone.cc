#include <algorithm>
#include <fstream>
#include <sstream>

#include "controllers/cron_schedule.h"

namespace sublet::controllers {
namespace {

constexpr char kZoneFolder[] = "/usr/share/zoneinfo/";

// Days since 1970-01-01 of a civil date.  Source: the days_from_civil algorithm (H. Hinnant).
std::int64_t DaysOf(std::int64_t year, int month, int day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const std::int64_t day_of_era =
      year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

std::int64_t YearOf(std::int64_t unix_seconds) {
  std::int64_t year = 1970 + unix_seconds / 31556952;
  while (DaysOf(year + 1, 1, 1) * 86400 <= unix_seconds) {
    ++year;
  }
  while (DaysOf(year, 1, 1) * 86400 > unix_seconds) {
    --year;
  }
  return year;
}

// A cursor over big-endian numbers; reads past the end give nothing and set `bad`.
struct Reader {
  std::string_view bytes;
  bool bad = false;
  std::int64_t Number(int size) {
    if (bytes.size() < static_cast<std::size_t>(size)) {
      bad = true;
      return 0;
    }
    std::uint64_t value = bytes[0] < 0 ? ~0ULL : 0;
    for (int i = 0; i < size; ++i) {
      value = value << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
    }
    bytes.remove_prefix(static_cast<std::size_t>(size));
    return static_cast<std::int64_t>(value);
  }
  std::string_view Take(std::size_t size) {
    if (bytes.size() < size) {
      bad = true;
      return {};
    }
    const std::string_view out = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return out;
  }
};

struct Header {
  std::int64_t utc, standard, leap, times, types, chars;
};
std::optional<Header> ReadHeader(Reader* in, char* version) {
  const std::string_view head = in->Take(20);
  if (in->bad || !head.starts_with("TZif")) {
    return std::nullopt;
  }
  *version = head[4];
  Header out{};
  for (std::int64_t* field :
       {&out.utc, &out.standard, &out.leap, &out.times, &out.types, &out.chars}) {
    *field = in->Number(4);
    if (*field < 0 || *field > 100000) {
      return std::nullopt;
    }
  }
  return in->bad ? std::nullopt : std::optional(out);
}

std::size_t BlockSize(const Header& header, std::int64_t time_size) {
  return static_cast<std::size_t>(header.times * time_size + header.times + header.types * 6 +
                                  header.chars + header.leap * (time_size + 4) + header.standard +
                                  header.utc);
}

// A cursor over a POSIX TZ text.
struct RuleText {
  std::string_view text;
  bool Skip(char c) {
    if (text.empty() || text[0] != c) {
      return false;
    }
    text.remove_prefix(1);
    return true;
  }
  bool Name() {
    std::size_t size = 0;
    if (!text.empty() && text[0] == '<') {
      size = text.find('>');
      size = size == std::string_view::npos ? 0 : size + 1;
    } else {
      while (size < text.size() && ((text[size] | 32) >= 'a' && (text[size] | 32) <= 'z')) {
        ++size;
      }
    }
    text.remove_prefix(size);
    return size > 0;
  }
  std::optional<int> Number() {
    std::size_t size = 0;
    int value = 0;
    while (size < text.size() && size < 6 && text[size] >= '0' && text[size] <= '9') {
      value = value * 10 + (text[size++] - '0');
    }
    text.remove_prefix(size);
    return size > 0 ? std::optional(value) : std::nullopt;
  }
  // [+-]hh[:mm[:ss]]
  std::optional<std::int32_t> Time() {
    const bool negative = Skip('-');
    if (!negative) {
      Skip('+');
    }
    std::int32_t value = 0;
    for (int unit = 3600; unit > 0; unit /= 60) {
      const auto part = Number();
      if (!part) {
        return std::nullopt;
      }
      value += *part * unit;
      if (!Skip(':')) {
        break;
      }
    }
    return negative ? -value : value;
  }
};

}  // namespace

std::optional<TimeZone::Rule> TimeZone::ParseRule(std::string_view text) {
  RuleText in{text};
  Rule rule;
  if (!in.Name()) {
    return std::nullopt;
  }
  const auto standard = in.Time();
  if (!standard) {
    return std::nullopt;
  }
  rule.standard_offset = -*standard;
  if (in.text.empty()) {
    return rule;
  }
  rule.has_daylight = in.Name();
  rule.daylight_offset = rule.standard_offset + 3600;
  if (!in.text.empty() && in.text[0] != ',') {
    const auto daylight = in.Time();
    if (!daylight) {
      return std::nullopt;
    }
    rule.daylight_offset = -*daylight;
  }
  for (int i = 0; i < 2; ++i) {
    // Only the month form occurs in the tz database's footers.
    if (!in.Skip(',') || !in.Skip('M')) {
      return std::nullopt;
    }
    const auto month = in.Number();
    const auto week = in.Skip('.') ? in.Number() : std::nullopt;
    const auto day = in.Skip('.') ? in.Number() : std::nullopt;
    if (!month || !week || !day || *month < 1 || *month > 12 || *week < 1 || *week > 5 ||
        *day > 6) {
      return std::nullopt;
    }
    rule.month[i] = *month;
    rule.week[i] = *week;
    rule.day[i] = *day;
    rule.time[i] = 7200;
    if (in.Skip('/')) {
      const auto time = in.Time();
      if (!time) {
        return std::nullopt;
      }
      rule.time[i] = *time;
    }
  }
  return rule;
}

Result<TimeZone> TimeZone::Load(const std::string& name) {
  const bool plain = !name.empty() && name[0] != '/' && name.find("..") == std::string::npos &&
                     name.find('\0') == std::string::npos;
  if (name == "UTC" || name == "Etc/UTC") {
    return TimeZone();
  }
  std::ifstream file(plain ? kZoneFolder + name : std::string(), std::ios::binary);
  std::ostringstream bytes;
  if (!plain || name == "Local" || !file || !(bytes << file.rdbuf())) {
    return NotFound({"", "timezones"}, name);
  }
  return Parse(bytes.str());
}

Result<TimeZone> TimeZone::Parse(std::string_view bytes) {
  Reader in{bytes};
  char version = 0;
  auto header = ReadHeader(&in, &version);
  if (!header) {
    return BadRequest("not a time zone file");
  }
  int time_size = 4;
  if (version >= '2') {
    // The second block has 64-bit times and the footer.
    in.Take(BlockSize(*header, 4));
    header = ReadHeader(&in, &version);
    time_size = 8;
    if (!header) {
      return BadRequest("not a time zone file");
    }
  }
  std::vector<std::int64_t> times;
  for (std::int64_t i = 0; i < header->times; ++i) {
    times.push_back(in.Number(time_size));
  }
  const std::string_view kinds = in.Take(static_cast<std::size_t>(header->times));
  std::vector<std::int32_t> offsets;
  for (std::int64_t i = 0; i < header->types; ++i) {
    offsets.push_back(static_cast<std::int32_t>(in.Number(4)));
    in.Take(2);
  }
  in.Take(static_cast<std::size_t>(header->chars + header->leap * (time_size + 4) +
                                   header->standard + header->utc));
  if (in.bad || offsets.empty()) {
    return BadRequest("a time zone file that is cut short");
  }
  TimeZone zone;
  zone.first_offset_ = offsets[0];
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto kind = static_cast<unsigned char>(kinds[i]);
    if (kind >= offsets.size()) {
      return BadRequest("a time zone file with an unknown type");
    }
    zone.transitions_.push_back({times[i], offsets[kind]});
  }
  if (time_size == 8 && in.bytes.size() > 2 && in.bytes[0] == '\n') {
    zone.rule_ = ParseRule(in.bytes.substr(1, in.bytes.find('\n', 1) - 1));
  }
  return zone;
}

std::int64_t TimeZone::RuleDay(const Rule& rule, int which, std::int64_t year) {
  const int month = rule.month[which];
  const std::int64_t first = DaysOf(year, month, 1);
  const std::int64_t next = month == 12 ? DaysOf(year + 1, 1, 1) : DaysOf(year, month + 1, 1);
  const std::int64_t first_weekday = ((first + 4) % 7 + 7) % 7;  // 1970-01-01 was a Thursday
  std::int64_t day = first + (rule.day[which] - first_weekday + 7) % 7 + (rule.week[which] - 1) * 7;
  while (day >= next) {
    day -= 7;
  }
  return day;
}

std::int64_t TimeZone::OffsetAt(std::int64_t unix_seconds) const {
  if (!transitions_.empty() && unix_seconds < transitions_.back().at) {
    const auto after = std::upper_bound(
        transitions_.begin(), transitions_.end(), unix_seconds,
        [](std::int64_t time, const Transition& transition) { return time < transition.at; });
    return after == transitions_.begin() ? first_offset_ : std::prev(after)->offset;
  }
  if (!rule_) {
    return transitions_.empty() ? first_offset_ : transitions_.back().offset;
  }
  if (!rule_->has_daylight) {
    return rule_->standard_offset;
  }
  const std::int64_t year = YearOf(unix_seconds + rule_->standard_offset);
  const std::int64_t start =
      RuleDay(*rule_, 0, year) * 86400 + rule_->time[0] - rule_->standard_offset;
  const std::int64_t end =
      RuleDay(*rule_, 1, year) * 86400 + rule_->time[1] - rule_->daylight_offset;
  const bool daylight = start < end ? unix_seconds >= start && unix_seconds < end
                                    : unix_seconds >= start || unix_seconds < end;
  return daylight ? rule_->daylight_offset : rule_->standard_offset;
}

}  // namespace sublet::controllers
