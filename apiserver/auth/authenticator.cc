#include "apiserver/auth/authenticator.h"

#include <algorithm>

#include "apiserver/auth/base64url.h"
#include "base/log.h"

namespace sublet::apiserver {
namespace {

bool StartsWithIgnoringCase(std::string_view text, std::string_view lower_case_prefix) {
  return text.size() >= lower_case_prefix.size() &&
         std::equal(lower_case_prefix.begin(), lower_case_prefix.end(), text.begin(),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
}

// Browsers cannot set headers on a WebSocket: the token comes as one of the offered subprotocols.
constexpr std::string_view kProtocolPrefix = "base64url.bearer.authorization.k8s.io.";

std::string ProtocolToken(Request& request) {
  for (auto& [name, value] : request.headers) {
    if (name != "sec-websocket-protocol") {
      continue;
    }
    const auto at = value.find(kProtocolPrefix);
    if (at == std::string::npos) {
      continue;
    }
    const auto end = value.find(',', at);
    const auto encoded = value.substr(
        at + kProtocolPrefix.size(),
        end == std::string::npos ? std::string::npos : end - at - kProtocolPrefix.size());
    auto token = DecodeBase64Url(encoded);
    value.erase(at, end == std::string::npos ? std::string::npos : end + 1 - at);
    while (!value.empty() && (value.back() == ' ' || value.back() == ',')) {
      value.pop_back();
    }
    return token.value_or("");
  }
  return "";
}

// Takes the bearer token out of the headers; "" when there is none.
std::string TakeBearerToken(Request& request) {
  constexpr std::string_view kScheme = "bearer ";
  std::string token;
  for (auto& [name, value] : request.headers) {
    if (name == "authorization") {
      if (token.empty() && StartsWithIgnoringCase(value, kScheme)) {
        token = value.substr(value.find_first_not_of(' ', kScheme.size() - 1) == std::string::npos
                                 ? value.size()
                                 : value.find_first_not_of(' ', kScheme.size() - 1));
      }
      std::fill(value.begin(), value.end(), '\0');
      value.clear();
    }
  }
  std::erase_if(request.headers, [](const auto& header) {
    return header.first == "authorization" || header.first == "cookie";
  });
  return token.empty() ? ProtocolToken(request) : token;
}

void AddGroup(User& user, std::string_view group) {
  if (std::find(user.groups.begin(), user.groups.end(), group) == user.groups.end()) {
    user.groups.emplace_back(group);
  }
}

}  // namespace

bool SplitAccountName(std::string_view user, std::string_view* namespace_name,
                      std::string_view* name) {
  if (!user.starts_with(kAccountPrefix)) {
    return false;
  }
  user.remove_prefix(kAccountPrefix.size());
  const auto colon = user.find(':');
  if (colon == std::string_view::npos || user.find(':', colon + 1) != std::string_view::npos) {
    return false;
  }
  *namespace_name = user.substr(0, colon);
  *name = user.substr(colon + 1);
  return true;
}

Result<User> Authenticator::AuthenticateToken(std::string_view token,
                                              const std::vector<std::string>& audiences,
                                              std::vector<std::string>* matched) const {
  const auto found = options_.static_tokens.find(std::string(token));
  if (found != options_.static_tokens.end()) {
    // A static token names no audience: it is good for the API server's own.
    if (tokens_ != nullptr && !audiences.empty()) {
      std::vector<std::string> common;
      for (const auto& audience : tokens_->audiences()) {
        if (std::find(audiences.begin(), audiences.end(), audience) != audiences.end()) {
          common.push_back(audience);
        }
      }
      if (common.empty()) {
        return Status(Reason::kUnauthorized, "the token is for another audience");
      }
      if (matched != nullptr) {
        *matched = std::move(common);
      }
    } else if (matched != nullptr && tokens_ != nullptr) {
      *matched = tokens_->audiences();
    }
    return found->second;
  }
  if (tokens_ == nullptr) {
    return Status(Reason::kUnauthorized, "the token is unknown");
  }
  return tokens_->Authenticate(token, audiences, matched);
}

Result<void> Authenticator::Authenticate(Request& request) const {
  if (request.loopback) {
    AddGroup(request.user, kAuthenticatedGroup);
    return {};
  }
  const std::string token = TakeBearerToken(request);
  if (!request.tls_common_name.empty()) {
    request.user.name = request.tls_common_name;
    request.user.groups = request.tls_organizations;
    if (!request.tls_fingerprint.empty()) {
      request.user.extra["authentication.kubernetes.io/credential-id"] = {"X509SHA256=" +
                                                                          request.tls_fingerprint};
    }
    AddGroup(request.user, kAuthenticatedGroup);
    return {};
  }
  if (!token.empty()) {
    auto user = AuthenticateToken(token, {}, nullptr);
    if (user.ok()) {
      request.user = std::move(*user);
      AddGroup(request.user, kAuthenticatedGroup);
      return {};
    }
    log::Debug("a bearer token was refused", {{"reason", user.error()}});
    return Unauthorized();
  }
  if (request.tls_certificate_rejected || !options_.allow_anonymous) {
    return Unauthorized();
  }
  request.user.name = kAnonymous;
  request.user.groups = {std::string(kUnauthenticatedGroup)};
  return {};
}

}  // namespace sublet::apiserver
