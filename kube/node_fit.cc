#include "kube/node_fit.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/json_lists.h"
#include "kube/label_selector.h"

namespace sublet::kube {
namespace {

std::optional<LabelOperator> OperatorOf(std::string_view text) {
  if (text == "In") return LabelOperator::kIn;
  if (text == "NotIn") return LabelOperator::kNotIn;
  if (text == "Exists") return LabelOperator::kExists;
  if (text == "DoesNotExist") return LabelOperator::kDoesNotExist;
  if (text == "Gt") return LabelOperator::kGreaterThan;
  if (text == "Lt") return LabelOperator::kLessThan;
  return std::nullopt;
}

bool MatchesExpression(const Json& expression, const std::string* value) {
  const auto op = OperatorOf(FindString(expression, {"operator"}));
  if (!op) {
    return false;
  }
  LabelRequirement requirement{.key = "", .op = *op, .values = {}};
  for (const Json& entry : ArrayAt(expression, {"values"})) {
    if (entry.is_string()) {
      requirement.values.push_back(entry.get<std::string>());
    }
  }
  std::sort(requirement.values.begin(), requirement.values.end());
  return requirement.Matches(value);
}

bool MatchesTerm(const Json& term, const std::string& name, const Labels& labels) {
  const Json& wanted = ArrayAt(term, {"matchExpressions"});
  const Json& fields = ArrayAt(term, {"matchFields"});
  if (wanted.empty() && fields.empty()) {
    return false;  // an empty term matches nothing
  }
  for (const Json& expression : wanted) {
    const std::string key(FindString(expression, {"key"}));
    const auto found = std::find_if(labels.begin(), labels.end(),
                                    [&](const auto& label) { return label.first == key; });
    if (!MatchesExpression(expression, found != labels.end() ? &found->second : nullptr)) {
      return false;
    }
  }
  return std::all_of(fields.begin(), fields.end(), [&](const Json& expression) {
    return FindString(expression, {"key"}) == "metadata.name" &&
           MatchesExpression(expression, &name);
  });
}

}  // namespace

std::vector<Taint> TaintsOf(const Json& node) {
  std::vector<Taint> out;
  for (const Json& taint : ArrayAt(node, {"spec", "taints"})) {
    out.push_back({std::string(FindString(taint, {"key"})),
                   std::string(FindString(taint, {"value"})),
                   std::string(FindString(taint, {"effect"})),
                   std::string(FindString(taint, {"timeAdded"}))});
  }
  return out;
}

bool Tolerates(const Json& toleration, const Taint& taint) {
  const std::string_view effect = FindString(toleration, {"effect"});
  const std::string_view key = FindString(toleration, {"key"});
  const std::string_view op = FindString(toleration, {"operator"}, "Equal");
  if ((!effect.empty() && effect != taint.effect) || (!key.empty() && key != taint.key)) {
    return false;
  }
  if (op == "Exists") {
    return true;
  }
  return !key.empty() && (op == "Equal" || op.empty()) &&
         FindString(toleration, {"value"}) == taint.value;
}

bool AnyTolerates(const Json& tolerations, const Taint& taint) {
  return tolerations.is_array() &&
         std::any_of(tolerations.begin(), tolerations.end(),
                     [&](const Json& toleration) { return Tolerates(toleration, taint); });
}

bool MatchesNodeSelector(const Json& node_selector, const std::string& name, const Labels& labels) {
  const Json& terms = ArrayAt(node_selector, {"nodeSelectorTerms"});
  return std::any_of(terms.begin(), terms.end(),
                     [&](const Json& term) { return MatchesTerm(term, name, labels); });
}

bool MatchesNodeAffinity(const Json& pod_spec, const std::string& name, const Labels& labels) {
  if (const Json* selector = Find(pod_spec, {"nodeSelector"}); selector && selector->is_object()) {
    for (const auto& [key, value] : selector->items()) {
      const auto found =
          std::find_if(labels.begin(), labels.end(),
                       [&wanted = key](const auto& label) { return label.first == wanted; });
      if (found == labels.end() || value != found->second) {
        return false;
      }
    }
  }
  const Json* required = Find(
      pod_spec, {"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"});
  return required == nullptr || required->is_null() || MatchesNodeSelector(*required, name, labels);
}

}  // namespace sublet::kube
