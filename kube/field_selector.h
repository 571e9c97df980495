// FieldSelector: "metadata.name=a,status.phase!=Failed" as a value. Which fields a kind offers is
// the kind's business (kube/kinds/registry.h).
// Source: k8s.io/apimachinery pkg/fields.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sublet::kube {

struct FieldTerm {
  std::string field;
  bool equal = true;
  std::string value;
};

class FieldSelector {
 public:
  FieldSelector() = default;  // matches everything
  explicit FieldSelector(std::vector<FieldTerm> terms) : terms_(std::move(terms)) {}
  // Errors: BadRequest with Kubernetes' text.
  static Result<FieldSelector> Parse(std::string_view text);

  bool empty() const { return terms_.empty(); }
  const std::vector<FieldTerm>& terms() const { return terms_; }
  std::string Text() const;
  // The one value that `field` must have, or nullptr.
  const std::string* RequiredValue(std::string_view field) const;

  // `lookup(field)` returns the field's text; "" when the object has none.
  bool Matches(const std::function<std::string_view(std::string_view)>& lookup) const;

 private:
  std::vector<FieldTerm> terms_;
};

}  // namespace sublet::kube
