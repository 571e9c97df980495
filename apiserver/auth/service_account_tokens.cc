#include "apiserver/auth/service_account_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/random.h"
#include "kube/field_error.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kLegacyIssuer = "kubernetes/serviceaccount";
constexpr std::int64_t kExpirationDefault = 3600;
constexpr std::int64_t kExpirationMin = 600;
constexpr std::int64_t kExpirationMax = 1ll << 32;
// A projected token is asked for with 3607 s; it then lives a year and warns after an hour, so that
// programs that never read their token again keep working.
constexpr std::int64_t kProjectedSeconds = 3607;
constexpr std::int64_t kExtendedSeconds = 365 * 24 * 3600;
constexpr std::chrono::seconds kClockSkew(60);
constexpr std::chrono::seconds kDeletionGrace(60);

std::int64_t UnixSeconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

Status Refused(std::string why) { return Status(Reason::kUnauthorized, std::move(why)); }

// Names that go into "system:serviceaccount:NS:NAME" must not add colons.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name.find_first_of(":/") == std::string_view::npos;
}

}  // namespace

struct ServiceAccountTokens::Claims {
  std::string namespace_name;
  std::string account;
  std::string account_uid;
  std::string bound_resource;  // "", pods, secrets or nodes
  std::string bound_name;
  std::string bound_uid;
  std::string node_name;
  std::string node_uid;
  std::string token_id;
  std::vector<std::string> audiences;  // of a legacy token: empty, meaning the API server's own
  std::int64_t expires = 0;            // 0 = never
  std::int64_t not_before = 0;
  bool is_legacy = false;
};

ServiceAccountTokens::ServiceAccountTokens(TokenServiceOptions options,
                                           std::vector<std::shared_ptr<const JwtKey>> keys,
                                           const TokenObjects& objects, const Clock& clock)
    : options_(std::move(options)), keys_(std::move(keys)), objects_(objects), clock_(clock) {
  SUBLET_CHECK(!keys_.empty());
  if (options_.audiences.empty()) {
    options_.audiences = {options_.issuer};
  }
}

Result<kube::Json> ServiceAccountTokens::BindClaims(std::string_view namespace_name,
                                                    const kube::Json& request) const {
  kube::Json bound = kube::Json::object();
  const kube::Json* reference = kube::Find(request, {"spec", "boundObjectRef"});
  if (reference == nullptr || reference->is_null()) {
    return bound;
  }
  const std::string kind(kube::FindString(*reference, {"kind"}));
  const std::string name(kube::FindString(*reference, {"name"}));
  const std::string uid(kube::FindString(*reference, {"uid"}));
  const std::string resource = kind == "Pod"      ? "pods"
                               : kind == "Secret" ? "secrets"
                               : kind == "Node"   ? "nodes"
                                                  : "";
  if (resource.empty()) {
    return BadRequest("cannot bind token for serviceaccount to object of type " +
                      std::string(kube::FindString(*reference, {"apiVersion"})) + ", Kind=" + kind);
  }
  const auto object = objects_.Find(resource, kind == "Node" ? "" : namespace_name, name);
  if (!object) {
    return NotFound({"", resource}, name);
  }
  if (!uid.empty() && uid != object->uid) {
    return Conflict({"", resource}, name,
                    "the UID in the bound object reference (" + uid +
                        ") does not match the UID in record. The object might have been deleted "
                        "and then recreated");
  }
  const std::string key = kind == "Pod" ? "pod" : kind == "Secret" ? "secret" : "node";
  bound[key] = {{"name", name}, {"uid", object->uid}};
  if (kind == "Pod" && !object->node_name.empty()) {
    bound["node"] = {{"name", object->node_name}};
    if (const auto node = objects_.Find("nodes", "", object->node_name)) {
      bound["node"]["uid"] = node->uid;
    }
  }
  return bound;
}

