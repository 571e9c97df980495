// Admission policies and their bindings. Differs: expressions in CEL are not compiled, they may
// only not be empty.
// Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kAuditAnnotationsMax = 20;
constexpr std::size_t kAuditExpressionMax = 5 * 1024;

std::string Trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(" \t\r\n");
  return from == std::string::npos ? ""
                                   : text.substr(from, text.find_last_not_of(" \t\r\n") + 1 - from);
}

// A word with a default: present, and one of `allowed` even when it is empty.
void Word(const Path& path, const Json& owner, const char* key,
          std::initializer_list<std::string_view> allowed, FieldErrors* errors) {
  const std::string value = Str(owner, key);
  if (!Has(owner, key)) {
    errors->Required(path.Child(key));
  } else if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    errors->NotSupported(path.Child(key), value, allowed);
  }
}

void Expression(const Path& owner, const Json& object, std::string_view detail,
                FieldErrors* errors) {
  if (Trimmed(Str(object, "expression")).empty()) {
    errors->Required(owner.Child("expression"), detail);
  }
}

void ParamKind(const Path& path, const Json& kind, FieldErrors* errors) {
  if (!kind.is_object()) {
    return;
  }
  const std::string api = Str(kind, "apiVersion");
  const Path at = path.Child("apiVersion");
  const auto slashes = std::count(api.begin(), api.end(), '/');
  if (api.empty()) {
    errors->Required(at);
  } else if (slashes > 1) {
    errors->Invalid(at, api, "unexpected GroupVersion string: " + api);
  } else {
    const std::size_t slash = api.find('/');
    const std::string group = slashes == 1 ? api.substr(0, slash) : "";
    const std::string version = slashes == 1 ? api.substr(slash + 1) : api;
    if (const Problems problems = IsDns1123Subdomain(group); !group.empty() && !problems.empty()) {
      errors->Invalid(at, group, Join(problems, ","));
    }
    if (version.empty()) {
      errors->Invalid(at, api, "version must be specified");
    } else if (const Problems problems = IsDns1035Label(version); !problems.empty()) {
      errors->Invalid(at, version, Join(problems, ","));
    }
  }
  const std::string name = Str(kind, "kind");
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (name.empty()) {
    errors->Required(path.Child("kind"));
  } else if (const Problems problems = IsDns1035Label(lower); !problems.empty()) {
    errors->Invalid(path.Child("kind"), name,
                    "may have mixed case, but should otherwise match: " + Join(problems, ","));
  }
}

void NamedRules(const Path& path, const Json& resources, const char* key, FieldErrors* errors) {
  const Path list = path.Child(key);
  std::size_t index = 0;
  for (const Json& rule : Items(resources, key)) {
    const Path at = list.Index(index++);
    const Path names = at.Child("resourceNames");
    std::set<std::string> seen;
    std::size_t name_index = 0;
    for (const Json& one : Items(rule, "resourceNames")) {
      const std::string name = one.get<std::string>();
      const Path here = names.Index(name_index++);
      Check(here, name, &IsPathSegmentName, errors);
      if (!seen.insert(name).second) {
        errors->Duplicate(here, name);
      }
    }
    AdmissionRule(at, rule, errors);
  }
}

void MatchResources(const Path& path, const Json& resources, FieldErrors* errors) {
  if (!resources.is_object()) {
    return;
  }
  Word(path, resources, "matchPolicy", {"Equivalent", "Exact"}, errors);
  for (const char* key : {"namespaceSelector", "objectSelector"}) {
    const Path selector = path.Child(key);
    if (!Has(resources, key)) {
      errors->Required(selector);
    } else {
      LabelSelector(selector, Get(resources, key), errors);
    }
  }
  NamedRules(path, resources, "resourceRules", errors);
  NamedRules(path, resources, "excludeResourceRules", errors);
}

// Only what writes a whole object can be mutated.
void MutatingOperations(const Path& path, const Json& resources, FieldErrors* errors) {
  const Path rules = path.Child("resourceRules");
  for (const Json& rule : Items(resources, "resourceRules")) {
    for (const Json& operation : Items(rule, "operations")) {
      if (operation != "CREATE" && operation != "UPDATE" && operation != "CONNECT" &&
          operation != "*") {
        errors->NotSupported(rules.Child("operations"), operation,
                             {"*", "CONNECT", "CREATE", "UPDATE"});
      }
    }
  }
}

