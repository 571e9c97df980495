// Flow schemas and priority levels.
// Source: k8s.io/kubernetes pkg/apis/flowcontrol/validation.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

constexpr std::int64_t kQueuesMax = 10'000'000;
constexpr int kHashBitsMax = 60;

bool HasStar(const Json& owner, const char* key) {
  const auto& items = Items(owner, key);
  return std::find(items.begin(), items.end(), "*") != items.end();
}

// Not empty; "*" stands alone. True when the items themselves are to be looked at.
bool ListOf(const Path& path, const Json& owner, const char* key, std::string_view required,
            std::string_view others, FieldErrors* errors) {
  const auto& items = Items(owner, key);
  if (items.empty()) {
    errors->Required(path.Child(key), required);
    return false;
  }
  if (!HasStar(owner, key)) {
    return true;
  }
  if (items.size() > 1) {
    errors->Invalid(path.Child(key), Get(owner, key),
                    "if '*' is present, must not specify other " + std::string(others));
  }
  return false;
}

void Verbs(const Path& path, const Json& rule, FieldErrors* errors) {
  static const std::vector<std::string_view> kVerbs = {
      "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"};
  if (!ListOf(path, rule, "verbs", "verbs must contain at least one value", "verbs", errors)) {
    return;
  }
  const auto& verbs = Items(rule, "verbs");
  const bool known = std::all_of(verbs.begin(), verbs.end(), [](const Json& verb) {
    return std::find(kVerbs.begin(), kVerbs.end(), verb.get<std::string>()) != kVerbs.end();
  });
  if (!known) {
    errors->NotSupported(path.Child("verbs"), Get(rule, "verbs"), kVerbs);
  }
}

void ResourceRule(const Path& at, const Json& rule, FieldErrors* errors) {
  Verbs(at, rule, errors);
  ListOf(at, rule, "apiGroups", "resource rules must supply at least one api group", "api groups",
         errors);
  ListOf(at, rule, "resources", "resource rules must supply at least one resource", "resources",
         errors);
  const auto& namespaces = Items(rule, "namespaces");
  if (namespaces.empty() && FindBool(rule, {"clusterScope"})) {
    return;
  }
  if (!ListOf(at, rule, "namespaces",
              "resource rules that are not cluster scoped must supply at least one namespace",
              "namespaces", errors)) {
    return;
  }
  const Path list = at.Child("namespaces");
  for (std::size_t i = 0; i < namespaces.size(); ++i) {
    for (const std::string& problem : IsDns1123Label(namespaces[i].get<std::string>())) {
      errors->Invalid(list.Index(i), namespaces[i],
                      "each member of this list must be '*' or a DNS-1123 label; " + problem);
    }
  }
}

std::string UrlProblem(std::string_view url) {
  if (url.empty()) {
    return "must not be empty";
  }
  if (url == "/") {
    return "";
  }
  if (url.front() != '/') {
    return "must start with slash";
  }
  if (url.find(' ') != std::string_view::npos) {
    return "must not contain white-space";
  }
  if (url.find("//") != std::string_view::npos) {
    return "must not contain double slash";
  }
  const auto stars = std::count(url.begin(), url.end(), '*');
  const bool at_end = url.ends_with("/*");
  return stars > 1 || (stars == 1 && !at_end) ? "wildcard can only do suffix matching" : "";
}

void NonResourceRule(const Path& at, const Json& rule, FieldErrors* errors) {
  Verbs(at, rule, errors);
  if (!ListOf(at, rule, "nonResourceURLs", "nonResourceURLs must contain at least one value",
              "non-resource URLs", errors)) {
    return;
  }
  const Path urls = at.Child("nonResourceURLs");
  std::size_t index = 0;
  for (const Json& url : Items(rule, "nonResourceURLs")) {
    const std::string problem = UrlProblem(url.get<std::string>());
    if (!problem.empty()) {
      errors->Invalid(urls.Index(index), url, problem);
    }
    ++index;
  }
}

