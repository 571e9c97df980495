#include "controllers/node_fit.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/label_selector.h"

namespace sublet::controllers {
namespace {

using kube::Json;

const Json& ArrayAt(const Json& object, std::initializer_list<std::string_view> path) {
  static const Json kEmpty = Json::array();
  const Json* found = kube::Find(object, path);
  return found != nullptr && found->is_array() ? *found : kEmpty;
}

std::optional<kube::LabelOperator> OperatorOf(std::string_view text) {
  if (text == "In") return kube::LabelOperator::kIn;
  if (text == "NotIn") return kube::LabelOperator::kNotIn;
  if (text == "Exists") return kube::LabelOperator::kExists;
  if (text == "DoesNotExist") return kube::LabelOperator::kDoesNotExist;
  if (text == "Gt") return kube::LabelOperator::kGreaterThan;
  if (text == "Lt") return kube::LabelOperator::kLessThan;
  return std::nullopt;
}

bool MatchesExpression(const Json& expression, const std::string* value) {
  const auto op = OperatorOf(kube::FindString(expression, {"operator"}));
  if (!op) {
    return false;
  }
  kube::LabelRequirement requirement{.key = "", .op = *op, .values = {}};
  for (const Json& entry : ArrayAt(expression, {"values"})) {
    if (entry.is_string()) {
      requirement.values.push_back(entry.get<std::string>());
    }
  }
  std::sort(requirement.values.begin(), requirement.values.end());
  return requirement.Matches(value);
}

bool MatchesTerm(const Json& term, const client::CachedObject& node) {
  const Json& labels = ArrayAt(term, {"matchExpressions"});
  const Json& fields = ArrayAt(term, {"matchFields"});
  if (labels.empty() && fields.empty()) {
    return false;  // an empty term matches nothing
  }
  for (const Json& expression : labels) {
    const std::string key(kube::FindString(expression, {"key"}));
    const auto found = std::find_if(node.labels.begin(), node.labels.end(),
                                    [&](const auto& label) { return label.first == key; });
    if (!MatchesExpression(expression, found != node.labels.end() ? &found->second : nullptr)) {
      return false;
    }
  }
  return std::all_of(fields.begin(), fields.end(), [&](const Json& expression) {
    return kube::FindString(expression, {"key"}) == "metadata.name" &&
           MatchesExpression(expression, &node.key.name);
  });
}

}  // namespace

std::vector<Taint> TaintsOf(const Json& node) {
  std::vector<Taint> out;
  for (const Json& taint : ArrayAt(node, {"spec", "taints"})) {
    out.push_back({std::string(kube::FindString(taint, {"key"})),
                   std::string(kube::FindString(taint, {"value"})),
                   std::string(kube::FindString(taint, {"effect"})),
                   std::string(kube::FindString(taint, {"timeAdded"}))});
  }
  return out;
}

bool Tolerates(const Json& toleration, const Taint& taint) {
  const std::string_view effect = kube::FindString(toleration, {"effect"});
  const std::string_view key = kube::FindString(toleration, {"key"});
  const std::string_view op = kube::FindString(toleration, {"operator"}, "Equal");
  if ((!effect.empty() && effect != taint.effect) || (!key.empty() && key != taint.key)) {
    return false;
  }
  if (op == "Exists") {
    return true;
  }
  return !key.empty() && (op == "Equal" || op.empty()) &&
         kube::FindString(toleration, {"value"}) == taint.value;
}

bool AnyTolerates(const Json& tolerations, const Taint& taint) {
  return tolerations.is_array() &&
         std::any_of(tolerations.begin(), tolerations.end(),
                     [&](const Json& toleration) { return Tolerates(toleration, taint); });
}

bool MatchesNodeSelector(const Json& node_selector, const client::CachedObject& node) {
  const Json& terms = ArrayAt(node_selector, {"nodeSelectorTerms"});
  return std::any_of(terms.begin(), terms.end(),
                     [&](const Json& term) { return MatchesTerm(term, node); });
}

bool MatchesNodeAffinity(const Json& pod_spec, const client::CachedObject& node) {
  if (const Json* selector = kube::Find(pod_spec, {"nodeSelector"}); selector && selector->is_object()) {
    for (const auto& [key, value] : selector->items()) {
      const auto found = std::find_if(node.labels.begin(), node.labels.end(),
                                      [&](const auto& label) { return label.first == key; });
      if (found == node.labels.end() || value != found->second) {
        return false;
      }
    }
  }
  const Json* required = kube::Find(
      pod_spec, {"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"});
  return required == nullptr || required->is_null() || MatchesNodeSelector(*required, node);
}

}  // namespace sublet::controllers
