// The content of configMap, secret, downwardAPI and projected volumes. Part of Volumes.
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "node/pod/volumes.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;

constexpr std::uint32_t kDefaultMode = 0644;

std::uint32_t ModeOf(const Json& object, std::string_view member, std::uint32_t fallback) {
  return static_cast<std::uint32_t>(FindInt(object, {member}, fallback)) & 0777;
}

// The files of one ConfigMap or Secret: all keys, or those `items` names.
Result<void> AddKeys(const Json& object, bool secret, const Json& source, bool optional,
                     std::uint32_t mode, Payload* payload) {
  std::map<std::string, std::string> values;
  if (const Json* data = Find(object, {"data"}); data != nullptr && data->is_object()) {
    for (const auto& [key, value] : data->items()) {
      if (value.is_string()) {
        values[key] =
            secret ? DecodeBase64(value.get_ref<const std::string&>()) : value.get<std::string>();
      }
    }
  }
  if (const Json* data = Find(object, {"binaryData"}); data != nullptr && data->is_object()) {
    for (const auto& [key, value] : data->items()) {
      if (value.is_string()) {
        values[key] = DecodeBase64(value.get_ref<const std::string&>());
      }
    }
  }
  const Json* items = Find(source, {"items"});
  if (items == nullptr || !items->is_array() || items->empty()) {
    for (auto& [key, value] : values) {
      PayloadFile& file = (*payload)[key];
      file.content = std::move(value);
      file.mode = mode;
    }
    return {};
  }
  for (const Json& item : *items) {
    const std::string key(FindString(item, {"key"}));
    const auto it = values.find(key);
    if (it == values.end()) {
      if (optional) {
        continue;
      }
      return Status(Reason::kNotFound, std::string("references non-existent ") +
                                           (secret ? "secret" : "config") + " key: " + key);
    }
    PayloadFile& file = (*payload)[std::string(FindString(item, {"path"}))];
    file.content = it->second;
    file.mode = ModeOf(item, "mode", mode);
  }
  return {};
}

}  // namespace

Result<Payload> Volumes::BuildPayload(const PodPlan& plan, const PodFacts& facts,
                                      const Json& volume, std::optional<WallTime>* renew_at) {
  Payload payload;
  if (const Json* projected = Find(volume, {"projected"})) {
    const std::uint32_t mode = ModeOf(*projected, "defaultMode", kDefaultMode);
    if (const Json* sources = Find(*projected, {"sources"}); sources && sources->is_array()) {
      for (const Json& source : *sources) {
        SUBLET_RETURN_IF_ERROR(AddProjection(plan, facts, source, mode, renew_at, &payload));
      }
    }
    return payload;
  }
  // The single kinds are projections of one source; a secret names itself differently.
  for (const std::string_view kind : {"configMap", "secret", "downwardAPI"}) {
    if (const Json* single = Find(volume, {kind})) {
      Json source = Json::object();
      source[std::string(kind)] = *single;
      if (kind == "secret") {
        source["secret"]["name"] = FindString(*single, {"secretName"});
      }
      SUBLET_RETURN_IF_ERROR(AddProjection(
          plan, facts, source, ModeOf(*single, "defaultMode", kDefaultMode), renew_at, &payload));
    }
  }
  return payload;
}

