// Webhook configurations and certificate signing requests.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/base64.h"
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
    } else if (text.size() == colon + 3) {
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

void Webhook(const Path& at, const Json& hook, FieldErrors* errors) {
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
  if (Items(hook, "admissionReviewVersions").empty()) {
    errors->Required(at.Child("admissionReviewVersions"), "must specify one of v1, v1beta1");
  }
  const Path conditions = at.Child("matchConditions");
  MatchConditions(conditions, hook, errors);
}

std::ptrdiff_t CountConditions(const Json& object, std::string_view type) {
  const auto& list = Items(Get(object, "status"), "conditions");
  return std::count_if(list.begin(), list.end(),
                       [type](const Json& one) { return Str(one, "type") == type; });
}

bool RepeatsConditions(const Json& object) {
  const auto& list = Items(Get(object, "status"), "conditions");
  return std::any_of(list.begin(), list.end(), [&](const Json& one) {
    return CountConditions(object, Str(one, "type")) > 1;
  });
}

// What an older object shows already is borne.
void Conditions(const Json& object, const Json& old, FieldErrors* errors) {
  const Path status("status");
  const Path path = status.Child("conditions");
  const bool bears_both =
      CountConditions(old, "Approved") > 0 && CountConditions(old, "Denied") > 0;
  const bool bears_repeated = RepeatsConditions(old);
  const bool bears_empty = CountConditions(old, "") > 0;
  std::set<std::string> seen;
  const auto& list = Items(Get(object, "status"), "conditions");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Path at = path.Index(i);
    const std::string type = Str(list[i], "type");
    if (type.empty() && !bears_empty) {
      errors->Required(at.Child("type"));
    }
    const std::string value = Str(list[i], "status");
    if (type == "Approved" || type == "Denied" || type == "Failed") {
      OneOf(at.Child("status"), value, {"True"}, true, errors);
    } else {
      OneOf(at.Child("status"), value, {"False", "True", "Unknown"}, true, errors);
    }
    const char* other = type == "Approved" ? "Denied" : type == "Denied" ? "Approved" : "";
    if (!bears_both && *other != '\0' && seen.contains(other)) {
      errors->Invalid(path, type, "Approved and Denied conditions are mutually exclusive");
    }
    if (!seen.insert(type).second && !bears_repeated) {
      errors->Duplicate(at.Child("type"), type);
    }
  }
}

void ConditionChanges(const Json& object, const Json& old, bool is_approval, FieldErrors* errors) {
  const Path status("status");
  const Path path = status.Child("conditions");
  for (const char* type : {"Approved", "Denied", "Failed"}) {
    if (CountConditions(object, type) < CountConditions(old, type)) {
      errors->Forbidden(path, "updates may not remove a condition of type " + GoQuote(type));
    }
  }
  for (const char* type : {"Approved", "Denied"}) {
    if (!is_approval && CountConditions(object, type) > CountConditions(old, type)) {
      errors->Forbidden(path, "updates may not add a condition of type " + GoQuote(type));
    }
  }
}

// PEM blocks as status.certificate holds them. Differs: what stands inside a block is not parsed,
// kube/ knows no cryptography; whoever uses the certificate does.
void Certificates(const Path& path, const std::string& encoded, FieldErrors* errors) {
  constexpr std::string_view kBegin = "-----BEGIN ";
  const std::string pem = DecodeBase64(encoded).value_or("");
  int blocks = 0;
  for (std::size_t at = pem.find(kBegin); at != std::string::npos; at = pem.find(kBegin, at + 1)) {
    const std::size_t from = at + kBegin.size();
    const std::string type = pem.substr(from, pem.find("-----", from) - from);
    if (type != "CERTIFICATE") {
      errors->Invalid(path, "<certificate data>",
                      "only CERTIFICATE PEM blocks are allowed, found " + GoQuote(type));
      return;
    }
    ++blocks;
  }
  if (blocks == 0 && !encoded.empty()) {
    errors->Invalid(path, "<certificate data>", "must contain at least one CERTIFICATE PEM block");
  }
}

}  // namespace

void Webhooks(const Json& object, FieldErrors* errors) {
  const Path webhooks("webhooks");
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& hook : Items(object, "webhooks")) {
    const Path at = webhooks.Index(index++);
    Webhook(at, hook, errors);
    const std::string name = Str(hook, "name");
    if (!name.empty() && !names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
  }
}

void WebhooksUpdate(const Json& object, const Json&, FieldErrors* errors) {
  Webhooks(object, errors);
}

void CertificateSigningRequest(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Path path("spec");
  const std::string request = DecodeBase64(Str(spec, "request")).value_or("");
  if (request.find("-----BEGIN CERTIFICATE REQUEST-----") == std::string::npos) {
    errors->Invalid(path.Child("request"), Str(spec, "request"),
                    "PEM block type must be CERTIFICATE REQUEST");
  }
  if (Items(spec, "usages").empty()) {
    errors->Required(path.Child("usages"));
  }
  const std::string signer = Str(spec, "signerName");
  const std::size_t slash = signer.find('/');
  if (signer.empty()) {
    errors->Required(path.Child("signerName"));
  } else if (slash == std::string::npos || slash + 1 == signer.size()) {
    errors->Invalid(path.Child("signerName"), signer,
                    "must be a fully qualified domain and path of the form "
                    "'example.com/signer-name'");
  } else {
    Check(path.Child("signerName"), signer.substr(0, slash), &IsDns1123Subdomain, errors);
  }
}

void CertificateSigningRequestStatus(const Json& object, const Json& old, FieldErrors* errors) {
  const Path status("status");
  const std::string before = Str(Get(old, "status"), "certificate");
  const std::string certificate = Str(Get(object, "status"), "certificate");
  Conditions(object, old, errors);
  if (certificate != before) {
    Certificates(status.Child("certificate"), certificate, errors);
  }
  ConditionChanges(object, old, false, errors);
  if (certificate != before && !before.empty()) {
    errors->Forbidden(status.Child("certificate"),
                      "updates may not modify existing certificate content");
  }
}

void CertificateSigningRequestApproval(std::string_view, const Json& object, const Json& old,
                                       FieldErrors* errors) {
  Conditions(object, old, errors);
  ConditionChanges(object, old, true, errors);
}

}  // namespace sublet::kube::validate