Result<kube::Json> ServiceAccountTokens::Request(std::string_view namespace_name,
                                                 std::string_view name, kube::Json request) const {
  const auto account = objects_.Find("serviceaccounts", namespace_name, name);
  if (!account) {
    return NotFound({"", "serviceaccounts"}, name);
  }
  kube::FieldErrors errors;
  std::int64_t seconds = kube::FindInt(request, {"spec", "expirationSeconds"}, kExpirationDefault);
  if (seconds < kExpirationMin) {
    errors.Invalid(std::string("spec.expirationSeconds"), seconds,
                   "may not specify a duration less than 10 minutes");
  }
  if (seconds > kExpirationMax) {
    errors.Invalid(std::string("spec.expirationSeconds"), seconds,
                   "may not specify a duration larger than 2^32 seconds");
  }
  if (!errors.empty()) {
    return Invalid("authentication.k8s.io", "TokenRequest", "", errors.Take());
  }
  kube::Json& spec = request["spec"];
  if (!spec.is_object()) {
    spec = kube::Json::object();
  }
  if (!spec.contains("audiences") || !spec["audiences"].is_array() || spec["audiences"].empty()) {
    spec["audiences"] = options_.audiences;
  }
  spec["expirationSeconds"] = seconds;
  if (!spec.contains("boundObjectRef")) {
    spec["boundObjectRef"] = nullptr;
  }
  SUBLET_TRY(kube::Json kubernetes, BindClaims(namespace_name, request));
  const std::int64_t now = UnixSeconds(clock_.Now());
  const bool extended = seconds == kProjectedSeconds && spec["audiences"] == options_.audiences &&
                        kubernetes.contains("pod");
  kubernetes["namespace"] = namespace_name;
  kubernetes["serviceaccount"] = {{"name", name}, {"uid", account->uid}};
  if (extended) {
    kubernetes["warnafter"] = now + seconds;
  }
  const kube::Json claims = {
      {"iss", options_.issuer},
      {"sub", "system:serviceaccount:" + std::string(namespace_name) + ":" + std::string(name)},
      {"aud", spec["audiences"]},
      {"iat", now},
      {"nbf", now},
      {"exp", now + (extended ? kExtendedSeconds : seconds)},
      {"jti", RandomUuid()},
      {"kubernetes.io", std::move(kubernetes)}};
  SUBLET_TRY(std::string token, keys_.front()->Sign(claims));
  request["status"] = {
      {"token", std::move(token)},
      {"expirationTimestamp", kube::FormatTime(WallTime(std::chrono::seconds(now + seconds)))}};
  request["metadata"]["name"] = name;
  request["metadata"]["namespace"] = namespace_name;
  request["metadata"]["creationTimestamp"] = kube::FormatTime(WallTime(std::chrono::seconds(now)));
  return request;
}

Result<std::string> ServiceAccountTokens::MakeLegacyToken(std::string_view namespace_name,
                                                          std::string_view account,
                                                          std::string_view account_uid,
                                                          std::string_view secret_name) const {
  return keys_.front()->Sign(
      {{"iss", kLegacyIssuer},
       {"sub", "system:serviceaccount:" + std::string(namespace_name) + ":" + std::string(account)},
       {"kubernetes.io/serviceaccount/namespace", namespace_name},
       {"kubernetes.io/serviceaccount/service-account.name", account},
       {"kubernetes.io/serviceaccount/service-account.uid", account_uid},
       {"kubernetes.io/serviceaccount/secret.name", secret_name}});
}

Result<ServiceAccountTokens::ClaimsPtr> ServiceAccountTokens::VerifyNow(
    std::string_view token) const {
  SUBLET_TRY(const ParsedJwt jwt, ParseJwt(token));
  const JwtKey* key = nullptr;
  for (const auto& candidate : keys_) {
    if (candidate->id() == jwt.key_id || jwt.key_id.empty()) {
      key = candidate.get();
      break;
    }
  }
  // The algorithm is the key's, never the token's to choose.
  if (key == nullptr || jwt.algorithm != key->algorithm() ||
      !key->Verify(jwt.signed_text, jwt.signature)) {
    return Refused("the token's signature is not ours");
  }
  SUBLET_TRY(const kube::Json json, kube::ParseJson(jwt.claims));
  auto claims = std::make_shared<Claims>();
  const auto issuer = kube::FindString(json, {"iss"});
  claims->expires = kube::FindInt(json, {"exp"});
  claims->not_before = kube::FindInt(json, {"nbf"});
  claims->token_id = kube::FindString(json, {"jti"});
  if (issuer == kLegacyIssuer) {
    claims->is_legacy = true;
    claims->namespace_name = kube::FindString(json, {"kubernetes.io/serviceaccount/namespace"});
    claims->account = kube::FindString(json, {"kubernetes.io/serviceaccount/service-account.name"});
    claims->account_uid =
        kube::FindString(json, {"kubernetes.io/serviceaccount/service-account.uid"});
    claims->bound_resource = "secrets";
    claims->bound_name = kube::FindString(json, {"kubernetes.io/serviceaccount/secret.name"});
  } else if (issuer == options_.issuer) {
    claims->namespace_name = kube::FindString(json, {"kubernetes.io", "namespace"});
    claims->account = kube::FindString(json, {"kubernetes.io", "serviceaccount", "name"});
    claims->account_uid = kube::FindString(json, {"kubernetes.io", "serviceaccount", "uid"});
    for (const auto& [member, resource] :
         {std::pair{"node", "nodes"}, {"secret", "secrets"}, {"pod", "pods"}}) {
      if (kube::Find(json, {"kubernetes.io", member}) != nullptr) {
        claims->bound_resource = resource;
        claims->bound_name = kube::FindString(json, {"kubernetes.io", member, "name"});
        claims->bound_uid = kube::FindString(json, {"kubernetes.io", member, "uid"});
      }
    }
    claims->node_name = kube::FindString(json, {"kubernetes.io", "node", "name"});
    claims->node_uid = kube::FindString(json, {"kubernetes.io", "node", "uid"});
    if (const kube::Json* audience = kube::Find(json, {"aud"}); audience != nullptr) {
      if (audience->is_string()) {
        claims->audiences.push_back(audience->get<std::string>());
      } else if (audience->is_array()) {
        for (const auto& item : *audience) {
          claims->audiences.push_back(item.is_string() ? item.get<std::string>() : "");
        }
      }
    }
  } else {
    return Refused("the token's issuer is not ours");
  }
  if (!IsPlainName(claims->namespace_name) || !IsPlainName(claims->account) ||
      kube::FindString(json, {"sub"}) !=
          "system:serviceaccount:" + claims->namespace_name + ":" + claims->account) {
    return Refused("the token names no service account");
  }
  return ClaimsPtr(std::move(claims));
}

