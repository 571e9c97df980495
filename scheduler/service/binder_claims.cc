// ResourceClaims of a pod that is being bound (scheduler/service/binder.h). Source:
// kube-scheduler's plugin DynamicResources, bindClaim.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/object.h"
#include "scheduler/service/binder.h"

namespace sublet::scheduler {
namespace {

using kube::Json;

constexpr int kAttemptsMax = 5;
constexpr const char* kFinalizer = "resource.kubernetes.io/delete-protection";

client::Target ClaimTarget(const ClaimSpec& claim, const char* subresource) {
  return {{"resource.k8s.io", "v1", "resourceclaims"}, claim.ns, claim.name, subresource};
}

// A class's configuration for the requests that name it, then the claim's own.
Result<Json> ConfigOf(const client::Client& client, const ClaimSpec& spec, const Json& claim) {
  Json out = Json::array();
  for (const ClaimRequest& request : spec.requests) {
    auto device_class =
        client.Get({{"resource.k8s.io", "v1", "deviceclasses"}, "", request.device_class, ""});
    if (!device_class.ok()) {
      return std::move(device_class).error();
    }
    const Json* configs = kube::Find(*device_class, {"spec", "config"});
    for (Json config : configs == nullptr ? Json::array() : *configs) {
      config["source"] = "FromClass";
      config["requests"] = Json::array({request.name});
      out.push_back(std::move(config));
    }
  }
  const Json* configs = kube::Find(claim, {"spec", "devices", "config"});
  for (Json config : configs == nullptr ? Json::array() : *configs) {
    config["source"] = "FromClaim";
    out.push_back(std::move(config));
  }
  return out;
}

Result<Json> AllocationOf(const client::Client& client, const ClaimSpec& spec,
                          const std::string& node, const Json& claim) {
  Json devices = {{"results", Json::array()}};
  for (std::size_t i = 0; i < spec.allocated.size(); ++i) {
    const ClaimDevice& device = spec.allocated[i];
    devices["results"].push_back({{"request", spec.allocated_for[i]},
                                  {"driver", device.driver},
                                  {"pool", device.pool},
                                  {"device", device.device}});
  }
  SUBLET_TRY(Json config, ConfigOf(client, spec, claim));
  if (!config.empty()) {
    devices["config"] = std::move(config);
  }
  const Json term = {
      {"matchFields",
       Json::array({{{"key", "metadata.name"}, {"operator", "In"}, {"values", {node}}}})}};
  return Json{{"devices", std::move(devices)},
              {"nodeSelector", {{"nodeSelectorTerms", Json::array({term})}}}};
}

bool SameDevices(const ClaimSpec& spec, const Json& allocation) {
  std::vector<ClaimDevice> there;
  if (const Json* results = kube::Find(allocation, {"devices", "results"}); results != nullptr) {
    for (const Json& device : *results) {
      there.push_back({std::string(kube::FindString(device, {"driver"})),
                       std::string(kube::FindString(device, {"pool"})),
                       std::string(kube::FindString(device, {"device"}))});
    }
  }
  std::vector<ClaimDevice> ours = spec.allocated;
  std::sort(ours.begin(), ours.end());
  std::sort(there.begin(), there.end());
  return ours == there;
}

Json& Consumers(Json* claim) {
  Json& consumers = (*claim)["status"]["reservedFor"];
  if (!consumers.is_array()) {
    consumers = Json::array();
  }
  return consumers;
}

bool Names(const Json& consumer, const std::string& uid) {
  return kube::FindString(consumer, {"uid"}) == uid;
}

}  // namespace

Result<void> Binder::ReserveClaim(const Decision& decision, const ClaimSpec& claim) {
  for (int attempt = 1;; ++attempt) {
    SUBLET_TRY(Json object, options_.client.Get(ClaimTarget(claim, "")));
    if (kube::UidOf(object) != claim.uid || kube::IsDeleting(object)) {
      return sublet::Status(Reason::kConflict,
                            "the resource claim " + claim.name + " was replaced");
    }
    const Json* allocation = kube::Find(object, {"status", "allocation"});
    if (allocation != nullptr && !SameDevices(claim, *allocation)) {
      return sublet::Status(Reason::kConflict,
                            "the resource claim " + claim.name + " was allocated otherwise");
    }
    Result<Json> written = object;
    if (allocation == nullptr) {
      SUBLET_TRY(Json made, AllocationOf(options_.client, claim, decision.node, object));
      Json& finalizers = object["metadata"]["finalizers"];
      if (!finalizers.is_array()) {
        finalizers = Json::array();
      }
      if (std::find(finalizers.begin(), finalizers.end(), kFinalizer) == finalizers.end()) {
        finalizers.push_back(kFinalizer);
        written = options_.client.Update(ClaimTarget(claim, ""), object);
      }
      if (written.ok()) {
        object = std::move(*written);
        object["status"]["allocation"] = std::move(made);
      }
    }
    if (written.ok()) {
      Json& consumers = Consumers(&object);
      if (std::none_of(consumers.begin(), consumers.end(),
                       [&](const Json& c) { return Names(c, decision.pod_uid); })) {
        consumers.push_back(
            {{"resource", "pods"}, {"name", decision.name}, {"uid", decision.pod_uid}});
      }
      written = options_.client.Update(ClaimTarget(claim, "status"), object);
    }
    if (written.ok()) {
      return Ok();
    }
    if (!written.error().Is(Reason::kConflict) || attempt == kAttemptsMax) {
      return std::move(written).error();
    }
  }
}

Result<void> Binder::ReserveClaims(const Decision& decision) {
  for (std::size_t i = 0; i < decision.claims.size(); ++i) {
    if (auto reserved = ReserveClaim(decision, decision.claims[i]); !reserved.ok()) {
      UnreserveClaims(decision, i);
      return reserved;
    }
  }
  return Ok();
}

void Binder::UnreserveClaims(const Decision& decision, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const ClaimSpec& claim = decision.claims[i];
    for (int attempt = 1; attempt <= kAttemptsMax; ++attempt) {
      auto object = options_.client.Get(ClaimTarget(claim, ""));
      if (!object.ok() || kube::UidOf(*object) != claim.uid) {
        break;
      }
      Json& consumers = Consumers(&*object);
      for (std::size_t at = consumers.size(); at-- > 0;) {
        if (Names(consumers[at], decision.pod_uid)) {
          consumers.erase(at);
        }
      }
      if (consumers.empty()) {
        (*object)["status"].erase("reservedFor");
        (*object)["status"].erase("allocation");
      }
      const auto written = options_.client.Update(ClaimTarget(claim, "status"), *object);
      if (written.ok() || !written.error().Is(Reason::kConflict)) {
        break;
      }
    }
  }
}

}  // namespace sublet::scheduler
