// Differences shown to whoever sent an update that is refused: any two objects, of any of Kubernetes'
// structures, compare within the bounded cost, and the lines shown make the new text of the old one.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "kube/kinds/go_diff.h"

namespace {

using sublet::kube::GoTextCost;
using Lines = std::vector<std::string_view>;

void Expect(bool holds) {
  if (!holds) {
    std::abort();
  }
}

Lines Split(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The new lines, from the old ones and the difference.
Lines Patched(const Lines& old, std::string_view diff) {
  Lines out;
  std::size_t at = 0;
  for (const std::string_view line : Split(diff)) {
    Expect(!line.empty());
    if (line[0] == '@') {
      // "@@ -FROM,LENGTH +..." or "@@ -FROM +...": FROM counts from 1, from 0 where LENGTH is 0.
      const std::string range(line.substr(4, line.find(' ', 4) - 4));
      const auto from = static_cast<std::size_t>(std::atoi(range.c_str()));
      const bool is_empty = range.ends_with(",0");
      const std::size_t to = is_empty ? from : from - 1;
      Expect(to >= at && to <= old.size());
      out.insert(out.end(), old.begin() + static_cast<std::ptrdiff_t>(at),
                 old.begin() + static_cast<std::ptrdiff_t>(to));
      at = to;
    } else if (line[0] == '+') {
      out.push_back(line.substr(1));
    } else {
      Expect((line[0] == ' ' || line[0] == '-') && at < old.size() && old[at] == line.substr(1));
      if (line[0] == ' ') {
        out.push_back(old[at]);
      }
      ++at;
    }
  }
  out.insert(out.end(), old.begin() + static_cast<std::ptrdiff_t>(at), old.end());
  return out;
}

}  // namespace

// The first byte picks the structure and how much it may cost; two JSON texts follow, a line each.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr const char* kTypes[] = {"PodSpec",
                                    "EphemeralContainer",
                                    "PersistentVolumeSource",
                                    "[]s",
                                    "{[NodeSelectorTerm",
                                    "*SecurityContext",
                                    "j",
                                    "Unknown"};
  if (size == 0) {
    return 0;
  }
  const char* type = kTypes[data[0] % 8];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t split = std::min(text.find('\n'), text.size());
  const auto old = sublet::kube::ParseJson(text.substr(0, split));
  const auto now = sublet::kube::ParseJson(text.substr(std::min(split + 1, text.size())));
  if (!old.ok() || !now.ok()) {
    return 0;
  }
  (void)sublet::kube::ShownAsGo(type, *old);
  GoTextCost cost;
  cost.max = data[0] & 8 ? data[0] : cost.max;
  const std::size_t most = cost.max + size;
  const std::string diff = sublet::kube::GoDiff(type, *old, *now, &cost);
  Expect(cost.taken <= most);
  if (cost.Spent()) {
    Expect(diff.starts_with("too large to be compared"));
    return 0;
  }
  GoTextCost printing;
  const std::string old_text = sublet::kube::LinesAsGo(type, *old, &printing);
  const std::string new_text = sublet::kube::LinesAsGo(type, *now, &printing);
  Expect(Patched(Split(old_text), diff) == Split(new_text));
  Expect(diff.empty() == (old_text == new_text));
  return 0;
}
