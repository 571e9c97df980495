#include "syncer/kinds/token_secret.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sublet::syncer {
namespace {

using client::Outcome;
using kube::Json;

// When the Secret's tokens must be renewed, in seconds since 1970; and which token set it holds.
constexpr std::string_view kRenewAt = "sublet.dev/token-renew-at";
constexpr std::string_view kTokenSet = "sublet.dev/token-set";

client::Target SecretTarget(const SyncContext& context, std::string name) {
  return {{"", "v1", "secrets"}, context.tenant.host_namespace, std::move(name), ""};
}

std::int64_t Seconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

// What the tokens were asked for: a change of the pod's identity makes the old ones worthless.
std::string TokenSetOf(const Json& pod, const HostPod& wanted) {
  std::string text(kube::FindString(pod, {"metadata", "uid"}));
  for (const PodToken& token : wanted.tokens) {
    text += "/" + token.key + ":" + std::to_string(token.expiration_seconds);
    for (const std::string& audience : token.audiences) {
      text += "," + audience;
    }
  }
  return Hash10(text);
}

}  // namespace

Result<std::string> TokenSecrets::RequestToken(const Json& pod, const PodToken& token) {
  const std::string space(kube::FindString(pod, {"metadata", "namespace"}));
  const std::string account(kube::FindString(pod, {"spec", "serviceAccountName"}, "default"));
  Json spec = {{"expirationSeconds", token.expiration_seconds},
               {"boundObjectRef",
                {{"apiVersion", "v1"},
                 {"kind", "Pod"},
                 {"name", kube::FindString(pod, {"metadata", "name"})},
                 {"uid", kube::FindString(pod, {"metadata", "uid"})}}}};
  spec["audiences"] = token.audiences;
  const Json request = {{"apiVersion", "authentication.k8s.io/v1"},
                        {"kind", "TokenRequest"},
                        {"spec", std::move(spec)}};
  SUBLET_TRY(const Json answer,
             context_.virtual_client.Create(
                 {{"", "v1", "serviceaccounts"}, space, account, "token"}, request));
  const std::string value(kube::FindString(answer, {"status", "token"}));
  if (value.empty()) {
    return InternalError("the tenant's API answered a TokenRequest without a token");
  }
  return value;
}

Outcome TokenSecrets::Remember(const kube::ObjectKey& pod, std::string token_set,
                               std::chrono::seconds life) {
  MutexLock lock(mutex_);
  known_[pod] = {std::move(token_set), context_.clock.Monotonic() + life};
  return Outcome::After(life);
}

Result<Outcome> TokenSecrets::Ensure(const Json& pod, const HostPod& wanted, Expect expect) {
  if (wanted.token_secret.empty()) {
    return Outcome::Done();
  }
  const kube::ObjectKey key{std::string(kube::FindString(pod, {"metadata", "namespace"})),
                            std::string(kube::FindString(pod, {"metadata", "name"}))};
  const auto target = SecretTarget(context_, wanted.token_secret);
  const std::int64_t now = Seconds(context_.clock.Now());
  const std::string token_set = TokenSetOf(pod, wanted);
  {
    MutexLock lock(mutex_);
    const auto known = known_.find(key);
    if (known != known_.end() && known->second.token_set == token_set &&
        known->second.renew_at > context_.clock.Monotonic()) {
      return Outcome::After(known->second.renew_at - context_.clock.Monotonic());
    }
  }
  auto existing = expect == Expect::kAbsent
                      ? Result<Json>(NotFound({"", "secrets"}, wanted.token_secret))
                      : context_.host_client.Get(target);
  if (!existing.ok() && !existing.error().Is(Reason::kNotFound)) {
    return std::move(existing).error();
  }
  if (existing.ok()) {
    const std::string renew(kube::FindString(*existing, {"metadata", "annotations", kRenewAt}));
    const std::int64_t due = std::atoll(renew.c_str());
    if (kube::FindString(*existing, {"metadata", "annotations", kTokenSet}) == token_set &&
        due > now) {
      return Remember(key, token_set, std::chrono::seconds(due - now));
    }
  }
  Json data = Json::object();
  std::int64_t shortest = 24 * 3600;
  for (const PodToken& token : wanted.tokens) {
    SUBLET_TRY(data[token.key], RequestToken(pod, token));
    shortest = std::min(shortest, token.expiration_seconds);
  }
  const std::int64_t life = std::max<std::int64_t>(shortest * 4 / 5, 60);
  Json secret = {
      {"apiVersion", "v1"},
      {"kind", "Secret"},
      {"type", "Opaque"},
      {"stringData", std::move(data)},
      {"metadata",
       {{"name", wanted.token_secret},
        {"namespace", context_.tenant.host_namespace},
        {"labels",
         {{kLabelManagedBy, context_.tenant.name},
          {kLabelControlledBy, "sublet"},
          {kLabelNamespace, kube::FindString(pod, {"metadata", "namespace"})}}},
        {"annotations", {{kRenewAt, std::to_string(now + life)}, {kTokenSet, token_set}}}}}};
  if (context_.config.set_owner && context_.owner_reference.is_object()) {
    secret["metadata"]["ownerReferences"] = Json::array({context_.owner_reference});
  }
  auto written = existing.ok() ? context_.host_client.Update(target, secret)
                               : context_.host_client.Create(SecretTarget(context_, ""), secret);
  if (!written.ok()) {
    // Of a predecessor with the same name, or left by a run that was killed after it made it.
    return expect == Expect::kAbsent && written.error().Is(Reason::kAlreadyExists)
               ? Ensure(pod, wanted)
               : Result<Outcome>(std::move(written).error());
  }
  return Remember(key, token_set, std::chrono::seconds(life));
}

Result<void> TokenSecrets::Remove(const kube::ObjectKey& pod) {
  {
    MutexLock lock(mutex_);
    known_.erase(pod);
  }
  auto deleted = context_.host_client.Delete(SecretTarget(
      context_, HostName(context_.tenant, pod.name + "-sa-token", pod.namespace_name)));
  if (!deleted.ok() && !deleted.error().Is(Reason::kNotFound)) {
    return std::move(deleted).error();
  }
  return Ok();
}

}  // namespace sublet::syncer
