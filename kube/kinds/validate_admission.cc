// Webhook configurations.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

// The path that a service is asked under: subdomains between slashes.
void ServicePath(const Path& at, const std::string& path, FieldErrors* errors) {
  if (path.empty() || path == "/") {
    return;
  }
  if (path == "//") {
    return errors->Invalid(at, path, "segment[0] may not be empty");
  }
  if (path.front() != '/') {
    errors->Invalid(at, path, "must start with a '/'");
  }
  std::string rest = path.substr(1);
  if (rest.ends_with('/')) {
    rest.pop_back();
  }
  bool more = true;
  for (std::size_t i = 0; more; ++i) {
    const std::size_t slash = rest.find('/');
    const std::string step = rest.substr(0, slash);
    const std::string segment = "segment[" + std::to_string(i) + "]";
    if (step.empty()) {
      errors->Invalid(at, path, segment + " may not be empty");
    } else {
      for (const std::string& problem : IsDns1123Subdomain(step)) {
        errors->Invalid(at, path, segment + ": " + problem);
      }
    }
    more = slash != std::string::npos;
    rest = more ? rest.substr(slash + 1) : "";
  }
}

void ClientConfig(const Path& path, const Json& config, FieldErrors* errors) {
  const bool url = Has(config, "url");
  const bool service = Has(config, "service");
  if (url == service) {
    errors->Required(path, "exactly one of url or service is required");
    return;
  }
  if (url) {
    const std::string text = Str(config, "url");
    const std::size_t colon = text.find("://");
    const std::string scheme = colon == std::string::npos ? "" : text.substr(0, colon);
    if (scheme != "https") {
      errors->Invalid(path.Child("url"), scheme,
                      "'https' is the only allowed URL scheme; desired format: "
                      "https://host[/path]");
    }
    if (colon == std::string::npos || text.size() == colon + 3) {
      errors->Invalid(path.Child("url"), "",
                      "host must be specified; desired format: https://host[/path]");
    }
    return;
  }
  const Json& reference = Get(config, "service");
  const Path at = path.Child("service");
  // Upstream names the one when the other is missing.
  for (const auto& [named, missing] :
       {std::pair{"name", "namespace"}, std::pair{"namespace", "name"}}) {
    if (Str(reference, missing).empty()) {
      errors->Required(at.Child(named));
    }
  }
  const std::int64_t port = FindInt(reference, {"port"}, 443);
  if (const Problems problems = IsPortNumber(port); !problems.empty()) {
    errors->Invalid(at.Child("port"), port, "port is not valid: " + Join(problems, ", "));
  }
  ServicePath(at.Child("path"), Str(reference, "path"), errors);
}

// One of `allowed`, which an empty word is not.
void Word(const Path& path, const std::string& value,
          std::initializer_list<std::string_view> allowed, FieldErrors* errors) {
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    errors->NotSupported(path, value, allowed);
  }
}

bool Holds(const Json& rule, const char* key, std::string_view value) {
  const auto& items = Items(rule, key);
  return std::find(items.begin(), items.end(), value) != items.end();
}

// resources of a rule: "a", "a/b", "a/*", "*/b", "*", "*/*"; what a wildcard names already is not
// named again.
void RuleResources(const Path& path, const Json& rule, FieldErrors* errors) {
  const auto& items = Items(rule, "resources");
  if (items.empty()) {
    errors->Required(path);
  }
  std::set<std::string> with_all;
  std::set<std::string> of_all;
  bool plain = false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string text = items[i].get<std::string>();
    const std::size_t slash = text.find('/');
    if (text.empty()) {
      errors->Required(path.Index(i));
      continue;
    }
    if (slash == std::string::npos) {
      plain = text != "*";
      continue;
    }
    const std::string resource = text.substr(0, slash);
    const std::string sub = text.substr(slash + 1);
    if (with_all.contains(resource)) {
      errors->Invalid(path.Index(i), text,
                      "if '" + resource + "/*' is present, must not specify " + text);
    }
    if (of_all.contains(sub)) {
      errors->Invalid(path.Index(i), text,
                      "if '*/" + sub + "' is present, must not specify " + text);
    }
    if (sub == "*") {
      with_all.insert(resource);
    }
    if (resource == "*") {
      of_all.insert(sub);
    }
  }
  if (items.size() > 1 && Holds(rule, "resources", "*/*")) {
    errors->Invalid(path, Get(rule, "resources"),
                    "if '*/*' is present, must not specify other resources");
  }
  if (plain && Holds(rule, "resources", "*")) {
    errors->Invalid(path, Get(rule, "resources"),
                    "if '*' is present, must not specify other resources without subresources");
  }
}

}  // namespace

