#include "kube/kinds/go_diff.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

namespace sublet::kube {
namespace {

constexpr int kContext = 3;

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (true) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return lines;
    }
    text.remove_prefix(end + 1);
  }
}

struct Block {
  int a, b, size;
};

// The longest run of equal lines first, then the same on both sides of it. In a text of 200 lines or
// more, lines that make up over a hundredth of it start no run.
class Matcher {
 public:
  Matcher(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b,
          GoTextCost* cost)
      : cost_(cost) {
    std::map<std::string_view, int> known;
    for (std::size_t i = 0; i < b.size(); ++i) {
      const int line = known.emplace(b[i], static_cast<int>(known.size())).first->second;
      places_.resize(known.size());
      places_[static_cast<std::size_t>(line)].push_back(static_cast<int>(i));
      b_.push_back(line);
    }
    for (const std::string_view text : a) {
      const auto found = known.find(text);
      a_.push_back(found == known.end() ? kNowhere : found->second);
    }
    constexpr std::size_t kPopularFrom = 200;
    for (std::vector<int>& at : places_) {
      if (b.size() >= kPopularFrom && at.size() > b.size() / 100 + 1) {
        at.clear();
      }
    }
  }

  // Runs in order, touching ones joined, ended by an empty one. Worth nothing when the cost was
  // spent.
  std::vector<Block> Blocks() {
    std::vector<Block> found;
    Within(0, static_cast<int>(a_.size()), 0, static_cast<int>(b_.size()), &found);
    std::vector<Block> joined;
    for (const Block& block : found) {
      if (!joined.empty() && joined.back().a + joined.back().size == block.a &&
          joined.back().b + joined.back().size == block.b) {
        joined.back().size += block.size;
      } else {
        joined.push_back(block);
      }
    }
    joined.push_back({static_cast<int>(a_.size()), static_cast<int>(b_.size()), 0});
    return joined;
  }

 private:
  static constexpr int kNowhere = -1;  // a line that b has not

  // In order; the stack is explicit so that no input makes it deep.
  void Within(int a_from, int a_to, int b_from, int b_to, std::vector<Block>* found) {
    std::vector<std::array<int, 4>> open = {{a_from, a_to, b_from, b_to}};
    while (!open.empty()) {
      const auto [a1, a2, b1, b2] = open.back();
      open.pop_back();
      const Block best = Longest(a1, a2, b1, b2);
      if (best.size == 0) {
        continue;
      }
      found->push_back(best);
      if (a1 < best.a && b1 < best.b) {
        open.push_back({a1, best.a, b1, best.b});
      }
      if (best.a + best.size < a2 && best.b + best.size < b2) {
        open.push_back({best.a + best.size, a2, best.b + best.size, b2});
      }
    }
    std::sort(found->begin(), found->end(),
              [](const Block& x, const Block& y) { return x.a < y.a; });
  }

  Block Longest(int a1, int a2, int b1, int b2) {
    Block best = {a1, b1, 0};
    ending_.clear();
    for (int i = a1; i < a2; ++i) {
      if (!cost_->Take()) {
        return {a1, b1, 0};
      }
      Extend(i, b1, b2, &best);
    }
    while (best.a > a1 && best.b > b1 && Same(best.a - 1, best.b - 1)) {
      best = {best.a - 1, best.b - 1, best.size + 1};
    }
    while (best.a + best.size < a2 && best.b + best.size < b2 &&
           Same(best.a + best.size, best.b + best.size)) {
      ++best.size;
    }
    cost_->Take(static_cast<std::size_t>(best.size));
    return best;
  }

  // Makes ending_, the runs that end at line i - 1 of a, those that end at line i.
  void Extend(int i, int b1, int b2, Block* best) {
    now_.clear();
    const int line = a_[static_cast<std::size_t>(i)];
    if (line != kNowhere) {
      const std::vector<int>& places = places_[static_cast<std::size_t>(line)];
      auto before = ending_.begin();
      for (auto j = std::lower_bound(places.begin(), places.end(), b1);
           j != places.end() && *j < b2 && cost_->Take(); ++j) {
        while (before != ending_.end() && before->at < *j - 1) {
          ++before;
        }
        const int size = (before == ending_.end() || before->at != *j - 1 ? 0 : before->size) + 1;
        now_.push_back({*j, size});
        if (size > best->size) {
          *best = {i - size + 1, *j - size + 1, size};
        }
      }
    }
    std::swap(ending_, now_);
  }

  bool Same(int i, int j) const {
    return a_[static_cast<std::size_t>(i)] == b_[static_cast<std::size_t>(j)];
  }

  struct Run {
    int at, size;  // its last line in b
  };

