#include "node/kubelet_api/access.h"

#include <openssl/evp.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindBool;
using kube::FindString;
using kube::Json;

constexpr std::chrono::minutes kTokenKept{2};
constexpr std::chrono::minutes kAllowedKept{5};
constexpr std::chrono::seconds kRefusedKept{30};

// Tokens themselves are not kept in memory.
std::string Digest(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
  return std::string(reinterpret_cast<char*>(digest), size);
}

}  // namespace

std::string SubresourceOf(const KubeletRequest& request) {
  const auto parts = request.PathParts();
  const std::string first = parts.empty() ? "" : parts[0];
  if (first == "stats" || first == "metrics" || first == "pods" || first == "healthz" ||
      first == "configz") {
    return first;
  }
  return first == "logs" ? "log" : "proxy";
}

std::string VerbOf(const KubeletRequest& request) {
  return request.method == "POST"     ? "create"
         : request.method == "PUT"    ? "update"
         : request.method == "PATCH"  ? "patch"
         : request.method == "DELETE" ? "delete"
                                      : "get";
}

Result<AccessUser> Access::Authenticate(const PeerIdentity& peer, const KubeletRequest& request) {
  if (peer.verified) {
    AccessUser user;
    user.name = peer.common_name;
    user.groups = peer.organizations;
    user.groups.emplace_back("system:authenticated");
    return user;
  }
  const std::string_view header = request.Header("authorization");
  if (header.substr(0, 7) != "Bearer " || header.size() == 7) {
    return Unauthorized();
  }
  const std::string token(header.substr(7));
  const std::string key = Digest(token);
  const MonotonicTime now = clock_.Monotonic();
  {
    MutexLock lock(mutex_);
    if (const auto it = tokens_.find(key); it != tokens_.end() && now < it->second.until) {
      return it->second.value;
    }
  }
  const Json review = {{"apiVersion", "authentication.k8s.io/v1"},
                       {"kind", "TokenReview"},
                       {"spec", {{"token", token}}}};
  SUBLET_TRY(const Json answer,
             client_.Create({{"authentication.k8s.io", "v1", "tokenreviews"}, "", "", ""}, review));
  if (!FindBool(answer, {"status", "authenticated"})) {
    return Unauthorized();
  }
  AccessUser user;
  user.name = FindString(answer, {"status", "user", "username"});
  user.uid = FindString(answer, {"status", "user", "uid"});
  if (const Json* groups = Find(answer, {"status", "user", "groups"});
      groups != nullptr && groups->is_array()) {
    for (const Json& group : *groups) {
      user.groups.push_back(group.is_string() ? group.get<std::string>() : "");
    }
  }
  MutexLock lock(mutex_);
  if (tokens_.size() >= kKeptMax) {
    tokens_.clear();
  }
  tokens_[key] = {user, now + kTokenKept};
  return user;
}

Result<bool> Access::IsAllowed(const AccessUser& user, const std::string& verb,
                               const std::string& subresource) {
  std::string key = user.name + '\0' + user.uid + '\0' + verb + '\0' + subresource;
  for (const std::string& group : user.groups) {
    key += '\0' + group;
  }
  const MonotonicTime now = clock_.Monotonic();
  {
    MutexLock lock(mutex_);
    if (const auto it = decisions_.find(key); it != decisions_.end() && now < it->second.until) {
      return it->second.value;
    }
  }
  const Json review = {{"apiVersion", "authorization.k8s.io/v1"},
                       {"kind", "SubjectAccessReview"},
                       {"spec",
                        {{"user", user.name},
                         {"uid", user.uid},
                         {"groups", user.groups},
                         {"resourceAttributes",
                          {{"verb", verb},
                           {"version", "v1"},
                           {"resource", "nodes"},
                           {"subresource", subresource},
                           {"name", node_name_}}}}}};
  SUBLET_TRY(
      const Json answer,
      client_.Create({{"authorization.k8s.io", "v1", "subjectaccessreviews"}, "", "", ""}, review));
  const bool allowed = FindBool(answer, {"status", "allowed"});
  MutexLock lock(mutex_);
  if (decisions_.size() >= kKeptMax) {
    decisions_.clear();
  }
  decisions_[key] = {allowed, now + (allowed ? MonotonicTime::duration(kAllowedKept)
                                             : MonotonicTime::duration(kRefusedKept))};
  return allowed;
}

Result<AccessUser> Access::Check(const PeerIdentity& peer, const KubeletRequest& request) {
  SUBLET_TRY(AccessUser user, Authenticate(peer, request));
  if (std::find(user.groups.begin(), user.groups.end(), "system:masters") != user.groups.end()) {
    return user;
  }
  const std::string verb = VerbOf(request);
  const std::string subresource = SubresourceOf(request);
  SUBLET_TRY(bool allowed, IsAllowed(user, verb, subresource));
  if (!allowed && (subresource == "pods" || subresource == "healthz" || subresource == "configz")) {
    // The fine-grained names came with 1.32; older roles grant nodes/proxy.
    SUBLET_TRY(allowed, IsAllowed(user, verb, "proxy"));
  }
  if (!allowed) {
    return Status(Reason::kForbidden, "Forbidden (user=" + user.name + ", verb=" + verb +
                                          ", resource=nodes, subresource(s)=[" + subresource +
                                          "])");
  }
  return user;
}

}  // namespace sublet::node