void AdmissionRule(const Path& at, const Json& rule, FieldErrors* errors) {
  const auto required = [&](const char* key) {
    if (Items(rule, key).empty()) {
      errors->Required(at.Child(key));
    }
  };
  const auto alone = [&](const char* key, std::string_view star, std::string_view others) {
    if (Items(rule, key).size() > 1 && Holds(rule, key, star)) {
      errors->Invalid(at.Child(key), Get(rule, key),
                      "if '" + std::string(star) + "' is present, must not specify other " +
                          std::string(others));
    }
  };
  required("operations");
  alone("operations", "*", "operations");
  const Path operations = at.Child("operations");
  std::size_t index = 0;
  for (const Json& operation : Items(rule, "operations")) {
    Word(operations.Index(index++), operation.get<std::string>(),
         {"*", "CONNECT", "CREATE", "DELETE", "UPDATE"}, errors);
  }
  required("apiGroups");
  alone("apiGroups", "*", "API groups");
  required("apiVersions");
  alone("apiVersions", "*", "API versions");
  const Path versions = at.Child("apiVersions");
  index = 0;
  for (const Json& version : Items(rule, "apiVersions")) {
    if (version == "") {
      errors->Required(versions.Index(index));
    }
    ++index;
  }
  const Path resources = at.Child("resources");
  RuleResources(resources, rule, errors);
  if (Has(rule, "scope")) {
    Word(at.Child("scope"), Str(rule, "scope"), {"*", "Cluster", "Namespaced"}, errors);
  }
}

namespace {

bool KnowsReviews(const Json& hook) {
  const auto& versions = Items(hook, "admissionReviewVersions");
  return std::any_of(versions.begin(), versions.end(),
                     [](const Json& one) { return one == "v1" || one == "v1beta1"; });
}

void ReviewVersions(const Path& path, const Json& hook, bool needs_known, FieldErrors* errors) {
  const auto& versions = Items(hook, "admissionReviewVersions");
  if (versions.empty()) {
    return errors->Required(path, "must specify one of v1, v1beta1");
  }
  std::set<std::string> seen;
  for (std::size_t i = 0; i < versions.size(); ++i) {
    const std::string version = versions[i].get<std::string>();
    if (!seen.insert(version).second) {
      errors->Invalid(path.Index(i), version, "duplicate version");
    } else {
      Check(path.Index(i), version, &IsDns1035Label, errors);
    }
  }
  if (needs_known && !KnowsReviews(hook)) {
    errors->Invalid(path, Json(versions), "must include at least one of v1, v1beta1");
  }
}

void Webhook(const Path& at, const Json& hook, bool needs_known, FieldErrors* errors) {
  const std::string name = Str(hook, "name");
  if (name.empty()) {
    errors->Required(at.Child("name"));
  } else if (const Problems problems = IsDns1123Subdomain(name); !problems.empty()) {
    errors->Invalid(at.Child("name"), name, Join(problems, ","));
  } else if (std::count(name.begin(), name.end(), '.') < 2) {
    errors->Invalid(at.Child("name"), name,
                    "should be a domain with at least three segments separated by dots");
  }
  const Path rules = at.Child("rules");
  std::size_t index = 0;
  for (const Json& rule : Items(hook, "rules")) {
    AdmissionRule(rules.Index(index++), rule, errors);
  }
  Word(at.Child("failurePolicy"), Str(hook, "failurePolicy"), {"Fail", "Ignore"}, errors);
  Word(at.Child("matchPolicy"), Str(hook, "matchPolicy"), {"Equivalent", "Exact"}, errors);
  const std::string effects = Str(hook, "sideEffects");
  if (!Has(hook, "sideEffects")) {
    errors->Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun");
  } else {
    Word(at.Child("sideEffects"), effects, {"None", "NoneOnDryRun"}, errors);
  }
  const std::int64_t timeout = FindInt(hook, {"timeoutSeconds"}, 10);
  if (timeout < 1 || timeout > 30) {
    errors->Invalid(at.Child("timeoutSeconds"), timeout,
                    "the timeout value must be between 1 and 30 seconds");
  }
  for (const char* selector : {"namespaceSelector", "objectSelector"}) {
    LabelSelector(at.Child(selector), Get(hook, selector), errors);
  }
  const Path config = at.Child("clientConfig");
  ClientConfig(config, Get(hook, "clientConfig"), errors);
  ReviewVersions(at.Child("admissionReviewVersions"), hook, needs_known, errors);
  const Path conditions = at.Child("matchConditions");
  MatchConditions(conditions, hook, errors);
}

}  // namespace

namespace {

void AllWebhooks(const Json& object, bool needs_known, FieldErrors* errors) {
  const Path webhooks("webhooks");
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& hook : Items(object, "webhooks")) {
    const Path at = webhooks.Index(index++);
    Webhook(at, hook, needs_known, errors);
    const std::string name = Str(hook, "name");
    if (!name.empty() && !names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
  }
}

}  // namespace

void Webhooks(const Json& object, FieldErrors* errors) { AllWebhooks(object, true, errors); }

void WebhooksUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  const auto& before = Items(old, "webhooks");
  AllWebhooks(object, std::all_of(before.begin(), before.end(), KnowsReviews), errors);
}

}  // namespace sublet::kube::validate
