#include "apiserver/auth/reviews.h"

#include <nlohmann/json.hpp>

#include "kube/field_error.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kReviewGroup = "authorization.k8s.io";

std::vector<std::string> StringsAt(const kube::Json& object,
                                   std::initializer_list<std::string_view> path) {
  std::vector<std::string> out;
  const kube::Json* list = kube::Find(object, path);
  if (list != nullptr && list->is_array()) {
    for (const auto& item : *list) {
      if (item.is_string()) {
        out.push_back(item.get<std::string>());
      }
    }
  }
  return out;
}

User UserOf(const kube::Json& spec) {
  User user;
  user.name = kube::FindString(spec, {"user"});
  user.uid = kube::FindString(spec, {"uid"});
  user.groups = StringsAt(spec, {"groups"});
  if (const kube::Json* extra = kube::Find(spec, {"extra"});
      extra != nullptr && extra->is_object()) {
    for (const auto& [key, values] : extra->items()) {
      auto& into = user.extra[key];
      for (const auto& value : values) {
        into.push_back(value.is_string() ? value.get<std::string>() : "");
      }
    }
  }
  return user;
}

kube::Json UserInfo(const User& user) {
  kube::Json info = {{"username", user.name}};
  if (!user.uid.empty()) {
    info["uid"] = user.uid;
  }
  if (!user.groups.empty()) {
    info["groups"] = user.groups;
  }
  if (!user.extra.empty()) {
    info["extra"] = user.extra;
  }
  return info;
}

bool HasMember(const kube::Json& spec, const char* name) {
  const auto found = spec.find(name);
  return found != spec.end() && !found->is_null();
}

// One and only one of the two kinds of attributes.
void CheckAttributes(const kube::Json& spec, kube::FieldErrors& errors) {
  const bool resource = HasMember(spec, "resourceAttributes");
  const bool other = HasMember(spec, "nonResourceAttributes");
  if (resource && other) {
    errors.Invalid(std::string("spec.nonResourceAttributes"),
                   *kube::Find(spec, {"nonResourceAttributes"}),
                   "cannot be specified in combination with resourceAttributes");
  }
  if (!resource && !other) {
    errors.Invalid(std::string("spec.resourceAttributes"), nullptr,
                   "exactly one of nonResourceAttributes or resourceAttributes must be specified");
  }
}

kube::Json& SpecOf(kube::Json& review) {
  kube::Json& spec = review["spec"];
  if (!spec.is_object()) {
    spec = kube::Json::object();
  }
  return spec;
}

kube::Json RuleJson(const PolicyRule& rule, bool is_resource) {
  kube::Json out = {{"verbs", rule.verbs}};
  if (!is_resource) {
    out["nonResourceURLs"] = rule.non_resource_urls;
    return out;
  }
  out["apiGroups"] = rule.api_groups;
  out["resources"] = rule.resources;
  if (!rule.resource_names.empty()) {
    out["resourceNames"] = rule.resource_names;
  }
  return out;
}

}  // namespace

Result<kube::Json> AccessReviews::Answer(kube::Json review, const User& user) const {
  const kube::Json& spec = review["spec"];
  Attributes attributes{.user = &user};
  if (const kube::Json* asked = kube::Find(spec, {"resourceAttributes"});
      asked != nullptr && asked->is_object()) {
    attributes.verb = kube::FindString(*asked, {"verb"});
    attributes.group = kube::FindString(*asked, {"group"});
    attributes.version = kube::FindString(*asked, {"version"});
    attributes.resource = kube::FindString(*asked, {"resource"});
    attributes.subresource = kube::FindString(*asked, {"subresource"});
    attributes.namespace_name = kube::FindString(*asked, {"namespace"});
    attributes.name = kube::FindString(*asked, {"name"});
  } else {
    attributes.is_resource = false;
    attributes.verb = kube::FindString(spec, {"nonResourceAttributes", "verb"});
    attributes.path = kube::FindString(spec, {"nonResourceAttributes", "path"});
  }
  const Decision decision = authorizer_.Authorize(attributes, true);
  kube::Json status = {{"allowed", decision.allowed}};
  if (!decision.reason.empty()) {
    status["reason"] = decision.reason;
  }
  review["status"] = std::move(status);
  return review;
}