Result<ServiceAccountTokens::ClaimsPtr> ServiceAccountTokens::Verify(std::string_view token) const {
  std::string key(token);
  {
    MutexLock lock(mutex_);
    const auto found = cache_.find(key);
    if (found != cache_.end()) {
      return found->second;
    }
  }
  SUBLET_TRY(ClaimsPtr claims, VerifyNow(token));
  MutexLock lock(mutex_);
  if (cache_.size() >= kCacheItemsMax) {
    cache_.clear();
  }
  cache_.emplace(std::move(key), claims);
  return claims;
}

Result<void> ServiceAccountTokens::CheckLive(const Claims& claims) const {
  const WallTime now = clock_.Now();
  const auto check = [&](std::string_view resource, std::string_view namespace_name,
                         const std::string& name, const std::string& uid) -> Result<void> {
    const auto object = objects_.Find(resource, namespace_name, name);
    if (!object) {
      return Refused("the token's " + std::string(resource) + " \"" + name + "\" does not exist");
    }
    if (!uid.empty() && object->uid != uid) {
      return Refused("the token's " + std::string(resource) + " \"" + name +
                     "\" is not the one it was made for");
    }
    if (object->deleted_at && now >= *object->deleted_at + kDeletionGrace) {
      return Refused("the token's " + std::string(resource) + " \"" + name + "\" is deleted");
    }
    return {};
  };
  SUBLET_RETURN_IF_ERROR(
      check("serviceaccounts", claims.namespace_name, claims.account, claims.account_uid));
  if (!claims.bound_resource.empty()) {
    SUBLET_RETURN_IF_ERROR(
        check(claims.bound_resource,
              claims.bound_resource == "nodes" ? std::string_view() : claims.namespace_name,
              claims.bound_name, claims.bound_uid));
  }
  return {};
}

Result<User> ServiceAccountTokens::Authenticate(std::string_view token,
                                                const std::vector<std::string>& audiences,
                                                std::vector<std::string>* matched) const {
  SUBLET_TRY(const ClaimsPtr claims, Verify(token));
  const std::int64_t now = UnixSeconds(clock_.Now());
  if (claims->expires != 0 && now >= claims->expires + kClockSkew.count()) {
    return Refused("the token has expired");
  }
  if (claims->not_before > now + kClockSkew.count()) {
    return Refused("the token is not valid yet");
  }
  const auto& wanted = audiences.empty() ? options_.audiences : audiences;
  const auto& held = claims->is_legacy ? options_.audiences : claims->audiences;
  std::vector<std::string> common;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(common), [&](const auto& one) {
    return std::find(held.begin(), held.end(), one) != held.end();
  });
  if (common.empty()) {
    return Refused("the token is for another audience");
  }
  if (matched != nullptr) {
    *matched = std::move(common);
  }
  SUBLET_RETURN_IF_ERROR(CheckLive(*claims));
  User user;
  user.name = "system:serviceaccount:" + claims->namespace_name + ":" + claims->account;
  user.uid = claims->account_uid;
  user.groups = {"system:serviceaccounts", "system:serviceaccounts:" + claims->namespace_name};
  auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) {
      user.extra["authentication.kubernetes.io/" + std::string(name)] = {value};
    }
  };
  add("credential-id", claims->token_id.empty() ? "" : "JTI=" + claims->token_id);
  add("node-name", claims->node_name);
  add("node-uid", claims->node_uid);
  if (claims->bound_resource == "pods") {
    add("pod-name", claims->bound_name);
    add("pod-uid", claims->bound_uid);
  }
  return user;
}

std::string ServiceAccountTokens::DiscoveryDocument(std::string_view server_url) const {
  kube::Json document = {{"issuer", options_.issuer},
                         {"jwks_uri", std::string(server_url) + "/openid/v1/jwks"},
                         {"response_types_supported", {"id_token"}},
                         {"subject_types_supported", {"public"}}};
  kube::Json algorithms = kube::Json::array();
  for (const auto& key : keys_) {
    const std::string algorithm(key->algorithm());
    if (std::find(algorithms.begin(), algorithms.end(), algorithm) == algorithms.end()) {
      algorithms.push_back(algorithm);
    }
  }
  document["id_token_signing_alg_values_supported"] = std::move(algorithms);
  return kube::Dump(document);
}

std::string ServiceAccountTokens::KeysDocument() const {
  kube::Json keys = kube::Json::array();
  for (const auto& key : keys_) {
    keys.push_back(key->ToJwk());
  }
  return kube::Dump({{"keys", std::move(keys)}});
}

}  // namespace sublet::apiserver
