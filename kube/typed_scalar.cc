#include "kube/typed_scalar.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "kube/quantity.h"
#include "kube/timestamp.h"

namespace sublet::kube {
namespace {

using schema::ValueKind;

// A type that reads itself from another one met something else.
ScalarOutcome Wanted(const char* type, std::string* problem) {
  *problem = type;
  return ScalarOutcome::kWrongType;
}

ScalarOutcome Integer(Json* value, bool is_32) {
  if (value->is_number_unsigned()) {  // parsed numbers are only unsigned beyond int64
    if (value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      return ScalarOutcome::kWrongType;
    }
    *value = static_cast<std::int64_t>(value->get<std::uint64_t>());
  }
  if (!value->is_number_integer()) {
    return ScalarOutcome::kWrongType;
  }
  const auto number = value->get<std::int64_t>();
  if (is_32 && (number < std::numeric_limits<std::int32_t>::min() ||
                number > std::numeric_limits<std::int32_t>::max())) {
    return ScalarOutcome::kWrongType;
  }
  return ScalarOutcome::kOk;
}

// Canonical texts are short; the usual one is already canonical and stays untouched.
void Replace(Json* value, std::string text) {
  if (value->get_ref<const std::string&>() != text) {
    *value = std::move(text);
  }
}

ScalarOutcome CanonicalQuantity(Json* value, std::string* problem) {
  // A number is read by its text.
  std::string text = value->is_string() ? value->get<std::string>() : Dump(*value);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  text = first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
  auto quantity = Quantity::Parse(text);
  if (!quantity.ok()) {
    *problem = quantity.error().message();
    return ScalarOutcome::kProblem;
  }
  if (!value->is_string()) {
    *value = quantity->Text();
  } else {
    Replace(value, quantity->Text());
  }
  return ScalarOutcome::kOk;
}

ScalarOutcome CanonicalTime(Json* value, bool micro, std::string* problem) {
  if (!value->is_string()) {
    return Wanted("string", problem);
  }
  const std::string& text = value->get_ref<const std::string&>();
  // The usual text is canonical already: "2026-01-02T03:04:05Z" or with six digits of fraction.
  auto time = ParseTime(text);
  if (!time.ok()) {
    *problem = time.error().message();
    return ScalarOutcome::kProblem;
  }
  const bool canonical = text.back() == 'Z' && text.size() == (micro ? 27u : 20u);
  if (!canonical) {
    *value = micro ? FormatMicroTime(*time) : FormatTime(*time);
  }
  return ScalarOutcome::kOk;
}

ScalarOutcome Base64(Json* value, std::string* problem) {
  const std::string& text = value->get_ref<const std::string&>();
  const auto is_line_end = [](char c) { return c == '\n' || c == '\r'; };
  std::string clean;
  if (std::any_of(text.begin(), text.end(), is_line_end)) {
    std::copy_if(text.begin(), text.end(), std::back_inserter(clean),
                 [&](char c) { return !is_line_end(c); });
  }
  const std::string& digits = clean.empty() ? text : clean;
  std::size_t good = 0;
  while (good < digits.size() && (std::isalnum(static_cast<unsigned char>(digits[good])) != 0 ||
                                  digits[good] == '+' || digits[good] == '/')) {
    ++good;
  }
  const std::size_t padding = digits.size() - good;
  const bool padded = padding <= 2 && std::all_of(digits.begin() + static_cast<long>(good),
                                                  digits.end(), [](char c) { return c == '='; });
  if (digits.size() % 4 != 0 || !padded || (padding > 0 && good % 4 < 2)) {
    const std::size_t at = padded && digits.size() % 4 != 0 ? digits.size() / 4 * 4 : good;
    *problem = "illegal base64 data at input byte " + std::to_string(at);
    return ScalarOutcome::kProblem;
  }
  if (!clean.empty()) {
    *value = std::move(clean);
  }
  return ScalarOutcome::kOk;
}

}  // namespace

ScalarOutcome NormalizeScalar(ValueKind kind, Json* value, std::string* problem) {
  const auto need = [](bool ok) { return ok ? ScalarOutcome::kOk : ScalarOutcome::kWrongType; };
  switch (kind) {
    case ValueKind::kString: return need(value->is_string());
    case ValueKind::kInt32: return Integer(value, true);
    case ValueKind::kInt64: return Integer(value, false);
    case ValueKind::kFloat: return need(value->is_number());
    case ValueKind::kBool: return need(value->is_boolean());
    case ValueKind::kBytes:
      return value->is_string() ? Base64(value, problem) : ScalarOutcome::kWrongType;
    case ValueKind::kQuantity: return CanonicalQuantity(value, problem);
    case ValueKind::kTime: return CanonicalTime(value, false, problem);
    case ValueKind::kMicroTime: return CanonicalTime(value, true, problem);
    case ValueKind::kDuration: {
      if (!value->is_string()) {
        return Wanted("string", problem);
      }
      const auto duration = ParseDuration(value->get_ref<const std::string&>());
      if (!duration.ok()) {
        *problem = duration.error().message();
        return ScalarOutcome::kProblem;
      }
      Replace(value, FormatDuration(*duration));
      return ScalarOutcome::kOk;
    }
    case ValueKind::kIntOrString:
      if (value->is_string()) {
        return ScalarOutcome::kOk;
      }
      if (Integer(value, true) != ScalarOutcome::kOk) {
        return Wanted("int32", problem);
      }
      return ScalarOutcome::kOk;
    default: return ScalarOutcome::kOk;  // anything goes
  }
}

}  // namespace sublet::kube
