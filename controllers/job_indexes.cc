#include "controllers/job_indexes.h"

#include <algorithm>
#include <charconv>

namespace sublet::controllers {
namespace {

bool ReadNumber(std::string_view text, std::int64_t* out) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *out);
  return !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() &&
         *out >= 0;
}

}  // namespace

IndexSet IndexSet::Parse(std::string_view text, std::int64_t limit) {
  IndexSet out;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    std::int64_t first = 0;
    std::int64_t last = 0;
    if (!ReadNumber(part.substr(0, dash), &first)) {
      continue;
    }
    last = first;
    if (dash != std::string_view::npos && !ReadNumber(part.substr(dash + 1), &last)) {
      continue;
    }
    last = std::min(last, limit - 1);
    if (first > last || (!out.ranges_.empty() && first <= out.ranges_.back().last)) {
      continue;
    }
    if (!out.ranges_.empty() && first == out.ranges_.back().last + 1) {
      out.ranges_.back().last = last;
    } else {
      out.ranges_.push_back({first, last});
    }
  }
  return out;
}

std::string IndexSet::Text() const {
  std::string out;
  for (const Range& range : ranges_) {
    out += (out.empty() ? "" : ",") + std::to_string(range.first);
    if (range.last == range.first + 1) {
      out += "," + std::to_string(range.last);
    } else if (range.last > range.first) {
      out += "-" + std::to_string(range.last);
    }
  }
  return out;
}

bool IndexSet::Has(std::int64_t index) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return index >= range.first && index <= range.last;
  });
}

void IndexSet::Add(std::int64_t index) {
  if (Has(index)) {
    return;
  }
  auto at = std::find_if(ranges_.begin(), ranges_.end(),
                         [&](const Range& range) { return range.first > index; });
  at = ranges_.insert(at, {index, index});
  if (std::next(at) != ranges_.end() && std::next(at)->first == index + 1) {
    at->last = std::next(at)->last;
    ranges_.erase(std::next(at));
  }
  if (at != ranges_.begin() && std::prev(at)->last == index - 1) {
    std::prev(at)->last = at->last;
    ranges_.erase(at);
  }
}

std::int64_t IndexSet::size() const {
  std::int64_t out = 0;
  for (const Range& range : ranges_) {
    out += range.last - range.first + 1;
  }
  return out;
}

}  // namespace sublet::controllers
