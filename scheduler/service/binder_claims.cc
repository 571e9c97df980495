// ResourceClaims of a pod that is being bound (scheduler/service/binder.h). Source:
// kube-scheduler's plugin DynamicResources, bindClaim.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/random.h"
#include "kube/object.h"
#include "kube/quantity.h"
#include "scheduler/service/binder.h"

namespace sublet::scheduler {
namespace {

using kube::Json;

constexpr int kAttemptsMax = 5;
constexpr const char* kFinalizer = "resource.kubernetes.io/delete-protection";

client::Target ClaimTarget(const ClaimSpec& claim, const char* subresource) {
  return {{"resource.k8s.io", "v1", "resourceclaims"}, claim.ns, claim.name, subresource};
}

// The requests that got something: of several alternatives only the one that was chosen.
std::vector<const ClaimRequest*> Chosen(const ClaimSpec& spec) {
  std::vector<const ClaimRequest*> out;
  for (const ClaimRequest& request : spec.requests) {
    if (request.alternatives.empty()) {
      out.push_back(&request);
    }
    for (const ClaimRequest& alternative : request.alternatives) {
      if (std::find(spec.allocated_for.begin(), spec.allocated_for.end(), alternative.name) !=
          spec.allocated_for.end()) {
        out.push_back(&alternative);
      }
    }
  }
  return out;
}

// A class's configuration for the requests that name it, then the claim's own.
Result<Json> ConfigOf(const client::Client& client, const ClaimSpec& spec, const Json& claim) {
  Json out = Json::array();
  for (const ClaimRequest* request : Chosen(spec)) {
    auto device_class =
        client.Get({{"resource.k8s.io", "v1", "deviceclasses"}, "", request->device_class, ""});
    if (!device_class.ok()) {
      return std::move(device_class).error();
    }
    const Json* configs = kube::Find(*device_class, {"spec", "config"});
    for (Json config : configs == nullptr ? Json::array() : *configs) {
      config["source"] = "FromClass";
      config["requests"] = Json::array({request->name});
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

const Json* Named(const Json* list, std::string_view name) {
  for (std::size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i) {
    if (kube::FindString((*list)[i], {"name"}) == name) {
      return &(*list)[i];
    }
  }
  return nullptr;
}

// The request's (or its alternative's) own object in the claim; nullptr when it is not there.
const Json* DemandOf(const Json& claim, const std::string& name) {
  const std::size_t slash = name.find('/');
  const Json* request =
      Named(kube::Find(claim, {"spec", "devices", "requests"}), name.substr(0, slash));
  if (request == nullptr) {
    return nullptr;
  }
  return slash == std::string::npos
             ? kube::Find(*request, {"exactly"})
             : Named(kube::Find(*request, {"firstAvailable"}), name.substr(slash + 1));
}

Json ResultOf(const ClaimSpec& spec, std::size_t i, const Json& claim) {
  const ClaimDevice& device = spec.allocated[i];
  Json result = {{"request", spec.allocated_for[i]},
                 {"driver", device.driver},
                 {"pool", device.pool},
                 {"device", device.device}};
  const Json* demand = DemandOf(claim, spec.allocated_for[i]);
  const Json* tolerations = demand == nullptr ? nullptr : kube::Find(*demand, {"tolerations"});
  if (tolerations != nullptr) {
    result["tolerations"] = *tolerations;
  }
  if (i < spec.holds.size() && spec.holds[i].admin) {
    result["adminAccess"] = true;
  }
  if (i < spec.holds.size() && spec.holds[i].shared) {
    result["shareID"] = RandomUuid();
    Json& parts = result["consumedCapacity"] = Json::object();
    const std::string domain = device.driver + "/";
    for (const auto& [name, milli] : spec.holds[i].parts) {
      parts[name.compare(0, domain.size(), domain) == 0 ? name.substr(domain.size()) : name] =
          kube::Quantity::FromMilli(milli).Text();
    }
  }
  return result;
}

Json TermJson(const NodeTerm& term) {
  const auto list = [](const Selector& selector) {
    static constexpr const char* kOperators[] = {"In",           "NotIn", "Exists",
                                                 "DoesNotExist", "Gt",    "Lt"};
    Json out = Json::array();
    for (const SelectorRequirement& one : selector) {
      out.push_back({{"key", one.key}, {"operator", kOperators[static_cast<int>(one.op)]}});
      if (!one.values.empty()) {
        out.back()["values"] = one.values;
      }
    }
    return out;
  };
  Json out = Json::object();
  if (!term.labels.empty()) {
    out["matchExpressions"] = list(term.labels);
  }
  if (!term.fields.empty()) {
    out["matchFields"] = list(term.fields);
  }
  return out;
}

Result<Json> AllocationOf(const client::Client& client, const ClaimSpec& spec, const Json& claim) {
  Json devices = {{"results", Json::array()}};
  for (std::size_t i = 0; i < spec.allocated.size(); ++i) {
    devices["results"].push_back(ResultOf(spec, i, claim));
  }
  SUBLET_TRY(Json config, ConfigOf(client, spec, claim));
  if (!config.empty()) {
    devices["config"] = std::move(config);
  }
  Json out = {{"devices", std::move(devices)}};
  if (spec.allocated_on && !spec.allocated_on->empty()) {
    Json& terms = out["nodeSelector"]["nodeSelectorTerms"] = Json::array();
    for (const NodeTerm& term : *spec.allocated_on) {
      terms.push_back(TermJson(term));
    }
  }
  return out;
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
      SUBLET_TRY(Json made, AllocationOf(options_.client, claim, object));
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
