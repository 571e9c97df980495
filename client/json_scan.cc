#include "client/json_scan.h"

#include <nlohmann/json.hpp>

#include "kube/json.h"

namespace sublet::client {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::size_t SkipSpace(std::string_view text, std::size_t at) {
  while (at < text.size() && IsSpace(text[at])) {
    ++at;
  }
  return at;
}

// `at` is on the opening quote; returns the place behind the closing one.
std::size_t SkipString(std::string_view text, std::size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return kNone;
}

// Returns the place behind the value that starts at `at`.
std::size_t SkipValue(std::string_view text, std::size_t at) {
  if (at >= text.size()) {
    return kNone;
  }
  if (text[at] == '"') {
    return SkipString(text, at);
  }
  if (text[at] != '{' && text[at] != '[') {
    const std::size_t start = at;
    while (at < text.size() && text[at] != ',' && text[at] != '}' && text[at] != ']' &&
           !IsSpace(text[at])) {
      ++at;
    }
    return at > start ? at : kNone;
  }
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = SkipString(text, at);
      if (at == kNone) {
        return kNone;
      }
      continue;
    }
    ++at;
    if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return at;
    }
  }
  return kNone;
}

// Walks the items between `open` and `close`; `item(at)` returns the place behind one, kNone to end
// as malformed, or sets *stop.
bool Walk(std::string_view text, char open, char close,
          const std::function<std::size_t(std::size_t at, bool* stop)>& item) {
  std::size_t at = SkipSpace(text, 0);
  if (at >= text.size() || text[at] != open) {
    return false;
  }
  at = SkipSpace(text, at + 1);
  if (at < text.size() && text[at] == close) {
    return true;
  }
  for (;;) {
    bool stop = false;
    at = item(at, &stop);
    if (stop) {
      return true;
    }
    if (at == kNone) {
      return false;
    }
    at = SkipSpace(text, at);
    if (at >= text.size()) {
      return false;
    }
    if (text[at] == close) {
      return true;
    }
    if (text[at] != ',') {
      return false;
    }
    at = SkipSpace(text, at + 1);
  }
}

}  // namespace

bool ForEachMember(std::string_view text,
                   const std::function<bool(std::string_view, std::string_view)>& member) {
  return Walk(text, '{', '}', [&](std::size_t at, bool* stop) {
    if (at >= text.size() || text[at] != '"') {
      return kNone;
    }
    const std::size_t key_end = SkipString(text, at);
    if (key_end == kNone) {
      return kNone;
    }
    const std::string_view key = text.substr(at + 1, key_end - at - 2);
    at = SkipSpace(text, key_end);
    if (at >= text.size() || text[at] != ':') {
      return kNone;
    }
    at = SkipSpace(text, at + 1);
    const std::size_t end = SkipValue(text, at);
    if (end != kNone) {
      *stop = !member(key, text.substr(at, end - at));
    }
    return end;
  });
}

bool ForEachElement(std::string_view text, const std::function<bool(std::string_view)>& element) {
  return Walk(text, '[', ']', [&](std::size_t at, bool* stop) {
    const std::size_t end = SkipValue(text, at);
    if (end != kNone) {
      *stop = !element(text.substr(at, end - at));
    }
    return end;
  });
}

std::string_view FindMember(std::string_view text, std::string_view key) {
  std::string_view found;
  ForEachMember(text, [&](std::string_view name, std::string_view value) {
    if (name == key) {
      found = value;
      return false;
    }
    return true;
  });
  return found;
}

std::optional<std::string> StringValue(std::string_view encoded) {
  if (encoded.size() < 2 || encoded.front() != '"' || encoded.back() != '"') {
    return std::nullopt;
  }
  if (encoded.find('\\') == kNone) {
    return std::string(encoded.substr(1, encoded.size() - 2));
  }
  const auto parsed = kube::ParseJson(encoded);
  if (!parsed.ok() || !parsed->is_string()) {
    return std::nullopt;
  }
  return parsed->get<std::string>();
}

}  // namespace sublet::client