void Subject(const Path& at, const Json& subject, FieldErrors* errors) {
  struct Row {
    std::string_view kind;
    const char* field;
  };
  static constexpr Row kRows[] = {
      {"ServiceAccount", "serviceAccount"}, {"User", "user"}, {"Group", "group"}};
  const std::string kind = Str(subject, "kind");
  const Row* own = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& row) { return row.kind == kind; });
  if (own == std::end(kRows)) {
    errors->NotSupported(at.Child("kind"), kind, {"Group", "ServiceAccount", "User"});
    return;
  }
  const Json& inside = Get(subject, own->field);
  const Path path = at.Child(own->field);
  const std::string field = own->field;
  if (!inside.is_object()) {
    errors->Required(path, field + " is required when subject kind is '" + kind + "'");
  } else if (const std::string name = Str(inside, "name"); name.empty()) {
    errors->Required(path.Child("name"));
  } else if (kind == "ServiceAccount" && name != "*") {
    Check(path.Child("name"), name, &IsDns1123Subdomain, errors);
  }
  if (inside.is_object() && kind == "ServiceAccount") {
    const std::string space = Str(inside, "namespace");
    if (space.empty()) {
      errors->Required(path.Child("namespace"), "must specify namespace for service account");
    } else {
      Check(path.Child("namespace"), space, &IsDns1123Label, errors);
    }
  }
  for (const Row& row : kRows) {
    if (&row != own && Has(subject, row.field)) {
      errors->Forbidden(at.Child(row.field), std::string(row.field) +
                                                 " is forbidden when subject kind is not '" +
                                                 std::string(row.kind) + "'");
    }
  }
}

void FlowRules(const Json& spec, FieldErrors* errors) {
  const Path rules = kSpec.Child("rules");
  std::size_t index = 0;
  for (const Json& rule : Items(spec, "rules")) {
    const Path at = rules.Index(index++);
    const auto& subjects = Items(rule, "subjects");
    const Path list = at.Child("subjects");
    if (subjects.empty()) {
      errors->Required(list, "subjects must contain at least one value");
    }
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      Subject(list.Index(i), subjects[i], errors);
    }
    const auto& resources = Items(rule, "resourceRules");
    const auto& others = Items(rule, "nonResourceRules");
    if (resources.empty() && others.empty()) {
      errors->Required(at,
                       "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    const Path resource_rules = at.Child("resourceRules");
    for (std::size_t i = 0; i < resources.size(); ++i) {
      ResourceRule(resource_rules.Index(i), resources[i], errors);
    }
    const Path other_rules = at.Child("nonResourceRules");
    for (std::size_t i = 0; i < others.size(); ++i) {
      NonResourceRule(other_rules.Index(i), others[i], errors);
    }
  }
}

void NotNegativeShares(const Path& path, const Json& owner, FieldErrors* errors) {
  if (const std::int64_t shares = FindInt(owner, {"nominalConcurrencyShares"}); shares < 0) {
    errors->Invalid(path.Child("nominalConcurrencyShares"), shares,
                    "must be a non-negative integer");
  }
}

void LendablePercent(const Path& path, const Json& owner, FieldErrors* errors) {
  const std::int64_t percent = FindInt(owner, {"lendablePercent"});
  if (percent < 0 || percent > 100) {
    errors->Invalid(path.Child("lendablePercent"), percent, "must be between 0 and 100, inclusive");
  }
}

void Queuing(const Path& path, const Json& queuing, FieldErrors* errors) {
  const std::int64_t length = FindInt(queuing, {"queueLengthLimit"});
  const std::int64_t queues = FindInt(queuing, {"queues"});
  const std::int64_t hand = FindInt(queuing, {"handSize"});
  if (length <= 0) {
    errors->Invalid(path.Child("queueLengthLimit"), length, "must be positive");
  }
  if (queues <= 0) {
    errors->Invalid(path.Child("queues"), queues, "must be positive");
  } else if (queues > kQueuesMax) {
    errors->Invalid(path.Child("queues"), queues, "must not be greater than 10000000");
  }
  if (hand <= 0) {
    errors->Invalid(path.Child("handSize"), hand, "must be positive");
    return;
  }
  if (hand > queues) {
    errors->Invalid(path.Child("handSize"), hand,
                    "should not be greater than queues (" + std::to_string(queues) + ")");
    return;
  }
  // Dealing a hand takes a hash of so many bits. The loop is short: it ends when they run out.
  double bits = 0;
  for (std::int64_t i = 0; i < hand && bits <= kHashBitsMax; ++i) {
    bits += std::log2(static_cast<double>(queues - i));
  }
  if (std::ceil(bits) > kHashBitsMax) {
    errors->Invalid(path.Child("handSize"), hand,
                    "required entropy bits of deckSize " + std::to_string(queues) +
                        " and handSize " + std::to_string(hand) + " should not be greater than 60");
  }
}

void LimitResponse(const Path& path, const Json& response, FieldErrors* errors) {
  const std::string type = Str(response, "type");
  const Path queuing = path.Child("queuing");
  const bool has_queuing = Has(response, "queuing");
  if (type == "Reject") {
    if (has_queuing) {
      errors->Forbidden(queuing, "must be nil if limited.limitResponse.type is not Limited");
    }
  } else if (type != "Queue") {
    errors->NotSupported(path.Child("type"), type, {"Queue", "Reject"});
  } else if (!has_queuing) {
    errors->Required(queuing, "must not be empty if limited.limitResponse.type is Limited");
  } else {
    Queuing(queuing, Get(response, "queuing"), errors);
  }
}

void Limited(const Json& spec, FieldErrors* errors) {
  const Path path = kSpec.Child("limited");
  const Json& limited = Get(spec, "limited");
  if (Has(spec, "exempt")) {
    errors->Forbidden(kSpec.Child("exempt"), "must be nil if the type is Limited");
  }
  if (!limited.is_object()) {
    errors->Required(path, "must not be empty when type is Limited");
    return;
  }
  NotNegativeShares(path, limited, errors);
  const Path response = path.Child("limitResponse");
  LimitResponse(response, Get(limited, "limitResponse"), errors);
  LendablePercent(path, limited, errors);
  if (const std::int64_t limit = FindInt(limited, {"borrowingLimitPercent"}); limit < 0) {
    errors->Invalid(path.Child("borrowingLimitPercent"), limit,
                    "if specified, must be a non-negative integer");
  }
}

}  // namespace

