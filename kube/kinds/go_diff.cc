#include "kube/kinds/go_diff.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "kube/kinds/go_types.h"

namespace sublet::kube {
namespace {

constexpr std::size_t kLinesMax = 20000;
constexpr int kContext = 3;

const Json& Member(const Json& object, std::string_view key) {
  static const Json kNull;
  const Json* value = Find(object, {key});
  return value == nullptr ? kNull : *value;
}

// A pod's namespaces of the host stand beside its security context in requests and inside it here.
Json WithHostFields(const Json& spec) {
  Json out = spec;
  for (const char* key :
       {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"}) {
    if (!Member(spec, key).is_null()) {
      out["securityContext"][key] = Member(spec, key);
    }
  }
  return out;
}

// Text as Go's encoder writes it: '<', '>' and '&' escaped for browsers.
std::string Quoted(const Json& text) {
  std::string out;
  for (const char c : Dump(text)) {
    switch (c) {
      case '<': out += "\\u003c"; break;
      case '>': out += "\\u003e"; break;
      case '&': out += "\\u0026"; break;
      default: out += c;
    }
  }
  return out;
}

class Printer {
 public:
  explicit Printer(bool pretty) : pretty_(pretty) {}

  void Value(std::string_view type, const Json& value, int depth) {
    switch (type.empty() ? 'j' : type[0]) {
      case '*': return value.is_null() ? Text("null") : Value(type.substr(1), value, depth);
      case '[': return List(type.substr(1), value, depth);
      case '{': return Map(type.substr(1), value, depth);
      case 's': return Text(value.is_null() ? "\"\"" : Quoted(value));
      case 'i': return Text(value.is_null() ? "0" : Dump(value));
      case 'b': return Text(value.is_null() ? "false" : Dump(value));
      case 'q': return Text(value.is_null() ? "\"0\"" : Quoted(value));
      case 'x': return Text(value.is_null() ? "0" : Quoted(value));
      case 't':
      case 'j': return Any(value, depth);
      default: return Struct(type, value, depth);
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  void Text(std::string_view text) { out_ += text; }

  // Go to the next item; `first` when none was printed yet.
  void Next(bool first, int depth) {
    out_ += first ? "" : ",";
    Line(depth);
  }

  void Line(int depth) {
    if (pretty_) {
      out_ += '\n';
      out_.append(static_cast<std::size_t>(depth), ' ');
    }
  }

  void Key(std::string_view key) {
    out_ += Quoted(Json(key));
    out_ += pretty_ ? ": " : ":";
  }

  void List(std::string_view type, const Json& value, int depth) {
    if (!value.is_array()) {
      return Text("null");
    }
    out_ += '[';
    bool first = true;
    for (const Json& item : value) {
      Next(first, depth + 1);
      Value(type, item, depth + 1);
      first = false;
    }
    Close(first, ']', depth);
  }

  void Map(std::string_view type, const Json& value, int depth) {
    if (!value.is_object()) {
      return Text("null");
    }
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : value.items()) {
      Next(first, depth + 1);
      Key(key);
      Value(type, item, depth + 1);
      first = false;
    }
    Close(first, '}', depth);
  }

  void Close(bool empty, char bracket, int depth) {
    if (!empty) {
      Line(depth);
    }
    out_ += bracket;
  }

  void Any(const Json& value, int depth) {
    if (value.is_object()) {
      Map("j", value, depth);
    } else if (value.is_array()) {
      List("j", value, depth);
    } else {
      Text(Quoted(value));
    }
  }

  void Struct(std::string_view type, const Json& value, int depth) {
    const std::size_t start = kGoTypes.find("\n@" + std::string(type) + "\n");
    if (start == std::string_view::npos) {
      return Any(value, depth);
    }
    const Json merged = type == "PodSpec" ? WithHostFields(value) : Json();
    const Json& object = type == "PodSpec" ? merged : value;
    std::string_view rest = kGoTypes.substr(start + type.size() + 3);
    out_ += '{';
    bool first = true;
    while (!rest.empty() && rest[0] != '\n') {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(line.size() + 1);
      first = Field(line, object, first, depth + 1) && first;
    }
    Close(first, '}', depth);
  }

  // True when the field was left out.
  bool Field(std::string_view line, const Json& object, bool first, int depth) {
    const auto word = [&line] {
      const std::string_view found = line.substr(0, line.find(' '));
      line.remove_prefix(std::min(line.size(), found.size() + 1));
      return found;
    };
    const std::string_view shown = word();
    const std::string_view sent = word();
    const std::string_view type = word();
    const std::size_t slash = sent.find('/');
    const Json& value = slash == std::string_view::npos
                            ? Member(object, sent)
                            : Member(Member(object, sent.substr(0, slash)), sent.substr(slash + 1));
    const bool none = value.is_null() || (value.is_string() && value.empty()) ||
                      ((value.is_array() || value.is_object()) && value.empty());
    const bool zero = none || value == Json(0) || value == Json(false);
    const bool is_struct = std::string_view("*[{sibqtxj").find(type[0]) == std::string_view::npos;
    if ((line.find('o') != std::string_view::npos && zero && !is_struct && type != "t") ||
        (line.find('z') != std::string_view::npos && value.is_null())) {
      return true;
    }
    Next(first, depth);
    Key(shown);
    Value(type, value, depth);
    return false;
  }

  const bool pretty_;
  std::string out_;
};

std::string Printed(std::string_view type, const Json& value, bool pretty) {
  std::string coded(type);
  for (std::size_t at = 0; (at = coded.find("[]", at)) != std::string::npos; ++at) {
    coded.erase(at + 1, 1);
  }
  Printer printer(pretty);
  printer.Value(coded, value, 0);
  return printer.Take();
}

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
  Matcher(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b)
      : a_(a), b_(b) {
    constexpr std::size_t kPopularFrom = 200;
    for (std::size_t i = 0; i < b.size(); ++i) {
      places_[b[i]].push_back(static_cast<int>(i));
    }
    if (b.size() >= kPopularFrom) {
      std::erase_if(places_,
                    [&](const auto& place) { return place.second.size() > b.size() / 100 + 1; });
    }
  }

  // Runs in order, touching ones joined, ended by an empty one.
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
    std::map<int, int> ending;  // length of the run that ends at this line of b
    for (int i = a1; i < a2; ++i) {
      std::map<int, int> now;
      const auto place = places_.find(a_[static_cast<std::size_t>(i)]);
      for (const int j : place == places_.end() ? std::vector<int>() : place->second) {
        if (j < b1 || j >= b2) {
          continue;
        }
        const auto before = ending.find(j - 1);
        const int size = (before == ending.end() ? 0 : before->second) + 1;
        now[j] = size;
        if (size > best.size) {
          best = {i - size + 1, j - size + 1, size};
        }
      }
      ending = std::move(now);
    }
    while (best.a > a1 && best.b > b1 && Same(best.a - 1, best.b - 1)) {
      best = {best.a - 1, best.b - 1, best.size + 1};
    }
    while (best.a + best.size < a2 && best.b + best.size < b2 &&
           Same(best.a + best.size, best.b + best.size)) {
      ++best.size;
    }
    return best;
  }

  bool Same(int i, int j) const {
    return a_[static_cast<std::size_t>(i)] == b_[static_cast<std::size_t>(j)];
  }

  const std::vector<std::string_view>& a_;
  const std::vector<std::string_view>& b_;
  std::map<std::string_view, std::vector<int>> places_;
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

}  // namespace

std::string ShownAsGo(std::string_view type, const Json& value) {
  return Printed(type, value, false);
}

std::string GoDiff(std::string_view type, const Json& old, const Json& now) {
  const std::string old_text = Printed(type, old, true);
  const std::string new_text = Printed(type, now, true);
  const std::vector<std::string_view> a = Lines(old_text);
  const std::vector<std::string_view> b = Lines(new_text);
  if (std::max(a.size(), b.size()) > kLinesMax) {
    return "";
  }
  std::string out;
  for (const std::vector<DiffStep>& hunk : Hunks(Steps(Matcher(a, b).Blocks()))) {
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
