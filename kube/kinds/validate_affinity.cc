// Where a pod may run and beside whom: affinity, spread constraints, tolerations, node selectors.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_pod.h"

namespace sublet::kube::validate {
namespace {

void NodeTerm(const Path& at, const Json& term, bool check_values, FieldErrors* errors) {
  const Path expressions = at.Child("matchExpressions");
  std::size_t index = 0;
  for (const Json& one : Items(term, "matchExpressions")) {
    const Path here = expressions.Index(index++);
    const std::string op = Str(one, "operator");
    const auto& values = Items(one, "values");
    if (op == "In" || op == "NotIn") {
      if (values.empty()) {
        errors->Required(here.Child("values"),
                         "must be specified when `operator` is 'In' or 'NotIn'");
      }
    } else if (op == "Exists" || op == "DoesNotExist") {
      if (!values.empty()) {
        errors->Forbidden(here.Child("values"),
                          "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
      }
    } else if (op == "Gt" || op == "Lt") {
      if (values.size() != 1) {
        errors->Required(here.Child("values"),
                         "must be specified single value when `operator` is 'Lt' or 'Gt'");
      }
    } else {
      errors->Invalid(here.Child("operator"), op, "not a valid selector operator");
    }
    Check(here.Child("key"), Str(one, "key"), &IsQualifiedName, errors);
    const Path values_path = here.Child("values");
    for (std::size_t i = 0; check_values && i < values.size(); ++i) {
      Check(values_path.Index(i), values[i].get<std::string>(), &IsLabelValue, errors);
    }
  }
  const Path match_fields = at.Child("matchFields");
  index = 0;
  for (const Json& one : Items(term, "matchFields")) {
    const Path here = match_fields.Index(index++);
    const std::string op = Str(one, "operator");
    if (op != "In" && op != "NotIn") {
      errors->Invalid(here.Child("operator"), op, "not a valid selector operator");
    } else if (Items(one, "values").size() != 1) {
      errors->Required(here.Child("values"),
                       "must be only one value when `operator` is 'In' or 'NotIn' for node field "
                       "selector");
    }
    if (Str(one, "key") != "metadata.name") {
      errors->Invalid(here.Child("key"), Str(one, "key"), "not a valid field selector key");
      continue;
    }
    const Path values_path = here.Child("values");
    std::size_t value_index = 0;
    for (const Json& value : Items(one, "values")) {
      Check(values_path.Index(value_index++), value.get<std::string>(), &IsDns1123Subdomain,
            errors);
    }
  }
}

void LabelKeys(const Path& path, const Json& owner, const char* key, bool has_selector,
               FieldErrors* errors) {
  const auto& keys = Items(owner, key);
  if (!keys.empty() && !has_selector) {
    errors->Forbidden(path.Child(key), "must not be specified when labelSelector is not set");
    return;
  }
  const Path list = path.Child(key);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Check(list.Index(i), keys[i].get<std::string>(), &IsQualifiedName, errors);
  }
}

// matchLabelKeys and mismatchLabelKeys of an affinity term or a spread constraint.
void AffinityKeys(const Path& path, const Json& term, FieldErrors* errors) {
  const Json& selector = Get(term, "labelSelector");
  LabelKeys(path, term, "matchLabelKeys", selector.is_object(), errors);
  LabelKeys(path, term, "mismatchLabelKeys", selector.is_object(), errors);
  const auto& keys = Items(term, "matchLabelKeys");
  std::set<std::string> selected;
  for (const auto& [key, value] : Get(selector, "matchLabels").items()) {
    selected.insert(key);
  }
  for (const Json& expression : Items(selector, "matchExpressions")) {
    const std::string key = Str(expression, "key");
    const auto found = std::find(keys.rbegin(), keys.rend(), Json(key));
    if (found != keys.rend() && selected.contains(key)) {
      errors->Invalid(path.Index(static_cast<std::size_t>(keys.rend() - found) - 1), key,
                      "exists in both matchLabelKeys and labelSelector");
    }
    selected.insert(key);
  }
  const auto& others = Items(term, "mismatchLabelKeys");
  const Path list = path.Child("matchLabelKeys");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (std::find(others.begin(), others.end(), keys[i]) != others.end()) {
      errors->Invalid(list.Index(i), keys[i],
                      "exists in both matchLabelKeys and mismatchLabelKeys");
    }
  }
}

void AffinityTerm(const Path& at, const Json& term, FieldErrors* errors) {
  const Path selector = at.Child("labelSelector");
  LabelSelector(selector, Get(term, "labelSelector"), errors);
  const Path namespaces = at.Child("namespaceSelector");
  LabelSelector(namespaces, Get(term, "namespaceSelector"), errors);
  for (const Json& name : Items(term, "namespaces")) {
    Check(at.Child("namespace"), name.get<std::string>(), &IsDns1123Label, errors);
  }
  AffinityKeys(at, term, errors);
  const std::string key = Str(term, "topologyKey");
  if (key.empty()) {
    errors->Required(at.Child("topologyKey"), "can not be empty");
  }
  Check(at.Child("topologyKey"), key, &IsQualifiedName, errors);
}

void Weight(const Path& at, const Json& term, FieldErrors* errors) {
  const std::int64_t weight = FindInt(term, {"weight"});
  if (weight <= 0 || weight > 100) {
    errors->Invalid(at.Child("weight"), weight, "must be in the range 1-100");
  }
}

}  // namespace

