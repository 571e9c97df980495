#include "scheduler/device_selector.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "scheduler/device_expression.h"

namespace sublet::scheduler {
namespace {

using device_expression::Amount;
using device_expression::Kind;
using device_expression::Node;
using device_expression::Value;

constexpr std::size_t kLengthMax = 10 * 1024;  // resource.k8s.io CELSelectorExpressionMaxLength

Value ToValue(const DeviceAttribute& attribute) {
  switch (attribute.kind) {
    case DeviceAttribute::Kind::kText: return attribute.text;
    case DeviceAttribute::Kind::kNumber: return attribute.number;
    case DeviceAttribute::Kind::kBool: return attribute.number != 0;
    case DeviceAttribute::Kind::kVersion: return {};  // semver() is not known, so nothing compares
  }
  return {};
}

int Sign(int value) { return value < 0 ? -1 : value > 0 ? 1 : 0; }

// -1, 0, 1; nullopt for values of different types.
std::optional<int> Compare(const Value& a, const Value& b) {
  if (a.index() != b.index() || a.index() == 0) {
    return std::nullopt;
  }
  if (const auto* text = std::get_if<std::string>(&a)) {
    return Sign(text->compare(std::get<std::string>(b)));
  }
  if (const auto* number = std::get_if<std::int64_t>(&a)) {
    const std::int64_t other = std::get<std::int64_t>(b);
    return *number < other ? -1 : *number > other ? 1 : 0;
  }
  if (const auto* flag = std::get_if<bool>(&a)) {
    return Sign(static_cast<int>(*flag) - static_cast<int>(std::get<bool>(b)));
  }
  if (const auto* amount = std::get_if<Amount>(&a)) {
    const kube::Quantity& other = std::get<Amount>(b).quantity;
    return amount->quantity < other ? -1 : other < amount->quantity ? 1 : 0;
  }
  return std::nullopt;
}

class Compiled final : public DeviceSelector {
 public:
  explicit Compiled(Node root) : root_(std::move(root)) {}

  bool Matches(const std::string& driver, const SliceDevice& device) const override {
    const Value value = Evaluate(root_, driver, device);
    const bool* flag = std::get_if<bool>(&value);
    return flag != nullptr && *flag;
  }

 private:
  static Value Evaluate(const Node& node, const std::string& driver, const SliceDevice& device) {
    const auto child = [&](std::size_t i) { return Evaluate(node.children[i], driver, device); };
    switch (node.kind) {
      case Kind::kLiteral: return node.value;
      case Kind::kDriver: return driver;
      case Kind::kAttribute:
      case Kind::kCapacity: return Look(node, driver, device);
      case Kind::kHas: return child(0).index() != 0;
      case Kind::kNot: {
        const Value value = child(0);
        const bool* flag = std::get_if<bool>(&value);
        return flag == nullptr ? Value() : Value(!*flag);
      }
      case Kind::kAnd:
      case Kind::kOr: {
        // As CEL: one side that decides hides an error of the other.
        const bool decides = node.kind == Kind::kOr;
        bool failed = false;
        for (std::size_t i = 0; i < node.children.size(); ++i) {
          const Value value = child(i);
          const bool* flag = std::get_if<bool>(&value);
          if (flag != nullptr && *flag == decides) {
            return decides;
          }
          failed = failed || flag == nullptr;
        }
        return failed ? Value() : Value(!decides);
      }
      case Kind::kCompare: return Ordered(node.text, Compare(child(0), child(1)));
      case Kind::kIn: {
        const Value item = child(0);
        const Value list = child(1);
        const auto* text = std::get_if<std::string>(&item);
        const auto* items = std::get_if<std::vector<std::string>>(&list);
        return text == nullptr || items == nullptr
                   ? Value()
                   : Value(std::find(items->begin(), items->end(), *text) != items->end());
      }
      case Kind::kCall: return Call(node, child(0), node.children.size() > 1 ? child(1) : Value());
    }
    return {};
  }

  // A name without a domain in the slice has the driver's.
  static Value Look(const Node& node, const std::string& driver, const SliceDevice& device) {
    const auto find = [&](const auto& map) {
      auto it = map.find(node.text);
      if (it == map.end() && node.text.compare(0, driver.size() + 1, driver + "/") == 0) {
        it = map.find(node.text.substr(driver.size() + 1));
      }
      return it;
    };
    if (node.kind == Kind::kCapacity) {
      const auto it = find(device.capacity);
      return it == device.capacity.end() ? Value()
                                         : Value(Amount{kube::Quantity::ParseOrZero(it->second)});
    }
    const auto it = find(device.attributes);
    return it == device.attributes.end() ? Value() : ToValue(it->second);
  }

  static Value Ordered(const std::string& op, std::optional<int> order) {
    if (!order) {
      return {};
    }
    return op == "=="   ? *order == 0
           : op == "!=" ? *order != 0
           : op == "<"  ? *order < 0
           : op == "<=" ? *order <= 0
           : op == ">"  ? *order > 0
                        : *order >= 0;
  }

  static Value Call(const Node& node, const Value& on, const Value& with) {
    const auto* text = std::get_if<std::string>(&on);
    if (node.text == "quantity") {
      if (text == nullptr) {
        return {};
      }
      const auto amount = kube::Quantity::Parse(*text);
      return amount.ok() ? Value(Amount{*amount}) : Value();
    }
    if (node.text == "lowerAscii" && text != nullptr) {
      std::string lower = *text;
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      return lower;
    }
    if (std::holds_alternative<Amount>(on)) {
      const auto order = Compare(on, with);
      if (!order) {
        return {};
      }
      return node.text == "compareTo"       ? Value(static_cast<std::int64_t>(*order))
             : node.text == "isGreaterThan" ? Value(*order > 0)
             : node.text == "isLessThan"    ? Value(*order < 0)
                                            : Value();
    }
    const auto* part = std::get_if<std::string>(&with);
    if (text == nullptr || part == nullptr) {
      return {};
    }
    return node.text == "startsWith" ? Value(text->starts_with(*part))
           : node.text == "endsWith" ? Value(text->ends_with(*part))
           : node.text == "contains" ? Value(text->find(*part) != std::string::npos)
                                     : Value();
  }

  const Node root_;
};

}  // namespace

Result<std::shared_ptr<const DeviceSelector>> DeviceSelector::Parse(std::string_view expression) {
  if (expression.size() > kLengthMax) {
    return BadRequest("the expression is too long");
  }
  SUBLET_TRY(Node root, device_expression::Parse(expression));
  return std::shared_ptr<const DeviceSelector>(std::make_shared<const Compiled>(std::move(root)));
}

}  // namespace sublet::scheduler
