#include "apiserver/auth/impersonation.h"

#include <algorithm>

#include "apiserver/auth/authenticator.h"
#include "kube/field_error.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kExtraPrefix = "impersonate-extra-";

struct Wanted {
  User user;
  bool has_user = false;
  bool any = false;
};

Wanted TakeHeaders(Request& request) {
  Wanted wanted;
  for (auto& [name, value] : request.headers) {
    if (!name.starts_with("impersonate-")) {
      continue;
    }
    wanted.any = true;
    if (name == "impersonate-user") {
      wanted.user.name = value;
      wanted.has_user = !value.empty();
    } else if (name == "impersonate-group") {
      wanted.user.groups.push_back(value);
    } else if (name == "impersonate-uid") {
      wanted.user.uid = value;
    } else if (name.starts_with(kExtraPrefix)) {
      wanted.user.extra[DecodePath(name.substr(kExtraPrefix.size()))].push_back(value);
    }
  }
  if (wanted.any) {
    std::erase_if(request.headers,
                  [](const auto& header) { return header.first.starts_with("impersonate-"); });
  }
  return wanted;
}

Result<void> Check(const Authorizer& authorizer, const User& caller, std::string_view group,
                   std::string_view resource, std::string_view subresource,
                   std::string_view namespace_name, std::string_view name) {
  const Attributes attributes{.user = &caller,
                              .verb = "impersonate",
                              .group = group,
                              .version = "v1",
                              .resource = resource,
                              .subresource = subresource,
                              .namespace_name = namespace_name,
                              .name = name};
  const Decision decision = authorizer.Authorize(attributes);
  if (!decision.allowed) {
    return ForbiddenStatus(attributes, decision.reason);
  }
  return {};
}

// What the real login of such a user would add.
void AddImpliedGroups(User& user, bool groups_given) {
  const auto has = [&](std::string_view group) {
    return std::find(user.groups.begin(), user.groups.end(), group) != user.groups.end();
  };
  std::string_view namespace_name;
  std::string_view name;
  if (!groups_given && SplitAccountName(user.name, &namespace_name, &name)) {
    user.groups = {"system:serviceaccounts",
                   "system:serviceaccounts:" + std::string(namespace_name)};
  }
  if (!has(kAuthenticatedGroup) && !has(kUnauthenticatedGroup)) {
    user.groups.emplace_back(user.name == kAnonymous ? kUnauthenticatedGroup : kAuthenticatedGroup);
  }
}

}  // namespace

Result<void> Impersonate(Request& request, const Authorizer& authorizer) {
  constexpr std::string_view kAuthentication = "authentication.k8s.io";
  Wanted wanted = TakeHeaders(request);
  if (!wanted.any) {
    return {};
  }
  if (!wanted.has_user) {
    // Groups, a uid or extra values alone make nobody.
    std::string groups;
    for (const auto& group : wanted.user.groups) {
      groups += (groups.empty() ? "" : ", ") + kube::GoQuote(group);
    }
    return BadRequest(
        "requested &user.DefaultInfo{Name:\"\", UID:" + kube::GoQuote(wanted.user.uid) +
        ", Groups:[]string" + (groups.empty() ? "(nil)" : "{" + groups + "}") +
        ", Extra:map[string][]string" + (wanted.user.extra.empty() ? "(nil)" : "{...}") +
        "} without impersonating a user name");
  }
  const User& caller = request.user;
  std::string_view namespace_name;
  std::string_view name;
  if (SplitAccountName(wanted.user.name, &namespace_name, &name)) {
    SUBLET_RETURN_IF_ERROR(
        Check(authorizer, caller, "", "serviceaccounts", "", namespace_name, name));
  } else {
    SUBLET_RETURN_IF_ERROR(Check(authorizer, caller, "", "users", "", "", wanted.user.name));
  }
  for (const auto& group : wanted.user.groups) {
    SUBLET_RETURN_IF_ERROR(Check(authorizer, caller, "", "groups", "", "", group));
  }
  if (!wanted.user.uid.empty()) {
    SUBLET_RETURN_IF_ERROR(
        Check(authorizer, caller, kAuthentication, "uids", "", "", wanted.user.uid));
  }
  for (const auto& [key, values] : wanted.user.extra) {
    for (const auto& value : values) {
      SUBLET_RETURN_IF_ERROR(
          Check(authorizer, caller, kAuthentication, "userextras", key, "", value));
    }
  }
  AddImpliedGroups(wanted.user, !wanted.user.groups.empty());
  request.user = std::move(wanted.user);
  return {};
}

}  // namespace sublet::apiserver
