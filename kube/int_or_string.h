// IntOrString: Kubernetes' fields that hold a number or a text such as "25%" or a port name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "kube/json.h"

namespace sublet::kube {

struct IntOrString {
  bool is_string = false;
  std::int32_t number = 0;
  std::string text;

  // nullopt when `value` is null, absent or neither a 32-bit integer nor a string.
  static std::optional<IntOrString> FromJson(const Json* value);
  Json ToJson() const;
  std::string Text() const { return is_string ? text : std::to_string(number); }
  // The share of `total` that "NN%" means, or the number itself.
  // Errors: BadRequest "invalid value for IntOrString: ..." for a text without percent sign.
  Result<std::int64_t> Scaled(std::int64_t total, bool round_up) const;
};

}  // namespace sublet::kube
