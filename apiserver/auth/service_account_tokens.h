// ServiceAccountTokens: signs and checks the tokens of service accounts. A token is valid only
// while the account, and the Pod, Secret or Node it is bound to, still exist with the uid it names.
// Threads: any. A verified signature is remembered (ES256 costs about 60 µs), liveness is looked up
// at every use, so that a deleted pod's token dies at once. Source: k8s.io/kubernetes
// pkg/serviceaccount (claims.go, legacy.go), registry/core/serviceaccount.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apiserver/auth/jwt.h"
#include "apiserver/request.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sublet::apiserver {

struct LiveObject {
  std::string uid;
  // Set when the object is being deleted: tokens stay valid for 60 s after this time.
  std::optional<WallTime> deleted_at;
  std::string node_name;  // of pods
};

// What tokens are bound to, looked up now.
class TokenObjects {
 public:
  virtual ~TokenObjects() = default;
  // `resource`: serviceaccounts, pods, secrets or nodes. nullopt: no such object.
  virtual std::optional<LiveObject> Find(std::string_view resource, std::string_view namespace_name,
                                         std::string_view name) const = 0;
};

struct TokenServiceOptions {
  std::string issuer = "https://kubernetes.default.svc.cluster.local";
  std::vector<std::string> audiences;  // accepted for the API server; empty = {issuer}
};

class ServiceAccountTokens {
 public:
  // `keys` not empty; the first one signs, all verify. `objects` and `clock` outlive this.
  ServiceAccountTokens(TokenServiceOptions options, std::vector<std::shared_ptr<const JwtKey>> keys,
                       const TokenObjects& objects, const Clock& clock);

  // Fills status{token, expirationTimestamp} and the defaults of spec into a TokenRequest for
  // account ns/name. `node_of_pod` facts come from TokenObjects.
  // Errors: BadRequest, Invalid (spec.expirationSeconds, spec.boundObjectRef), NotFound (account or
  // bound object), Conflict (bound object of another uid).
  Result<kube::Json> Request(std::string_view namespace_name, std::string_view name,
                             kube::Json request) const;
  // The token of a legacy Secret (type kubernetes.io/service-account-token); it never expires.
  Result<std::string> MakeLegacyToken(std::string_view namespace_name, std::string_view account,
                                      std::string_view account_uid,
                                      std::string_view secret_name) const;

  // Who `token` is, when it is meant for one of `audiences` (empty = the API server's own).
  // `matched` receives those of them that the token names. Errors: Unauthorized; the message says
  // why and is for logs and TokenReview only.
  Result<User> Authenticate(std::string_view token, const std::vector<std::string>& audiences = {},
                            std::vector<std::string>* matched = nullptr) const;

  // True when `token` looks like one of ours: three parts and our issuer.
  const std::vector<std::string>& audiences() const { return options_.audiences; }
  // /.well-known/openid-configuration and /openid/v1/jwks.
  std::string DiscoveryDocument(std::string_view server_url) const;
  std::string KeysDocument() const;

 private:
  struct Claims;
  using ClaimsPtr = std::shared_ptr<const Claims>;
  Result<ClaimsPtr> Verify(std::string_view token) const SUBLET_EXCLUDES(mutex_);
  Result<ClaimsPtr> VerifyNow(std::string_view token) const;
  Result<void> CheckLive(const Claims& claims) const;
  Result<kube::Json> BindClaims(std::string_view namespace_name, const kube::Json& request) const;

  TokenServiceOptions options_;
  const std::vector<std::shared_ptr<const JwtKey>> keys_;
  const TokenObjects& objects_;
  const Clock& clock_;
  static constexpr std::size_t kCacheItemsMax = 4096;  // then it starts over
  mutable Mutex mutex_;
  mutable std::unordered_map<std::string, ClaimsPtr> cache_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::apiserver
