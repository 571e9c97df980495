// Authenticator: who asks. Client certificate, bearer token (static, service account), loopback, or
// nobody ("system:anonymous"). One bad credential beside a good one does no harm; only bad ones are
// refused.
// Threads: any; immutable after construction.
// Source: k8s.io/apiserver authentication/request/union, x509, bearertoken, anonymous.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "apiserver/auth/service_account_tokens.h"
#include "apiserver/request.h"

namespace sublet::apiserver {

inline constexpr std::string_view kAnonymous = "system:anonymous";
inline constexpr std::string_view kAuthenticatedGroup = "system:authenticated";
inline constexpr std::string_view kUnauthenticatedGroup = "system:unauthenticated";
inline constexpr std::string_view kMastersGroup = "system:masters";
inline constexpr std::string_view kAccountPrefix = "system:serviceaccount:";

struct AuthenticatorOptions {
  std::map<std::string, User> static_tokens;  // token → user
  bool allow_anonymous = true;
};

class Authenticator {
 public:
  // `tokens` may be null (no service accounts) and outlives this.
  Authenticator(AuthenticatorOptions options, const ServiceAccountTokens* tokens)
      : options_(std::move(options)), tokens_(tokens) {}

  // Sets request.user and removes the credentials from request.headers. A loopback request keeps
  // the user its transport named. Errors: Unauthorized.
  Result<void> Authenticate(Request& request) const;
  // Who a bearer token is, without the group of all authenticated users: for TokenReview.
  Result<User> AuthenticateToken(std::string_view token, const std::vector<std::string>& audiences,
                                 std::vector<std::string>* matched) const;

 private:
  const AuthenticatorOptions options_;
  const ServiceAccountTokens* const tokens_;
};

// The namespace and name in "system:serviceaccount:NS:NAME"; false for other users.
bool SplitAccountName(std::string_view user, std::string_view* namespace_name,
                      std::string_view* name);

}  // namespace sublet::apiserver