Result<void> Volumes::AddProjection(const PodPlan& plan, const PodFacts& facts, const Json& source,
                                    std::uint32_t mode, std::optional<WallTime>* renew_at,
                                    Payload* payload) {
  for (const bool secret : {false, true}) {
    const Json* ref = Find(source, {secret ? "secret" : "configMap"});
    if (ref == nullptr) {
      continue;
    }
    const std::string name(FindString(*ref, {"name"}));
    const bool optional = FindBool(*ref, {"optional"});
    auto object = secret ? source_.GetSecret(plan.namespace_name, name)
                         : source_.GetConfigMap(plan.namespace_name, name);
    if (!object.ok()) {
      if (!object.error().Is(Reason::kNotFound)) {
        return std::move(object).error();
      }
      if (optional) {
        continue;
      }
      return Status(Reason::kNotFound, std::string(": ") + (secret ? "secret" : "configmap") +
                                           " \"" + name + "\" not found");
    }
    SUBLET_RETURN_IF_ERROR(AddKeys(**object, secret, *ref, optional, mode, payload));
  }
  if (const Json* downward = Find(source, {"downwardAPI", "items"});
      downward != nullptr && downward->is_array()) {
    for (const Json& item : *downward) {
      PayloadFile& file = (*payload)[std::string(FindString(item, {"path"}))];
      file.mode = ModeOf(item, "mode", mode);
      if (const Json* field = Find(item, {"fieldRef"})) {
        SUBLET_TRY(file.content, FieldValue(plan, facts, FindString(*field, {"fieldPath"})));
      } else if (const Json* resource = Find(item, {"resourceFieldRef"})) {
        SUBLET_TRY(file.content, ResourceValue(plan, facts, "", *resource));
      }
    }
  }
  if (const Json* token = Find(source, {"serviceAccountToken"})) {
    PayloadFile& file = (*payload)[std::string(FindString(*token, {"path"}))];
    SUBLET_TRY(file.content, TokenFor(plan, *token, renew_at));
    // A pod that runs as one user without fsGroup gets the token as its own file, readable by it
    // alone; the others get it readable, since no group would match.
    const auto user = FindInt(*plan.object, {"spec", "securityContext", "runAsUser"}, -1);
    const auto group = FindInt(*plan.object, {"spec", "securityContext", "fsGroup"}, -1);
    file.mode = mode;
    if (group >= 0) {
      file.mode = 0600;
    } else if (user >= 0) {
      file.mode = 0600;
      file.owner = static_cast<std::uint32_t>(user);
    }
  }
  if (const Json* bundle = Find(source, {"clusterTrustBundle"})) {
    const std::string name(FindString(*bundle, {"name"}));
    auto object = source_.GetClusterTrustBundle(name);
    if (!object.ok() &&
        !(object.error().Is(Reason::kNotFound) && FindBool(*bundle, {"optional"}))) {
      return std::move(object).error();
    }
    PayloadFile& file = (*payload)[std::string(FindString(*bundle, {"path"}))];
    file.mode = mode;
    file.content = object.ok() ? FindString(*object, {"spec", "trustBundle"}) : std::string_view();
  }
  return {};
}

Result<std::string> Volumes::TokenFor(const PodPlan& plan, const Json& projection,
                                      std::optional<WallTime>* renew_at) {
  TokenRequest request;
  request.namespace_name = plan.namespace_name;
  request.service_account = plan.service_account;
  request.audience = FindString(projection, {"audience"});
  request.expiration_seconds = FindInt(projection, {"expirationSeconds"}, 3600);
  request.pod_name = plan.name;
  request.pod_uid = plan.uid;
  const std::string key = request.audience + "|" + std::to_string(request.expiration_seconds);
  const WallTime now = clock_.Now();
  const auto note = [&](WallTime at) {
    if (!*renew_at || at < **renew_at) {
      *renew_at = at;
    }
  };
  {
    MutexLock lock(mutex_);
    const auto& cached = tokens_[plan.uid];
    if (const auto it = cached.find(key); it != cached.end() && now < it->second.renew_at) {
      note(it->second.renew_at);
      return it->second.token.text;
    }
  }
  SUBLET_TRY(Token token, source_.RequestToken(request));
  // Renewed at 80 % of its life, or after a day. Source: kubelet token_manager.
  const auto life = token.expires - now;
  WallTime at = now + std::chrono::duration_cast<WallTime::duration>(life * 0.8);
  at = std::min<WallTime>(at, now + std::chrono::hours(24));
  note(at);
  MutexLock lock(mutex_);
  CachedToken& cached = tokens_[plan.uid][key];
  cached.renew_at = at;
  cached.token = std::move(token);
  return cached.token.text;
}

}  // namespace sublet::node
