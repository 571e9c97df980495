// ResourceQuota: a namespace uses no more than its quotas allow. The new usage is written in the
// same transaction as the object: two requests that race for the last pod cannot both win, the
// loser runs again with the new usage. Source: k8s.io/apiserver admission/plugin/resourcequota.
#include <nlohmann/json.hpp>

#include "apiserver/admission/registry.h"
#include "apiserver/registry/object_codec.h"
#include "kube/field_error.h"
#include "kube/object.h"
#include "kube/quota_usage.h"

namespace sublet::apiserver {
namespace {

using kube::Json;
using kube::ResourceAmounts;

// What this request adds to the usage, resources that shrink left out.
ResourceAmounts Delta(const AdmissionRequest& request) {
  const auto& group = request.resource->group();
  const auto& plural = request.resource->plural();
  ResourceAmounts delta = kube::QuotaUsage(group, plural, *request.object);
  if (request.old_object == nullptr) {
    return delta;
  }
  const ResourceAmounts before = kube::QuotaUsage(group, plural, *request.old_object);
  for (auto it = delta.begin(); it != delta.end();) {
    if (const auto old = before.find(it->first); old != before.end()) {
      it->second -= old->second;
    }
    it = it->second.Sign() > 0 ? std::next(it) : delta.erase(it);
  }
  return delta;
}

bool IsCounted(const AdmissionRequest& request) {
  if (request.operation == Operation::kCreate) {
    return request.subresource.empty();
  }
  const bool sized = request.Is("", "pods") || request.Is("", "persistentvolumeclaims") ||
                     request.Is("", "services");
  return sized && (request.subresource.empty() || request.subresource == "resize");
}

// One quota: refuses, or returns the quota with its new usage (null when it is not concerned).
Result<Json> Charge(const AdmissionRequest& request, const Json& quota,
                    const ResourceAmounts& delta) {
  const std::string name(kube::NameOf(quota));
  if (!kube::MatchesScopes(quota, request.resource->plural(), *request.object)) {
    return Json();
  }
  const ResourceAmounts hard = kube::AmountsOf(kube::Find(quota, {"status", "hard"}));
  ResourceAmounts used = kube::AmountsOf(kube::Find(quota, {"status", "used"}));
  if (request.Is("", "pods") && request.operation == Operation::kCreate) {
    const std::string missing = kube::MissingResources(*request.object, hard);
    if (!missing.empty()) {
      return AdmissionForbidden(request, "failed quota: " + name + ": must specify " + missing);
    }
  }
  ResourceAmounts asked;
  ResourceAmounts before;
  ResourceAmounts bound;
  std::vector<std::string> unknown;
  bool concerned = false;
  for (const auto& [resource, amount] : delta) {
    const auto limit = hard.find(resource);
    if (limit == hard.end()) {
      continue;
    }
    concerned = true;
    const auto current = used.find(resource);
    if (current == used.end()) {
      unknown.push_back(resource);
      continue;
    }
    if (current->second + amount > limit->second) {
      asked[resource] = amount;
      before[resource] = current->second;
      bound[resource] = limit->second;
    }
  }
  if (!unknown.empty()) {
    return AdmissionForbidden(
        request, "status unknown for quota: " + name + ", resources: " + kube::Join(unknown, ","));
  }
  if (!asked.empty()) {
    return AdmissionForbidden(request, "exceeded quota: " + name +
                                           ", requested: " + kube::FormatAmounts(asked) +
                                           ", used: " + kube::FormatAmounts(before) +
                                           ", limited: " + kube::FormatAmounts(bound));
  }
  if (!concerned) {
    return Json();
  }
  for (const auto& [resource, amount] : delta) {
    if (hard.count(resource) != 0) {
      used[resource] += amount;
    }
  }
  Json charged = quota;
  charged["status"]["used"] = kube::AmountsToJson(used);
  return charged;
}

Result<void> ValidateUsage(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (request.namespace_name.empty() || !IsCounted(request) || request.Is("", "namespaces") ||
      request.resource->type == nullptr) {
    return Ok();
  }
  const auto quotas = ListObjects(environment, "", "resourcequotas", request.namespace_name);
  if (quotas.empty()) {
    return Ok();
  }
  const ResourceAmounts delta = Delta(request);
  if (delta.empty()) {
    return Ok();
  }
  for (const auto& record : quotas) {
    SUBLET_TRY(const Json charged, Charge(request, ParseStored(*record.value), delta));
    if (!charged.is_null() && !request.dry_run) {
      request.companions->push_back(ReplaceOp(environment, "", "resourcequotas", record, charged));
    }
  }
  return Ok();
}

}  // namespace

AdmissionPlugin ResourceQuota(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "ResourceQuota";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate});
  plugin.validate = [environment](AdmissionRequest& request) {
    return ValidateUsage(environment, request);
  };
  return plugin;
}

}  // namespace sublet::apiserver
