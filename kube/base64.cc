#include "kube/base64.h"

#include <array>
#include <cstdint>

namespace sublet::kube {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> MakeReverse() {
  std::array<std::int8_t, 256> table{};
  for (auto& one : table) {
    one = -1;
  }
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    table[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  }
  return table;
}
constexpr std::array<std::int8_t, 256> kReverse = MakeReverse();

}  // namespace

std::string EncodeBase64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = bytes.size() - i;
    std::uint32_t group = static_cast<unsigned char>(bytes[i]) << 16;
    group |= left > 1 ? static_cast<unsigned char>(bytes[i + 1]) << 8 : 0;
    group |= left > 2 ? static_cast<unsigned char>(bytes[i + 2]) : 0;
    out.push_back(kAlphabet[group >> 18]);
    out.push_back(kAlphabet[group >> 12 & 63]);
    out.push_back(left > 1 ? kAlphabet[group >> 6 & 63] : '=');
    out.push_back(left > 2 ? kAlphabet[group & 63] : '=');
  }
  return out;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t group = 0;
  int digits = 0;
  int padding = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      continue;
    }
    const int value = kReverse[static_cast<unsigned char>(c)];
    if (c == '=') {
      ++padding;
    } else if (value < 0 || padding > 0) {
      return std::nullopt;
    }
    group = group << 6 | static_cast<std::uint32_t>(value < 0 ? 0 : value);
    if (++digits == 4) {
      out.push_back(static_cast<char>(group >> 16));
      out.push_back(static_cast<char>(group >> 8));
      out.push_back(static_cast<char>(group));
      digits = 0;
      group = 0;
    }
  }
  if (digits != 0 || padding > 2) {
    return std::nullopt;
  }
  out.resize(out.size() - static_cast<std::size_t>(padding));
  return out;
}

}  // namespace sublet::kube
