#include "kube/yaml_scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kube/ascii.h"
#include "kube/timestamp.h"

namespace sublet::kube {
namespace {

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Go's strconv.ParseInt with base 0, after underscores are dropped: 0x, 0o, 0b and a leading zero.
bool ParseInteger(std::string_view text, Json* out) {
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  int base = 10;
  if (text.size() > 1 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'b' ? 2 : 8;
    text.remove_prefix(base == 8 && mark != 'o' ? 1 : 2);
  }
  std::uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), magnitude, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return false;
  }
  if (negative) {
    if (magnitude > 1ull << 63) {
      return false;
    }
    *out = static_cast<std::int64_t>(0 - magnitude);
  } else if (magnitude <= static_cast<std::uint64_t>(INT64_MAX)) {
    *out = static_cast<std::int64_t>(magnitude);
  } else {
    *out = magnitude;
  }
  return true;
}

// [-+]? ( .digits | digits [. digits*] ) ( [eE] [-+]? digits )?
bool HasFloatShape(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t start = i;
    while (i < text.size() && IsDigit(text[i])) {
      ++i;
    }
    return i - start;
  };
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) {
    ++i;
  }
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0) {
      return false;
    }
  } else {
    if (digits() == 0) {
      return false;
    }
    if (i < text.size() && text[i] == '.') {
      ++i;
      digits();
    }
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) {
      ++i;
    }
    if (digits() == 0) {
      return false;
    }
  }
  return i == text.size();
}

bool ParseFloat(std::string_view text, Json* out) {
  if (!HasFloatShape(text)) {
    return false;
  }
  if (text[0] == '+') {
    text.remove_prefix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return false;
  }
  // A whole number that a float spells (1e3, 2.0) leaves Go's encoder as an integer.
  if (value == std::floor(value) && std::fabs(value) < 9e15) {
    *out = static_cast<std::int64_t>(value);
  } else {
    *out = value;
  }
  return true;
}

Json ResolvePlain(const std::string& text) {
  if (text.empty() || IsOneOf(text, {"~", "null", "Null", "NULL"})) {
    return nullptr;
  }
  if (IsOneOf(text, {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})) {
    return true;
  }
  if (IsOneOf(text, {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})) {
    return false;
  }
  if (IsDigit(text[0]) || text[0] == '-' || text[0] == '+' || text[0] == '.') {
    std::string digits = text;
    std::erase(digits, '_');
    Json number;
    if (!digits.empty() && (ParseInteger(digits, &number) || ParseFloat(digits, &number))) {
      return number;
    }
  }
  return text;
}

std::string BinaryText(const std::string& text) {
  static constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned buffer = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) {
      continue;
    }
    buffer = (buffer << 6) | static_cast<unsigned>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<char>((buffer >> bits) & 0xff));
    }
  }
  return out;
}

// True when the plain spelling of `text` reads back as this string.
bool IsPlainSafe(const std::string& text) {
  if (text.empty() || !ResolvePlain(text).is_string()) {
    return false;
  }
  static constexpr std::string_view kBadFirst = "-?:,[]{}#&*!|>'\"%@` =";
  if (kBadFirst.find(text[0]) != std::string_view::npos) {
    const bool dash_word = (text[0] == '-' || text[0] == '?' || text[0] == ':') &&
                           text.size() > 1 && text[1] != ' ' && text != "---";
    if (!dash_word) {
      return false;
    }
  }
  // Go's emitter quotes what could be read as a base 60 number or a date.
  if (IsDigit(text[0]) && text.find_first_not_of("0123456789:-.TZ ") == std::string::npos &&
      (text.find(':') != std::string::npos || std::count(text.begin(), text.end(), '-') == 2)) {
    return false;
  }
  if (text.back() == ' ' || text.back() == ':' || text == "<<") {
    return false;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) {
      return false;
    }
    if (c == ':' && i + 1 < text.size() && text[i + 1] == ' ') {
      return false;
    }
    if (c == '#' && i > 0 && text[i - 1] == ' ') {
      return false;
    }
  }
  return true;
}

}  // namespace

Json ResolveYamlScalar(std::string_view tag, const std::string& text) {
  if (tag == "!" || tag.ends_with(",2002:str")) {
    return text;
  }
  if (tag.ends_with(",2002:binary")) {
    return BinaryText(text);
  }
  if (tag.ends_with(",2002:float")) {
    Json number;
    if (ParseFloat(text, &number)) {
      return number;
    }
  }
  return ResolvePlain(text);
}

std::string YamlKeyText(const Json& value, const std::string& text) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_null()) {
    return text.empty() ? "null" : text;
  }
  return Dump(value);
}

std::string FormatYamlString(const std::string& text, int indent) {
  if (IsPlainSafe(text)) {
    return text;
  }
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 ? c != 0x7f : c == '\n' || c == '\t';
  });
  if (printable && text.find('\n') != std::string::npos && text[0] != ' ' && text[0] != '\n' &&
      text[0] != '\t' && text.find(" \n") == std::string::npos && text.back() != ' ') {
    std::string out = "|";
    if (text.back() != '\n') {
      out += "-";
    } else if (text.size() > 1 && text[text.size() - 2] == '\n') {
      out += "+";
    }
    std::size_t start = 0;
    while (start < text.size()) {
      const std::size_t end = std::min(text.find('\n', start), text.size());
      out.push_back('\n');
      if (end > start) {
        out.append(static_cast<std::size_t>(std::max(indent, 2)), ' ');
        out.append(text, start, end - start);
      }
      start = end + 1;
    }
    return out;
  }
  if (printable && text.find('\n') == std::string::npos && text.find('\t') == std::string::npos &&
      text.find('\'') == std::string::npos) {
    const Json plain = ResolvePlain(text);
    // A time would come back as one from a reader that knows YAML's timestamps.
    const bool resolves = !plain.is_string() || text.empty() || ParseTime(text).ok();
    return resolves ? "\"" + text + "\"" : "'" + text + "'";
  }
  std::string out;
  AppendJsonString(text, &out);
  return out;
}

}  // namespace sublet::kube
