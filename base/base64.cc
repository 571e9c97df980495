#include "base/base64.h"

#include <array>
#include <cstdint>

namespace sublet {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> MakeTable() {
  std::array<std::int8_t, 256> table{};
  for (auto& value : table) {
    value = -1;
  }
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    table[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  }
  return table;
}
constexpr std::array<std::int8_t, 256> kTable = MakeTable();

}  // namespace

std::string EncodeBase64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  const auto at = [&](std::size_t i) -> std::uint32_t {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
  };
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::uint32_t bits = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    out += kDigits[bits >> 18];
    out += kDigits[(bits >> 12) & 63];
    out += i + 1 < bytes.size() ? kDigits[(bits >> 6) & 63] : '=';
    out += i + 2 < bytes.size() ? kDigits[bits & 63] : '=';
  }
  return out;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int digits = 0;
  int padding = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      continue;
    }
    if (c == '=') {
      ++padding;
      continue;
    }
    const std::int8_t value = kTable[static_cast<unsigned char>(c)];
    if (value < 0 || padding > 0) {
      return std::nullopt;
    }
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (++digits % 4 == 0) {
      out += static_cast<char>(bits >> 16);
      out += static_cast<char>(bits >> 8);
      out += static_cast<char>(bits);
      bits = 0;
    }
  }
  const int rest = digits % 4;
  if (rest == 1 || (rest == 0 ? padding != 0 : padding != 4 - rest)) {
    return std::nullopt;
  }
  if (rest >= 2) {
    bits <<= 6 * (4 - rest);
    out += static_cast<char>(bits >> 16);
    if (rest == 3) {
      out += static_cast<char>(bits >> 8);
    }
  }
  return out;
}

}  // namespace sublet
