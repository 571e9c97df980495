#include "kube/quantity.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kube/ascii.h"

namespace sublet::kube {
namespace {

__extension__ using Int128 = __int128;

constexpr Int128 kNano = 1'000'000'000;
// The largest magnitude in billionths; leaves room to add two of them without overflow.
constexpr Int128 kMax = (static_cast<Int128>(1) << 126) - 1;
constexpr Int128 kInt64Max = INT64_MAX;

constexpr std::string_view kFormatWrong =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

struct Parts {
  bool negative = false;
  std::string_view num;    // without leading zeros; "0" when nothing is left
  std::string_view denom;  // digits after the point
  std::string_view suffix;
};

bool Split(std::string_view text, Parts* parts) {
  std::size_t pos = 0;
  if (text[0] == '-' || text[0] == '+') {
    parts->negative = text[0] == '-';
    pos = 1;
  }
  while (pos < text.size() && text[pos] == '0') {
    ++pos;
  }
  std::size_t start = pos;
  while (pos < text.size() && IsDigit(text[pos])) {
    ++pos;
  }
  parts->num = pos > start ? text.substr(start, pos - start) : "0";
  if (pos < text.size() && text[pos] == '.') {
    start = ++pos;
    while (pos < text.size() && IsDigit(text[pos])) {
      ++pos;
    }
    parts->denom = text.substr(start, pos - start);
  }
  start = pos;
  while (pos < text.size() &&
         std::string_view("eEinumkKMGTP").find(text[pos]) != std::string_view::npos) {
    ++pos;
  }
  if (pos < text.size() && (text[pos] == '-' || text[pos] == '+')) {
    ++pos;
  }
  while (pos < text.size() && IsDigit(text[pos])) {
    ++pos;
  }
  parts->suffix = text.substr(start, pos - start);
  return pos == text.size();
}

struct Scale {
  Quantity::Format format = Quantity::Format::kDecimalSi;
  int exponent = 0;  // of 10, or of 2 for kBinarySi
};

bool Interpret(std::string_view suffix, Scale* scale) {
  static constexpr std::string_view kDecimal[] = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E"};
  static constexpr std::string_view kBinary[] = {"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  for (int i = 0; i < 10; ++i) {
    if (suffix == kDecimal[i]) {
      *scale = {Quantity::Format::kDecimalSi, (i - 3) * 3};
      return true;
    }
  }
  for (int i = 0; i < 6; ++i) {
    if (suffix == kBinary[i]) {
      *scale = {Quantity::Format::kBinarySi, (i + 1) * 10};
      return true;
    }
  }
  if (suffix.size() > 1 && (suffix[0] == 'e' || suffix[0] == 'E')) {
    std::string_view digits = suffix.substr(1);
    if (digits[0] == '+') {
      digits.remove_prefix(1);
    }
    int exponent = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
      return false;
    }
    *scale = {Quantity::Format::kDecimalExponent, exponent};
    return true;
  }
  return false;
}

Int128 Saturate(Int128 value) { return std::clamp(value, -kMax, kMax); }

// digits * 10^exponent in billionths, rounded up; `factor` multiplies before rounding.
Int128 ToNanos(std::string_view num, std::string_view denom, int exponent, Int128 factor) {
  Int128 value = 0;
  bool rest = false;  // digits that no longer fit, below the last kept one
  int scale = exponent + 9 - static_cast<int>(denom.size());
  int dropped = 0;
  for (const std::string_view part : {num, denom}) {
    for (const char c : part) {
      if (value > kMax / 2048) {
        rest |= c != '0';
        ++dropped;
      } else {
        value = value * 10 + (c - '0');
      }
    }
  }
  scale += dropped;
  while (factor > 1) {  // powers of 1024; saturating
    value = value > kMax / 1024 ? kMax : value * 1024;
    factor /= 1024;
  }
  if (value == 0) {
    return rest ? 1 : 0;
  }
  for (; scale > 0; --scale) {
    if (value > kMax / 10) {
      return kMax;
    }
    value *= 10;
  }
  for (; scale < 0 && value > 0; ++scale) {
    rest |= value % 10 != 0;
    value /= 10;
  }
  return value + (rest ? 1 : 0);
}

std::string Digits(Int128 value) {
  if (value == 0) {
    return "0";
  }
  const bool negative = value < 0;
  std::string text;
  for (Int128 left = negative ? -value : value; left > 0; left /= 10) {
    text.push_back(static_cast<char>('0' + static_cast<int>(left % 10)));
  }
  if (negative) {
    text.push_back('-');
  }
  std::reverse(text.begin(), text.end());
  return text;
}

std::string DecimalText(Int128 nanos, bool exponent_form) {
  static constexpr std::string_view kSuffix[] = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E"};
  int step = 0;
  while (step < 9 && nanos % 1000 == 0) {
    nanos /= 1000;
    ++step;
  }
  std::string text = Digits(nanos);
  if (!exponent_form) {
    return text.append(kSuffix[step]);
  }
  const int exponent = (step - 3) * 3;
  return exponent == 0 ? text : text + "e" + std::to_string(exponent);
}

std::int64_t Rounded(Int128 nanos, Int128 unit) {
  Int128 value = nanos / unit;
  if (nanos % unit != 0) {
    value += nanos < 0 ? -1 : 1;
  }
  return static_cast<std::int64_t>(std::clamp(value, -kInt64Max - 1, kInt64Max));
}

}  // namespace