// What both kinds of policies begin with.
void PolicyHead(const Json& spec, bool mutating, FieldErrors* errors) {
  Word(kSpec, spec, "failurePolicy", {"Fail", "Ignore"}, errors);
  const Path param = kSpec.Child("paramKind");
  ParamKind(param, Get(spec, "paramKind"), errors);
  const Path constraints = kSpec.Child("matchConstraints");
  const Json& resources = Get(spec, "matchConstraints");
  if (!resources.is_object()) {
    errors->Required(constraints);
  } else {
    MatchResources(constraints, resources, errors);
    if (Items(resources, "resourceRules").empty()) {
      errors->Required(constraints.Child("resourceRules"));
    }
    if (mutating) {
      MutatingOperations(constraints, resources, errors);
    }
  }
  const Path conditions = kSpec.Child("matchConditions");
  MatchConditions(conditions, spec, errors);
  const Path variables = kSpec.Child("variables");
  std::size_t index = 0;
  for (const Json& variable : Items(spec, "variables")) {
    const Path at = variables.Index(index++);
    const std::string name = Str(variable, "name");
    if (Trimmed(name).empty()) {
      errors->Required(at.Child("name"), "name is not specified");
    } else if (!IsCIdentifier(name).empty()) {
      errors->Invalid(at.Child("name"), name, "must be a valid CEL identifier");
    }
    Expression(at, variable, "expression is not specified", errors);
  }
}

void Validation(const Path& at, const Json& validation, FieldErrors* errors) {
  Expression(at, validation, "expression is not specified", errors);
  const std::string of_message = Str(validation, "messageExpression");
  if (!of_message.empty() && Trimmed(of_message).empty()) {
    errors->Invalid(at.Child("messageExpression"), of_message, "must be non-empty if specified");
  }
  const std::string message = Str(validation, "message");
  const std::string trimmed = Trimmed(message);
  if (!message.empty() && trimmed.empty()) {
    errors->Invalid(at.Child("message"), message, "must be non-empty if specified");
  } else if (trimmed.find_first_of("\r\n") != std::string::npos) {
    errors->Invalid(at.Child("message"), message, "must not contain line breaks");
  }
  if (Has(validation, "reason")) {
    Word(at, validation, "reason", {"Forbidden", "Invalid", "RequestEntityTooLarge"}, errors);
  }
}

void AuditAnnotations(const Json& object, FieldErrors* errors) {
  const Path path = kSpec.Child("auditAnnotations");
  const std::string name = Str(Get(object, "metadata"), "name");
  const auto& list = Items(Get(object, "spec"), "auditAnnotations");
  if (list.size() > kAuditAnnotationsMax) {
    errors->Invalid(path, Json(list), "must not have more than 20 auditAnnotations");
  }
  std::set<std::string> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Path at = path.Index(i);
    const std::string key = Str(list[i], "key");
    if (name.empty()) {
      errors->Invalid(at.Child("key"), key, "requires metadata.name be non-empty");
    } else {
      Check(at.Child("key"), name + "/" + key, &IsQualifiedName, errors);
    }
    const std::string value = Trimmed(Str(list[i], "valueExpression"));
    if (value.empty()) {
      errors->Required(at.Child("valueExpression"), "valueExpression is not specified");
    } else if (value.size() > kAuditExpressionMax) {
      errors->Required(at.Child("valueExpression"), "must not exceed 5120 bytes in length");
    }
    if (!seen.insert(key).second) {
      errors->Duplicate(at.Child("key"), key);
    }
  }
}

void ParamRef(const Json& spec, FieldErrors* errors) {
  const Json& reference = Get(spec, "paramRef");
  if (!reference.is_object()) {
    return;
  }
  const Path path = kSpec.Child("paramRef");
  constexpr std::string_view kExclusive = "name and selector are mutually exclusive";
  const std::string name = Str(reference, "name");
  const bool has_selector = Has(reference, "selector");
  if (!name.empty()) {
    Check(path.Child("name"), name, &IsPathSegmentName, errors);
    if (has_selector) {
      errors->Forbidden(path.Child("name"), kExclusive);
    }
  }
  if (has_selector) {
    const Path selector = path.Child("selector");
    LabelSelector(selector, Get(reference, "selector"), errors);
    if (!name.empty()) {
      errors->Forbidden(selector, kExclusive);
    }
  } else if (name.empty()) {
    errors->Required(path, "one of name or selector must be specified");
  }
  OneOf(path.Child("parameterNotFoundAction"), Str(reference, "parameterNotFoundAction"),
        {"Deny", "Allow"}, true, errors);
}