void FlowSchema(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const std::int64_t precedence = FindInt(spec, {"matchingPrecedence"});
  const Path at = kSpec.Child("matchingPrecedence");
  if (precedence <= 0) {
    errors->Invalid(at, precedence, "must be a positive value");
  } else if (precedence > 10000) {
    errors->Invalid(at, precedence, "must not be greater than 10000");
  } else if (precedence == 1 && Str(Get(object, "metadata"), "name") != "exempt") {
    errors->Invalid(at, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
  }
  if (Has(spec, "distinguisherMethod")) {
    const Path method = kSpec.Child("distinguisherMethod");
    const std::string type = Str(Get(spec, "distinguisherMethod"), "type");
    if (type != "ByNamespace" && type != "ByUser") {
      errors->NotSupportedShown(method.Child("type"), "{\"Type\":" + Json(type).dump() + "}",
                                {"ByNamespace", "ByUser"});
    }
  }
  const Path level = kSpec.Child("priorityLevelConfiguration");
  const std::string name = Str(Get(spec, "priorityLevelConfiguration"), "name");
  if (name.empty()) {
    errors->Required(level.Child("name"), "must reference a priority level");
  } else {
    Check(level.Child("name"), name, &IsDns1123Subdomain, errors);
  }
  FlowRules(spec, errors);
}

void FlowSchemaUpdate(const Json& object, const Json&, FieldErrors* errors) {
  FlowSchema(object, errors);
}

void PriorityLevel(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const std::string type = Str(spec, "type");
  const bool is_exempt = Str(Get(object, "metadata"), "name") == "exempt";
  if (is_exempt != (type == "Exempt")) {
    errors->Invalid(kSpec.Child("type"), type,
                    "must be 'Exempt' if and only if `name` is 'exempt'");
  }
  if (type == "Limited") {
    Limited(spec, errors);
  } else if (type != "Exempt") {
    errors->NotSupported(kSpec.Child("type"), type, {"Exempt", "Limited"});
  } else {
    if (Has(spec, "limited")) {
      errors->Forbidden(kSpec.Child("limited"), "must be nil if the type is not Limited");
    }
    const Path path = kSpec.Child("exempt");
    NotNegativeShares(path, Get(spec, "exempt"), errors);
    LendablePercent(path, Get(spec, "exempt"), errors);
  }
}

void PriorityLevelUpdate(const Json& object, const Json&, FieldErrors* errors) {
  PriorityLevel(object, errors);
}

}  // namespace sublet::kube::validate