  std::vector<int> a_, b_;                // lines by number: equal lines have the same
  std::vector<std::vector<int>> places_;  // of a line, by its number: where b has it, in order
  std::vector<Run> ending_, now_;         // in order of `at`
  GoTextCost* const cost_;
};

// A step from the old lines to the new ones: equal lines or a change.
struct DiffStep {
  bool equal;
  int a1, a2, b1, b2;
};

std::vector<DiffStep> Steps(const std::vector<Block>& blocks) {
  std::vector<DiffStep> steps;
  int a = 0;
  int b = 0;
  for (const Block& block : blocks) {
    if (a < block.a || b < block.b) {
      steps.push_back({false, a, block.a, b, block.b});
    }
    a = block.a + block.size;
    b = block.b + block.size;
    if (block.size > 0) {
      steps.push_back({true, block.a, a, block.b, b});
    }
  }
  return steps;
}

// Changes that stand close together, with the equal lines around them.
std::vector<std::vector<DiffStep>> Hunks(std::vector<DiffStep> steps) {
  if (steps.empty()) {
    return {};
  }
  if (DiffStep& first = steps.front(); first.equal) {
    first.a1 = std::max(first.a1, first.a2 - kContext);
    first.b1 = std::max(first.b1, first.b2 - kContext);
  }
  if (DiffStep& last = steps.back(); last.equal) {
    last.a2 = std::min(last.a2, last.a1 + kContext);
    last.b2 = std::min(last.b2, last.b1 + kContext);
  }
  std::vector<std::vector<DiffStep>> hunks(1);
  for (DiffStep step : steps) {
    if (step.equal && step.a2 - step.a1 > 2 * kContext) {
      hunks.back().push_back({true, step.a1, step.a1 + kContext, step.b1, step.b1 + kContext});
      hunks.emplace_back();
      step.a1 = step.a2 - kContext;
      step.b1 = step.b2 - kContext;
    }
    hunks.back().push_back(step);
  }
  std::erase_if(hunks, [](const std::vector<DiffStep>& hunk) {
    return hunk.empty() || (hunk.size() == 1 && hunk[0].equal);
  });
  return hunks;
}

std::string RangeText(int from, int to) {
  const int length = to - from;
  if (length == 1) {
    return std::to_string(from + 1);
  }
  return std::to_string(length == 0 ? from : from + 1) + "," + std::to_string(length);
}

void AddLines(const std::vector<std::string_view>& lines, int from, int to, char mark,
              std::string* out) {
  for (int i = from; i < to; ++i) {
    *out += mark;
    out->append(lines[static_cast<std::size_t>(i)]).append("\n");
  }
}

void AddShortened(char mark, std::string_view line, std::string* out) {
  constexpr std::size_t kShown = 200;
  std::size_t size = std::min(line.size(), kShown);
  while (size < line.size() && size > 0 && (line[size] & 0xC0) == 0x80) {
    --size;  // not in the midst of a character
  }
  *out += mark;
  out->append(line.substr(0, size)).append(size < line.size() ? "...\n" : "\n");
}

// What stands in the place of a comparison that costs too much.
std::string FirstDifference(const std::vector<std::string_view>& a,
                            const std::vector<std::string_view>& b) {
  const auto [from, to] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  std::string out = "too large to be compared";
  if (from != a.end() && to != b.end()) {
    out += "; the first lines that differ:\n";
    AddShortened('-', *from, &out);
    AddShortened('+', *to, &out);
  } else {
    out += "\n";
  }
  return out;
}

}  // namespace

std::string GoDiff(std::string_view type, const Json& old, const Json& now, GoTextCost* cost) {
  GoTextCost own;
  cost = cost == nullptr ? &own : cost;
  const std::string old_text = LinesAsGo(type, old, cost);
  const std::string new_text = LinesAsGo(type, now, cost);
  std::vector<std::string_view> a = Lines(old_text);
  std::vector<std::string_view> b = Lines(new_text);
  const std::vector<Block> blocks =
      cost->Spent() ? std::vector<Block>() : Matcher(a, b, cost).Blocks();
  if (cost->Spent()) {
    a.pop_back();  // the texts may end in the midst of a line
    b.pop_back();
    return FirstDifference(a, b);
  }
  std::string out;
  for (const std::vector<DiffStep>& hunk : Hunks(Steps(blocks))) {
    out += "@@ -" + RangeText(hunk.front().a1, hunk.back().a2) + " +" +
           RangeText(hunk.front().b1, hunk.back().b2) + " @@\n";
    for (const DiffStep& step : hunk) {
      if (step.equal) {
        AddLines(a, step.a1, step.a2, ' ', &out);
      } else {
        AddLines(a, step.a1, step.a2, '-', &out);
        AddLines(b, step.b1, step.b2, '+', &out);
      }
    }
  }
  return out;
}

}  // namespace sublet::kube
