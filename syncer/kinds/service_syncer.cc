#include "syncer/kinds/service_syncer.h"

#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "kube/timestamp.h"
#include "syncer/kinds/translate_fields.h"

namespace sublet::syncer {
namespace {

using client::Outcome;
using kube::Json;

bool IsKubernetesService(const kube::ObjectKey& key) {
  return key.namespace_name == "default" && key.name == "kubernetes";
}

bool IsExternalName(const Json& service) {
  return kube::FindString(service, {"spec", "type"}) == "ExternalName";
}

}  // namespace

Json HostServiceSpec(const Tenant& tenant, const Json& service) {
  const Json& from = service.at("spec");
  Json spec = Json::object();
  // Differs: externalIPs and loadBalancerIP do not travel; with them a tenant could take over an
  // address of the host's network.
  CopyFields(from, spec,
             {"type", "publishNotReadyAddresses", "externalTrafficPolicy", "internalTrafficPolicy",
              "sessionAffinity", "sessionAffinityConfig", "loadBalancerSourceRanges",
              "ipFamilyPolicy", "allocateLoadBalancerNodePorts", "trafficDistribution"});
  if (kube::FindString(from, {"clusterIP"}) == "None") {
    spec["clusterIP"] = "None";
  }
  Json& ports = spec["ports"] = Json::array();
  for (const Json& port : from.value("ports", Json::array())) {
    Json copy = Json::object();
    CopyFields(port, copy, {"name", "port", "protocol", "targetPort", "appProtocol"});
    ports.push_back(std::move(copy));
  }
  if (const auto selector = from.find("selector");
      selector != from.end() && selector->is_object() && !selector->empty()) {
    spec["selector"] = HostLabelSelector(
        tenant, {{"matchLabels", *selector}},
        kube::FindString(service, {"metadata", "namespace"}))["matchLabels"];
  }
  return spec;
}

ServiceSyncer::ServiceSyncer(SyncContext& context)
    : TranslatedKind(context, {"services", "/v1, Kind=Service", false}, {"", "v1", "services"},
                     "Service") {}

Result<Json> ServiceSyncer::Translate(const Json& service) {
  SUBLET_TRY(Json host, NewHostObject(service));
  host["spec"] = HostServiceSpec(context().tenant, service);
  return host;
}

Result<Json> ServiceSyncer::Allocate(const Json& service) {
  SUBLET_TRY(const Json host, Translate(service));
  auto created = context().host_client.Create(HostTarget(""), host);
  if (!created.ok() && created.error().Is(Reason::kAlreadyExists)) {
    // The tenant's POST was tried before and its answer got lost, or the twin of a predecessor is
    // still there: the host's object decides.
    created = context().host_client.Get(
        HostTarget(kube::FindString(host, {"metadata", "name"})));
  }
  if (!created.ok()) {
    return std::move(created).error();
  }
  host_informer().NoteWritten(*created);
  return created->value("spec", Json::object());
}

Result<Outcome> ServiceSyncer::SyncToHost(const Json& service) {
  // The tenant's own API address needs no twin, and an ExternalName is answered by the tenant's DNS:
  // on the host it could point at names that are not the tenant's.
  if (IsKubernetesService(kube::KeyOf(service)) || IsExternalName(service) ||
      kube::IsDeleting(service)) {
    return Outcome::Done();
  }
  SUBLET_TRY(const Json host, Translate(service));
  return CreateHost(host);
}

Result<Outcome> ServiceSyncer::SyncToVirtual(const kube::ObjectKey& key, const Json& host) {
  static constexpr auto kAnswerTime = std::chrono::seconds(60);
  const auto created = kube::FindTime(kube::FindString(host, {"metadata", "creationTimestamp"}));
  if (created && context().clock.Now() - *created < kAnswerTime) {
    return Outcome::After(kAnswerTime);
  }
  return TranslatedKind::SyncToVirtual(key, host);
}

Result<Outcome> ServiceSyncer::Sync(const Json& service, const Json& host) {
  if (IsExternalName(service) ||
      kube::IsDeleting(service)) {
    return DeleteHost(host);
  }
  SUBLET_TRY(Json wanted, Translate(service));
  Json patch = MetadataPatch(host, wanted);
  // The twin of a predecessor keeps its address and takes the new identity.
  const Json& have = host.at("spec");
  for (const auto& [field, value] : wanted["spec"].items()) {
    if (field == "ports") {
      Json ports = have.value("ports", Json::array());
      for (Json& port : ports) {
        port.erase("nodePort");
      }
      if (ports != value) {
        patch["spec"][field] = value;
      }
    } else if (!have.contains(field) || have[field] != value) {
      patch["spec"][field] = value;
    }
  }
  if (have.contains("selector") && !wanted["spec"].contains("selector")) {
    patch["spec"]["selector"] = nullptr;
  }
  SUBLET_TRY(const Outcome patched, PatchHost(host, patch));
  (void)patched;
  // What only the host knows comes back: a load balancer's address.
  const Json host_status = host.value("status", Json::object());
  if (kube::FindString(service, {"spec", "type"}) == "LoadBalancer" &&
      service.value("status", Json::object()) != host_status) {
    return PatchVirtual(service, {{"status", host_status}}, "status");
  }
  return Outcome::Done();
}

}  // namespace sublet::syncer