Quantity Quantity::FromInt(std::int64_t value, Format format) {
  Quantity quantity;
  quantity.nanos_ = static_cast<Int128>(value) * kNano;
  quantity.format_ = format;
  return quantity;
}

Quantity Quantity::FromMilli(std::int64_t milli, Format format) {
  Quantity quantity;
  quantity.nanos_ = static_cast<Int128>(milli) * (kNano / 1000);
  quantity.format_ = format;
  return quantity;
}

Result<Quantity> Quantity::Parse(std::string_view text) {
  Parts parts;
  if (text.empty() || !Split(text, &parts)) {
    return BadRequest(kFormatWrong);
  }
  Scale scale;
  if (!Interpret(parts.suffix, &scale)) {
    return BadRequest("unable to parse quantity's suffix");
  }
  const bool binary = scale.format == Format::kBinarySi;
  Quantity quantity;
  quantity.format_ = scale.format;
  quantity.nanos_ = ToNanos(parts.num, parts.denom, binary ? 0 : scale.exponent,
                            binary ? static_cast<Int128>(1) << scale.exponent : 1);
  // Where Kubernetes keeps the text as it came instead of spelling the number anew.
  const auto num = static_cast<int>(parts.num.size());
  const auto denom = static_cast<int>(parts.denom.size());
  if (binary) {
    if (denom == 0 && 14 - num - scale.exponent * 3 / 10 >= 0) {
      std::int64_t value = 0;
      std::from_chars(parts.num.data(), parts.num.data() + num, value);
      if ((value & 7) != 0) {
        quantity.text_ = text;
      }
    }
    if (quantity.nanos_ > kInt64Max * kNano) {
      quantity.nanos_ = kInt64Max * kNano;
    }
    if (quantity.nanos_ < kNano && quantity.nanos_ > 0) {
      quantity.format_ = Format::kDecimalSi;
    }
  } else if (num + denom <= 18 && scale.exponent - denom >= -9 &&
             (scale.exponent - denom) % 3 == 0 && parts.num[0] != '0') {
    const std::string shifted = std::string(parts.num).append(parts.denom);
    if (!shifted.ends_with("000")) {
      quantity.text_ = text;
    }
  }
  if (parts.negative) {
    quantity.nanos_ = -quantity.nanos_;
  }
  return quantity;
}

Quantity Quantity::ParseOrZero(std::string_view text) {
  auto parsed = Parse(text);
  return parsed.ok() ? std::move(parsed).value() : Quantity();
}

std::string Quantity::Text() const {
  if (!text_.empty()) {
    return text_;
  }
  if (nanos_ == 0) {
    return "0";
  }
  const bool small = nanos_ > -1024 * kNano && nanos_ < 1024 * kNano;
  if (format_ != Format::kBinarySi || small || nanos_ % kNano != 0) {
    return DecimalText(nanos_, format_ == Format::kDecimalExponent);
  }
  static constexpr std::string_view kSuffix[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  Int128 value = nanos_ / kNano;
  int step = 0;
  while (step < 6 && value % 1024 == 0) {
    value /= 1024;
    ++step;
  }
  return Digits(value).append(kSuffix[step]);
}

std::int64_t Quantity::Value() const { return Rounded(nanos_, kNano); }
std::int64_t Quantity::MilliValue() const { return Rounded(nanos_, kNano / 1000); }
double Quantity::AsDouble() const { return static_cast<double>(nanos_) / 1e9; }
bool Quantity::IsInteger() const { return nanos_ % kNano == 0; }

Quantity& Quantity::operator+=(const Quantity& other) {
  if (nanos_ == 0) {
    format_ = other.format_;
  }
  nanos_ = Saturate(nanos_ + other.nanos_);
  text_.clear();
  return *this;
}

Quantity& Quantity::operator-=(const Quantity& other) {
  if (nanos_ == 0) {
    format_ = other.format_;
  }
  nanos_ = Saturate(nanos_ - other.nanos_);
  text_.clear();
  return *this;
}

}  // namespace sublet::kube
