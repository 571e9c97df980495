#include "apiserver/crd/json_path.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace sublet::apiserver {

class JsonPath::Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<JsonPath> Run() {
    constexpr std::size_t kStepsMax = 64;
    JsonPath path;
    if (rest_.starts_with('$')) {
      rest_.remove_prefix(1);
    }
    while (!rest_.empty()) {
      if (path.steps_.size() >= kStepsMax) {
        return BadRequest("path is too long");
      }
      Step step;
      if (rest_.front() == '.') {
        rest_.remove_prefix(1);
        if (rest_.empty()) {
          break;  // "." is the whole object
        }
        if (rest_.front() == '[') {
          continue;
        }
        SUBLET_RETURN_IF_ERROR(Name(step));
      } else if (rest_.front() == '[') {
        SUBLET_RETURN_IF_ERROR(Bracket(step));
      } else if (path.steps_.empty()) {
        SUBLET_RETURN_IF_ERROR(Name(step));
      } else {
        return BadRequest("unexpected character in path");
      }
      path.steps_.push_back(std::move(step));
    }
    return path;
  }

 private:
  Result<void> Name(Step& step) {
    if (rest_.front() == '*') {
      rest_.remove_prefix(1);
      step.kind = Kind::kAll;
      return Ok();
    }
    while (!rest_.empty() && rest_.front() != '.' && rest_.front() != '[') {
      const char c = rest_.front();
      if (c == ' ' || c == '{' || c == '}' || c == '(' || c == ')' || c == '|') {
        return BadRequest("unexpected character in path");
      }
      if (c == '\\' && rest_.size() > 1) {
        rest_.remove_prefix(1);
      }
      step.name += rest_.front();
      rest_.remove_prefix(1);
    }
    if (step.name.empty()) {
      return BadRequest("empty name in path");
    }
    return Ok();
  }

  Result<void> Bracket(Step& step) {
    // The closing bracket, not counting those inside quotes.
    char quote = 0;
    std::size_t end = 1;
    for (; end < rest_.size(); ++end) {
      const char c = rest_[end];
      if (quote != 0) {
        quote = c == quote ? 0 : quote;
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if (c == ']') {
        break;
      }
    }
    if (end >= rest_.size()) {
      return BadRequest("unterminated array");
    }
    std::string_view inside = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    if (inside == "*" || inside == ":") {
      step.kind = Kind::kAll;
      return Ok();
    }
    if (inside.size() >= 2 && (inside.front() == '\'' || inside.front() == '"') &&
        inside.back() == inside.front()) {
      step.name = std::string(inside.substr(1, inside.size() - 2));
      return Ok();
    }
    if (inside.starts_with("?(") && inside.ends_with(")")) {
      return Filter(inside.substr(2, inside.size() - 3), step);
    }
    step.kind = Kind::kIndex;
    const auto parsed = std::from_chars(inside.data(), inside.data() + inside.size(), step.index);
    if (parsed.ec != std::errc() || parsed.ptr != inside.data() + inside.size()) {
      return BadRequest("invalid array index " + std::string(inside));
    }
    return Ok();
  }

  static std::string_view Trim(std::string_view text) {
    while (!text.empty() && text.front() == ' ') {
      text.remove_prefix(1);
    }
    while (!text.empty() && text.back() == ' ') {
      text.remove_suffix(1);
    }
    return text;
  }

  Result<void> Filter(std::string_view text, Step& step) {
    step.kind = Kind::kFilter;
    std::size_t at = std::string_view::npos;
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
      const auto found = text.find(op);
      if (found != std::string_view::npos && (at == std::string_view::npos || found < at)) {
        at = found;
        step.op = op;
      }
    }
    const auto left = Trim(text.substr(0, at));
    if (!left.starts_with('@')) {
      return BadRequest("filter must begin with @");
    }
    SUBLET_TRY(const JsonPath path, Parser(left.substr(1)).Run());
    if (!path.IsPlain()) {
      return BadRequest("unsupported filter");
    }
    step.left = path.Names();
    if (step.op.empty()) {
      return Ok();
    }
    std::string_view right = Trim(text.substr(at + step.op.size()));
    if (right.size() >= 2 && (right.front() == '\'' || right.front() == '"') &&
        right.back() == right.front()) {
      step.literal =
          std::make_shared<const kube::Json>(std::string(right.substr(1, right.size() - 2)));
      return Ok();
    }
    auto literal = kube::ParseJson(right);
    if (!literal.ok()) {
      return BadRequest("unrecognized literal in filter");
    }
    step.literal = std::make_shared<const kube::Json>(std::move(*literal));
    return Ok();
  }

  std::string_view rest_;
};

Result<JsonPath> JsonPath::Parse(std::string_view text) {
  if (text.empty()) {
    return BadRequest("path is empty");
  }
  return Parser(text).Run();
}

bool JsonPath::IsPlain() const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return step.kind == Kind::kName; });
}

std::vector<std::string> JsonPath::Names() const {
  std::vector<std::string> names;
  for (const auto& step : steps_) {
    names.push_back(step.name);
  }
  return names;
}

bool JsonPath::Passes(const Step& step, const kube::Json& item) {
  const kube::Json* value = &item;
  for (const auto& name : step.left) {
    if (!value->is_object()) {
      return false;
    }
    const auto it = value->find(name);
    if (it == value->end()) {
      return false;
    }
    value = &*it;
  }
  if (step.op.empty()) {
    return true;
  }
  const kube::Json& literal = *step.literal;
  if (step.op == "==") {
    return *value == literal;
  }
  if (step.op == "!=") {
    return *value != literal;
  }
  const bool comparable =
      (value->is_number() && literal.is_number()) || (value->is_string() && literal.is_string());
  if (!comparable) {
    return false;
  }
  if (step.op == "<") {
    return *value < literal;
  }
  if (step.op == "<=") {
    return *value <= literal;
  }
  return step.op == ">" ? *value > literal : *value >= literal;
}

std::vector<const kube::Json*> JsonPath::Find(const kube::Json& value) const {
  constexpr std::size_t kFoundMax = 1000;
  std::vector<const kube::Json*> found = {&value};
  for (const auto& step : steps_) {
    std::vector<const kube::Json*> next;
    for (const kube::Json* at : found) {
      if (next.size() >= kFoundMax) {
        break;
      }
      switch (step.kind) {
        case Kind::kName:
          if (at->is_object()) {
            if (const auto it = at->find(step.name); it != at->end()) {
              next.push_back(&*it);
            }
          }
          break;
        case Kind::kIndex: {
          if (!at->is_array()) {
            break;
          }
          const auto size = static_cast<std::int64_t>(at->size());
          const std::int64_t index = step.index < 0 ? size + step.index : step.index;
          if (index >= 0 && index < size) {
            next.push_back(&(*at)[static_cast<std::size_t>(index)]);
          }
          break;
        }
        case Kind::kAll:
        case Kind::kFilter:
          if (!at->is_structured()) {
            break;
          }
          for (const auto& item : *at) {
            if (step.kind == Kind::kAll || Passes(step, item)) {
              next.push_back(&item);
            }
          }
      }
    }
    found = std::move(next);
  }
  return found;
}

}  // namespace sublet::apiserver
