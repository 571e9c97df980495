// LabelSelector: both spellings of a selector, the text of a query ("a=b,c in (d,e),!f") and the
// object {matchLabels, matchExpressions}, as one list of requirements.
// Source: k8s.io/apimachinery pkg/labels, pkg/apis/meta/v1 helpers.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace sublet::kube {

enum class LabelOperator : std::uint8_t {
  kIn,
  kNotIn,
  kEquals,
  kDoubleEquals,
  kNotEquals,
  kExists,
  kDoesNotExist,
  kGreaterThan,
  kLessThan,
};

struct LabelRequirement {
  std::string key;
  LabelOperator op = LabelOperator::kEquals;
  std::vector<std::string> values;  // sorted, each once

  // `value` is nullptr when the object has no such label.
  bool Matches(const std::string* value) const;
  std::string Text() const;
};

class LabelSelector {
 public:
  LabelSelector() = default;  // matches everything
  static LabelSelector Nothing();
  // Errors: BadRequest with Kubernetes' text ("unable to parse requirement: ...").
  static Result<LabelSelector> Parse(std::string_view text);
  // From a LabelSelector object; nullptr or null matches nothing, {} everything.
  // Errors: BadRequest (unknown operator, bad key or value).
  static Result<LabelSelector> FromJson(const Json* selector);
  // Every label of `labels` (an object of strings) must be equal: a Service's selector.
  // nullptr and {} match everything.
  static LabelSelector FromLabels(const Json* labels);

  bool matches_nothing() const { return nothing_; }
  bool empty() const { return !nothing_ && requirements_.empty(); }
  const std::vector<LabelRequirement>& requirements() const { return requirements_; }
  std::string Text() const;

  // `lookup(key)` returns a const std::string*, nullptr when the label is absent.
  template <typename Lookup>
  bool MatchesWith(Lookup&& lookup) const {
    if (nothing_) {
      return false;
    }
    for (const LabelRequirement& requirement : requirements_) {
      if (!requirement.Matches(lookup(requirement.key))) {
        return false;
      }
    }
    return true;
  }
  // `labels`: an object of strings, or nullptr for none.
  bool Matches(const Json* labels) const;
  // `labels` sorted by key.
  bool Matches(const std::vector<std::pair<std::string, std::string>>& labels) const;
  // The labels of a whole object.
  bool MatchesObject(const Json& object) const;

 private:
  std::vector<LabelRequirement> requirements_;
  bool nothing_ = false;
};

// The text kubectl prints for a LabelSelector object: "<none>" for an empty one, "<error>" for a
// bad one.
std::string FormatLabelSelector(const Json* selector);

}  // namespace sublet::kube