void Affinity(const Path& path, const Json& affinity, FieldErrors* errors) {
  constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
  constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";
  if (const Json& node = Get(affinity, "nodeAffinity"); node.is_object()) {
    const Path at = path.Child("nodeAffinity");
    const Path required = at.Child(kRequired);
    if (const Json& selector = Get(node, kRequired); selector.is_object()) {
      NodeSelector(required, selector, errors);
    }
    const Path preferred = at.Child(kPreferred);
    std::size_t index = 0;
    for (const Json& term : Items(node, kPreferred)) {
      const Path here = preferred.Index(index++);
      Weight(here, term, errors);
      NodeTerm(here.Child("preference"), Get(term, "preference"), false, errors);
    }
  }
  for (const char* kind : {"podAffinity", "podAntiAffinity"}) {
    const Json& pods = Get(affinity, kind);
    const Path at = path.Child(kind);
    const Path required = at.Child(kRequired);
    std::size_t index = 0;
    for (const Json& term : Items(pods, kRequired)) {
      AffinityTerm(required.Index(index++), term, errors);
    }
    const Path preferred = at.Child(kPreferred);
    index = 0;
    for (const Json& term : Items(pods, kPreferred)) {
      const Path here = preferred.Index(index++);
      Weight(here, term, errors);
      const Path inner = here.Child("podAffinityTerm");
      AffinityTerm(inner, Get(term, "podAffinityTerm"), errors);
    }
  }
}

void TopologySpread(const Path& path, const Json& spec, FieldErrors* errors) {
  const auto& constraints = Items(spec, "topologySpreadConstraints");
  for (std::size_t i = 0; i < constraints.size(); ++i) {
    const Json& constraint = constraints[i];
    const Path at = path.Index(i);
    const std::string key = Str(constraint, "topologyKey");
    const std::string action = Str(constraint, "whenUnsatisfiable");
    if (const std::int64_t skew = FindInt(constraint, {"maxSkew"}); skew <= 0) {
      errors->Invalid(at.Child("maxSkew"), skew, "must be greater than zero");
    }
    if (key.empty()) {
      errors->Required(at.Child("topologyKey"), "can not be empty");
    }
    if (action != "DoNotSchedule" && action != "ScheduleAnyway") {
      errors->NotSupported(at.Child("whenUnsatisfiable"), action,
                           {"DoNotSchedule", "ScheduleAnyway"});
    }
    for (std::size_t j = i + 1; j < constraints.size(); ++j) {
      if (Str(constraints[j], "topologyKey") == key &&
          Str(constraints[j], "whenUnsatisfiable") == action) {
        errors->Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"),
                          "{" + key + ", " + action + "}");
        break;
      }
    }
    if (const Json& domains = Get(constraint, "minDomains"); domains.is_number_integer()) {
      if (domains.get<std::int64_t>() <= 0) {
        errors->Invalid(at.Child("minDomains"), domains, "must be greater than zero");
      }
      if (action != "DoNotSchedule") {
        errors->Invalid(
            at.Child("minDomains"), domains,
            "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not " + action);
      }
    }
    for (const char* policy : {"nodeAffinityPolicy", "nodeTaintsPolicy"}) {
      Choice(at, constraint, policy, {"Honor", "Ignore"}, errors);
    }
    AffinityKeys(at, constraint, errors);
    const Path selector = at.Child("labelSelector");
    LabelSelector(selector, Get(constraint, "labelSelector"), errors);
  }
}

void Tolerations(const Path& path, const Json& spec, FieldErrors* errors) {
  std::size_t index = 0;
  for (const Json& toleration : Items(spec, "tolerations")) {
    const Path at = path.Index(index++);
    const std::string key = Str(toleration, "key");
    const std::string op = Str(toleration, "operator");
    const std::string value = Str(toleration, "value");
    const std::string effect = Str(toleration, "effect");
    if (!key.empty()) {
      Check(at.Child("key"), key, &IsQualifiedName, errors);
    } else if (op != "Exists") {
      errors->Invalid(at.Child("operator"), op,
                      "operator must be Exists when `key` is empty, which means \"match all values "
                      "and all keys\"");
    }
    if (Has(toleration, "tolerationSeconds") && effect != "NoExecute") {
      errors->Invalid(at.Child("effect"), effect,
                      "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    if (op.empty() || op == "Equal") {
      if (const Problems problems = IsLabelValue(value); !problems.empty()) {
        errors->Invalid(at.Child("operator"), value, Join(problems, ";"));
      }
    } else if (op == "Exists") {
      if (!value.empty()) {
        errors->Invalid(at.Child("operator"), value,
                        "value must be empty when `operator` is 'Exists'");
      }
    } else if (op == "Lt" || op == "Gt") {
      errors->NotSupported(at.Child("operator"), op, {"Equal", "Exists", "Lt", "Gt"});
    } else {
      errors->NotSupported(at.Child("operator"), op, {"Equal", "Exists"});
    }
    if (!effect.empty()) {
      OneOf(at.Child("effect"), effect, {"NoSchedule", "PreferNoSchedule", "NoExecute"}, true,
            errors);
    }
  }
}

void NodeSelector(const Path& path, const Json& selector, FieldErrors* errors) {
  const Path terms = path.Child("nodeSelectorTerms");
  const auto& items = Items(selector, "nodeSelectorTerms");
  if (items.empty()) {
    errors->Required(terms, "must have at least one node selector term");
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    NodeTerm(terms.Index(i), items[i], true, errors);
  }
}

}  // namespace sublet::kube::validate