void BindingHead(const Json& spec, FieldErrors* errors) {
  CheckRequired(kSpec.Child("policyName"), Str(spec, "policyName"), &IsDns1123Subdomain, errors);
  ParamRef(spec, errors);
  const Path resources = kSpec.Child("matchResources");
  MatchResources(resources, Get(spec, "matchResources"), errors);
}

void Mutation(const Path& at, const Json& mutation, FieldErrors* errors) {
  const std::string type = Str(mutation, "patchType");
  if (type.empty()) {
    return errors->Required(at.Child("patchType"));
  }
  if (type != "ApplyConfiguration" && type != "JSONPatch") {
    return errors->NotSupported(at.Child("patchType"), type, {"ApplyConfiguration", "JSONPatch"});
  }
  const bool json = type == "JSONPatch";
  const char* own = json ? "jsonPatch" : "applyConfiguration";
  const char* other = json ? "applyConfiguration" : "jsonPatch";
  if (!Has(mutation, own)) {
    errors->Required(at.Child(own), "must be specified when patchType is " + type);
  } else {
    const Path patch = at.Child(own);
    Expression(patch, Get(mutation, own), "", errors);
  }
  if (Has(mutation, other)) {
    errors->Invalid(at.Child(other), "{" + std::string(other) + "}",
                    "must not be specified when patchType is " + type);
  }
}

}  // namespace

void MatchConditions(const Path& path, const Json& owner, FieldErrors* errors) {
  const auto& conditions = Items(owner, "matchConditions");
  if (conditions.size() > 64) {
    errors->TooMany(path, static_cast<std::int64_t>(conditions.size()), 64);
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < conditions.size(); ++i) {
    const Path at = path.Index(i);
    Expression(at, conditions[i], "", errors);
    const std::string name = Str(conditions[i], "name");
    CheckRequired(at.Child("name"), name, &IsQualifiedName, errors);
    if (!name.empty() && !names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
  }
}

void ValidatingPolicy(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  PolicyHead(spec, false, errors);
  const Path validations = kSpec.Child("validations");
  const auto& list = Items(spec, "validations");
  if (list.empty() && Items(spec, "auditAnnotations").empty()) {
    constexpr std::string_view kOne =
        "validations or auditAnnotations must contain at least one item";
    errors->Required(validations, kOne);
    errors->Required(kSpec.Child("auditAnnotations"), kOne);
    return;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    Validation(validations.Index(i), list[i], errors);
  }
  AuditAnnotations(object, errors);
}

void ValidatingPolicyUpdate(const Json& object, const Json&, FieldErrors* errors) {
  ValidatingPolicy(object, errors);
}

void ValidatingPolicyBinding(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  BindingHead(spec, errors);
  const Path path = kSpec.Child("validationActions");
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& one : Items(spec, "validationActions")) {
    const std::string action = one.get<std::string>();
    const Path at = path.Index(index++);
    if (action != "Audit" && action != "Deny" && action != "Warn") {
      errors->NotSupported(at, action, {"Audit", "Deny", "Warn"});
    }
    if (!seen.insert(action).second) {
      errors->Duplicate(at, action);
    }
  }
  if (seen.contains("Deny") && seen.contains("Warn")) {
    errors->Invalid(path, Get(spec, "validationActions"),
                    "must not contain both Deny and Warn (repeating the same validation failure "
                    "information in the API response and headers serves no purpose)");
  }
  if (seen.empty()) {
    errors->Required(path, "at least one validation action is required");
  }
}

void ValidatingPolicyBindingUpdate(const Json& object, const Json&, FieldErrors* errors) {
  ValidatingPolicyBinding(object, errors);
}

void MutatingPolicy(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  PolicyHead(spec, true, errors);
  const Path path = kSpec.Child("mutations");
  const auto& mutations = Items(spec, "mutations");
  if (mutations.empty()) {
    errors->Required(path, "mutations must contain at least one item");
  }
  for (std::size_t i = 0; i < mutations.size(); ++i) {
    Mutation(path.Index(i), mutations[i], errors);
  }
  OneOf(kSpec.Child("reinvocationPolicy"), Str(spec, "reinvocationPolicy"), {"IfNeeded", "Never"},
        true, errors);
}

void MutatingPolicyUpdate(const Json& object, const Json&, FieldErrors* errors) {
  MutatingPolicy(object, errors);
}

void MutatingPolicyBinding(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  BindingHead(spec, errors);
  const Path resources = kSpec.Child("matchResources");
  MutatingOperations(resources, Get(spec, "matchResources"), errors);
}

void MutatingPolicyBindingUpdate(const Json& object, const Json&, FieldErrors* errors) {
  MutatingPolicyBinding(object, errors);
}

}  // namespace sublet::kube::validate
