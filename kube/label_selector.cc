#include "kube/label_selector.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "kube/label_selector_parser.h"
#include "kube/object.h"

namespace sublet::kube {
namespace {

bool ParseInt64(const std::string& text, std::int64_t* out) {
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(begin, last, *out);
  return begin != last && error == std::errc() && end == last;
}

const std::string* LookupIn(const Json* labels, std::string_view key) {
  if (labels == nullptr || !labels->is_object()) {
    return nullptr;
  }
  const auto& object = labels->get_ref<const Json::object_t&>();
  const auto it = object.find(key);
  return it != object.end() && it->second.is_string() ? &it->second.get_ref<const std::string&>()
                                                      : nullptr;
}

}  // namespace

bool LabelRequirement::Matches(const std::string* value) const {
  const auto has = [&] { return std::find(values.begin(), values.end(), *value) != values.end(); };
  switch (op) {
    case LabelOperator::kIn:
    case LabelOperator::kEquals:
    case LabelOperator::kDoubleEquals: return value != nullptr && has();
    case LabelOperator::kNotIn:
    case LabelOperator::kNotEquals: return value == nullptr || !has();
    case LabelOperator::kExists: return value != nullptr;
    case LabelOperator::kDoesNotExist: return value == nullptr;
    case LabelOperator::kGreaterThan:
    case LabelOperator::kLessThan: {
      std::int64_t left = 0;
      std::int64_t right = 0;
      if (value == nullptr || values.size() != 1 || !ParseInt64(*value, &left) ||
          !ParseInt64(values[0], &right)) {
        return false;
      }
      return op == LabelOperator::kGreaterThan ? left > right : left < right;
    }
  }
  return false;
}

std::string LabelRequirement::Text() const {
  std::string joined;
  for (const std::string& value : values) {
    joined.append(&value == values.data() ? "" : ",").append(value);
  }
  switch (op) {
    case LabelOperator::kIn: return key + " in (" + joined + ")";
    case LabelOperator::kNotIn: return key + " notin (" + joined + ")";
    case LabelOperator::kEquals: return key + "=" + joined;
    case LabelOperator::kDoubleEquals: return key + "==" + joined;
    case LabelOperator::kNotEquals: return key + "!=" + joined;
    case LabelOperator::kExists: return key;
    case LabelOperator::kDoesNotExist: return "!" + key;
    case LabelOperator::kGreaterThan: return key + ">" + joined;
    case LabelOperator::kLessThan: return key + "<" + joined;
  }
  return key;
}

LabelSelector LabelSelector::Nothing() {
  LabelSelector selector;
  selector.nothing_ = true;
  return selector;
}

Result<LabelSelector> LabelSelector::Parse(std::string_view text) {
  LabelSelector selector;
  SUBLET_TRY(selector.requirements_, ParseLabelRequirements(text));
  std::stable_sort(selector.requirements_.begin(), selector.requirements_.end(),
                   [](const auto& a, const auto& b) { return a.key < b.key; });
  return selector;
}

Result<LabelSelector> LabelSelector::FromJson(const Json* json) {
  if (json == nullptr || !json->is_object()) {
    return Nothing();
  }
  LabelSelector selector = FromLabels(Find(*json, {"matchLabels"}));
  if (const Json* expressions = Find(*json, {"matchExpressions"});
      expressions != nullptr && expressions->is_array()) {
    for (const Json& expression : *expressions) {
      LabelRequirement requirement;
      requirement.key = FindString(expression, {"key"});
      const std::string_view op = FindString(expression, {"operator"});
      if (op == "In") {
        requirement.op = LabelOperator::kIn;
      } else if (op == "NotIn") {
        requirement.op = LabelOperator::kNotIn;
      } else if (op == "Exists") {
        requirement.op = LabelOperator::kExists;
      } else if (op == "DoesNotExist") {
        requirement.op = LabelOperator::kDoesNotExist;
      } else {
        return BadRequest("\"" + std::string(op) + "\" is not a valid label selector operator");
      }
      if (const Json* values = Find(expression, {"values"});
          values != nullptr && values->is_array()) {
        for (const Json& value : *values) {
          if (value.is_string()) {
            requirement.values.push_back(value.get<std::string>());
          }
        }
      }
      SUBLET_RETURN_IF_ERROR(CheckLabelRequirement(&requirement));
      selector.requirements_.push_back(std::move(requirement));
    }
  }
  std::stable_sort(selector.requirements_.begin(), selector.requirements_.end(),
                   [](const auto& a, const auto& b) { return a.key < b.key; });
  return selector;
}

LabelSelector LabelSelector::FromLabels(const Json* labels) {
  LabelSelector selector;
  if (labels != nullptr && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      if (value.is_string()) {
        selector.requirements_.push_back({key, LabelOperator::kEquals, {value.get<std::string>()}});
      }
    }
  }
  return selector;
}

std::string LabelSelector::Text() const {
  std::string out;
  for (const LabelRequirement& requirement : requirements_) {
    out.append(out.empty() ? "" : ",").append(requirement.Text());
  }
  return out;
}

bool LabelSelector::Matches(const Json* labels) const {
  return MatchesWith([labels](std::string_view key) { return LookupIn(labels, key); });
}

bool LabelSelector::Matches(const std::vector<std::pair<std::string, std::string>>& labels) const {
  return MatchesWith([&](std::string_view key) -> const std::string* {
    const auto it = std::lower_bound(labels.begin(), labels.end(), key,
                                     [](const auto& pair, auto k) { return pair.first < k; });
    return it != labels.end() && it->first == key ? &it->second : nullptr;
  });
}

bool LabelSelector::MatchesObject(const Json& object) const {
  return Matches(Find(object, {"metadata", "labels"}));
}

std::string FormatLabelSelector(const Json* selector) {
  const auto parsed = LabelSelector::FromJson(selector);
  if (!parsed.ok()) {
    return "<error>";
  }
  std::string text = parsed->Text();
  return text.empty() ? "<none>" : text;
}

}  // namespace sublet::kube
