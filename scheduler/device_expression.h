// The tree of a DeviceSelector's expression, between its parser and its evaluation; nobody else
// includes this. Threads: values, any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "kube/quantity.h"

namespace sublet::scheduler::device_expression {

struct Amount {
  kube::Quantity quantity;
};
// Empty: an error at run time (an attribute that is not there, types that do not compare).
using Value =
    std::variant<std::monostate, bool, std::int64_t, std::string, Amount, std::vector<std::string>>;

enum class Kind : std::uint8_t {
  kLiteral,
  kDriver,
  kAttribute,  // text = "domain/name"
  kCapacity,
  kHas,  // its child is there
  kNot,
  kAnd,
  kOr,
  kCompare,  // text = operator
  kIn,
  kCall,  // text = function; children[0] is what it is called on
};
struct Node {
  Kind kind = Kind::kLiteral;
  Value value;
  std::string text;
  std::vector<Node> children;
};

// Errors: BadRequest, with what is not known.
Result<Node> Parse(std::string_view text);

}  // namespace sublet::scheduler::device_expression
