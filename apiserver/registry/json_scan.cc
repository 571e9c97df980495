#include "apiserver/registry/json_scan.h"

#include <charconv>

namespace sublet::apiserver {
namespace {

std::size_t SkipString(std::string_view text, std::size_t begin) {
  std::size_t at = begin + 1;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '\\') {
      at += 2;
    } else if (c == '"') {
      return at + 1;
    } else {
      ++at;
    }
  }
  return text.size();
}

void AppendUtf8(std::uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

}  // namespace

std::size_t SkipValue(std::string_view text, std::size_t begin) {
  if (begin >= text.size()) {
    return text.size();
  }
  const char first = text[begin];
  if (first == '"') {
    return SkipString(text, begin);
  }
  if (first != '{' && first != '[') {
    std::size_t at = begin;
    while (at < text.size() && text[at] != ',' && text[at] != '}' && text[at] != ']') {
      ++at;
    }
    return at;
  }
  std::size_t depth = 0;
  std::size_t at = begin;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = SkipString(text, at);
      continue;
    }
    ++at;
    if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) {
        return at;
      }
    }
  }
  return text.size();
}

std::optional<MemberSpan> FindMember(std::string_view text, std::string_view key) {
  std::optional<MemberSpan> found;
  if (text.empty() || text[0] != '{') {
    return found;
  }
  ForEachMember(text, [&](std::string_view name, MemberSpan span) {
    if (name == key) {
      found = span;
      return false;
    }
    return true;
  });
  return found;
}

std::string ScalarText(std::string_view value) {
  if (value.empty() || value == "null") {
    return "";
  }
  if (value.front() != '"') {
    return std::string(value);
  }
  value.remove_prefix(1);
  if (!value.empty()) {
    value.remove_suffix(1);
  }
  if (value.find('\\') == std::string_view::npos) {
    return std::string(value);
  }
  std::string out;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] != '\\' || i + 1 >= value.size()) {
      out += value[i];
      continue;
    }
    const char c = value[++i];
    switch (c) {
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case 'r': out += '\r'; break;
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'u': {
        std::uint32_t code = 0;
        const auto hex = value.substr(i + 1, 4);
        std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
        i += 4;
        AppendUtf8(code, out);
        break;
      }
      default: out += c;
    }
  }
  return out;
}

}  // namespace sublet::apiserver