Result<kube::Json> AccessReviews::SelfSubjectAccess(kube::Json review, const User& user) const {
  kube::FieldErrors errors;
  CheckAttributes(SpecOf(review), errors);
  if (!errors.empty()) {
    return Invalid(kReviewGroup, "", "", errors.Take());
  }
  return Answer(std::move(review), user);
}

Result<kube::Json> AccessReviews::SubjectAccess(kube::Json review) const {
  kube::FieldErrors errors;
  const kube::Json& spec = SpecOf(review);
  CheckAttributes(spec, errors);
  const User user = UserOf(spec);
  if (user.name.empty() && user.groups.empty()) {
    errors.Invalid(std::string("spec.user"), "", "at least one of user or group must be specified");
  }
  if (!errors.empty()) {
    return Invalid(kReviewGroup, "", "", errors.Take());
  }
  return Answer(std::move(review), user);
}

Result<kube::Json> AccessReviews::LocalSubjectAccess(kube::Json review,
                                                     std::string_view namespace_name) const {
  kube::FieldErrors errors;
  const kube::Json& spec = SpecOf(review);
  CheckAttributes(spec, errors);
  const User user = UserOf(spec);
  if (user.name.empty() && user.groups.empty()) {
    errors.Invalid(std::string("spec.user"), "", "at least one of user or group must be specified");
  }
  if (HasMember(spec, "nonResourceAttributes")) {
    errors.Invalid(std::string("spec.nonResourceAttributes"), spec["nonResourceAttributes"],
                   "disallowed on this kind of request");
  } else if (kube::FindString(spec, {"resourceAttributes", "namespace"}) != namespace_name) {
    errors.Invalid(std::string("spec.resourceAttributes.namespace"),
                   std::string(kube::FindString(spec, {"resourceAttributes", "namespace"})),
                   "must match metadata.namespace");
  }
  if (!errors.empty()) {
    return Invalid(kReviewGroup, "", "", errors.Take());
  }
  review["metadata"]["namespace"] = namespace_name;
  return Answer(std::move(review), user);
}

Result<kube::Json> AccessReviews::SelfSubjectRules(kube::Json review, const User& user) const {
  const auto namespace_name = kube::FindString(SpecOf(review), {"namespace"});
  if (namespace_name.empty()) {
    return BadRequest("no namespace on request");
  }
  const UserRules rules = authorizer_.RulesOf(user, namespace_name);
  kube::Json resource = kube::Json::array();
  kube::Json other = kube::Json::array();
  for (const PolicyRule& rule : rules.rules) {
    if (!rule.resources.empty()) {
      resource.push_back(RuleJson(rule, true));
    }
    if (!rule.non_resource_urls.empty()) {
      other.push_back(RuleJson(rule, false));
    }
  }
  // The question is not repeated.
  review["metadata"] = kube::Json::object();
  review["spec"] = kube::Json::object();
  review["status"] = {{"resourceRules", std::move(resource)},
                      {"nonResourceRules", std::move(other)},
                      {"incomplete", !rules.errors.empty()}};
  if (!rules.errors.empty()) {
    review["status"]["evaluationError"] = rules.errors;
  }
  return review;
}

Result<kube::Json> AccessReviews::SelfSubject(kube::Json review, const User& user) const {
  review["status"] = {{"userInfo", UserInfo(user)}};
  return review;
}

Result<kube::Json> AccessReviews::Token(kube::Json review) const {
  const kube::Json& spec = SpecOf(review);
  const std::string token(kube::FindString(spec, {"token"}));
  if (token.empty()) {
    return BadRequest("token is required for TokenReview in authentication");
  }
  std::vector<std::string> matched;
  auto user = authenticator_.AuthenticateToken(token, StringsAt(spec, {"audiences"}), &matched);
  kube::Json status = {{"user", kube::Json::object()}};
  if (user.ok()) {
    user->groups.emplace_back(kAuthenticatedGroup);
    status["authenticated"] = true;
    status["user"] = UserInfo(*user);
    if (!matched.empty()) {
      status["audiences"] = matched;
    }
  } else {
    status["error"] = "invalid bearer token";
  }
  review["status"] = std::move(status);
  return review;
}

}  // namespace sublet::apiserver
