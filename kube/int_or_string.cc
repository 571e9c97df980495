#include "kube/int_or_string.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

namespace sublet::kube {

std::optional<IntOrString> IntOrString::FromJson(const Json* value) {
  IntOrString out;
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->is_string()) {
    out.is_string = true;
    out.text = value->get_ref<const std::string&>();
    return out;
  }
  if (!value->is_number_integer()) {
    return std::nullopt;
  }
  const auto number = value->get<std::int64_t>();
  if (number < std::numeric_limits<std::int32_t>::min() ||
      number > std::numeric_limits<std::int32_t>::max()) {
    return std::nullopt;
  }
  out.number = static_cast<std::int32_t>(number);
  return out;
}

Json IntOrString::ToJson() const { return is_string ? Json(text) : Json(number); }

Result<std::int64_t> IntOrString::Scaled(std::int64_t total, bool round_up) const {
  if (!is_string) {
    return number;
  }
  if (!text.ends_with('%')) {
    return BadRequest("invalid value for IntOrString: invalid type: string is not a percentage");
  }
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* last = text.data() + text.size() - 1;
  std::int64_t percent = 0;
  const auto [end, error] = std::from_chars(begin, last, percent);
  if (begin == last || error != std::errc() || end != last) {
    return BadRequest("invalid value for IntOrString: invalid value \"" + text +
                      "\": strconv.Atoi: parsing \"" + text.substr(0, text.size() - 1) +
                      "\": invalid syntax");
  }
  const std::int64_t product = percent * total;
  std::int64_t quotient = product / 100;
  const std::int64_t rest = product % 100;
  if (round_up && rest > 0) {
    ++quotient;
  } else if (!round_up && rest < 0) {
    --quotient;
  }
  return quotient;
}

}  // namespace sublet::kube
