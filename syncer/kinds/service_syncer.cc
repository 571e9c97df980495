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

// How long a request may need from its host Service to the tenant's store.
constexpr std::chrono::seconds kAnswerTime(60);
// The twin of a predecessor may be deleted between our two calls; once more is enough.
constexpr int kAllocateTries = 3;

bool HasNodePorts(std::string_view type) { return type == "NodePort" || type == "LoadBalancer"; }

}  // namespace

Json HostServiceSpec(const Tenant& tenant, const Json& service) {
  const Json& from = service.at("spec");
  Json spec = Json::object();
  // Differs: externalIPs and loadBalancerIP do not travel; with them a tenant could take over an
  // address of the host's network.
  CopyFields(from, spec,
             {"type", "publishNotReadyAddresses", "internalTrafficPolicy", "sessionAffinity",
              "sessionAffinityConfig", "loadBalancerSourceRanges", "ipFamilyPolicy",
              "allocateLoadBalancerNodePorts", "trafficDistribution"});
  if (HasNodePorts(kube::FindString(from, {"type"}))) {
    CopyFields(from, spec, {"externalTrafficPolicy"});
  }
  // An address the tenant chose is for the host's allocator to judge.
  CopyFields(from, spec, {"clusterIP", "healthCheckNodePort"});
  Json& ports = spec["ports"] = Json::array();
  for (const Json& port : from.value("ports", Json::array())) {
    Json copy = Json::object();
    CopyFields(port, copy, {"name", "port", "protocol", "targetPort", "appProtocol"});
    if (HasNodePorts(kube::FindString(from, {"type"})) && kube::FindInt(port, {"nodePort"}) > 0) {
      copy["nodePort"] = port["nodePort"];
    }
    ports.push_back(std::move(copy));
  }
  if (const auto selector = from.find("selector");
      selector != from.end() && selector->is_object() && !selector->empty()) {
    spec["selector"] =
        HostLabelSelector(tenant, {{"matchLabels", *selector}},
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

Json ServiceSyncer::PatchFor(const Json& host, const Json& wanted) const {
  Json patch = MetadataPatch(host, wanted);
  const Json& have = host.at("spec");
  for (const auto& [field, value] : wanted["spec"].items()) {
    if (field == "clusterIP") {
      continue;  // immutable: Rebuild
    }
    if (field == "ports") {
      Json ports = have.value("ports", Json::array());
      for (std::size_t i = 0; i < ports.size(); ++i) {
        // A port that the host chose and the tenant does not name is fine.
        if (i < value.size() && !value[i].contains("nodePort")) {
          ports[i].erase("nodePort");
        }
      }
      if (ports != value) {
        patch["spec"][field] = value;
      }
    } else if (!have.contains(field) || have[field] != value) {
      patch["spec"][field] = value;
    }
  }
  if (have.contains("selector")) {
    // A merge patch would keep keys that are no longer wanted.
    const Json keep = wanted["spec"].value("selector", Json::object());
    for (const auto& [key, value] : have["selector"].items()) {
      if (!keep.contains(key)) {
        patch["spec"]["selector"][key] = nullptr;
      }
    }
  }
  return patch;
}

Result<Json> ServiceSyncer::Allocate(const Json& service, Deadline deadline) {
  const kube::ObjectKey key = kube::KeyOf(service);
  if (IsKubernetesService(key)) {
    return Json{{"clusterIP", context().api_address}};
  }
  if (!kube::UidOf(service).empty()) {
    return MakeTwin(key, service, deadline);  // it is stored already
  }
  // A name that is taken is refused here: the one who has it keeps its twin as it is, and a deletion
  // of it does not wait for this request.
  if (Virtual(key) != nullptr) {
    const auto there = context().virtual_client.Get(VirtualTarget(key));
    if (there.ok() && !kube::IsDeleting(*there)) {
      return AlreadyExists({"", "services"}, key.name);
    }
  }
  return MakeNewTwin(key, service, deadline);
}

Result<Json> ServiceSyncer::MakeNewTwin(const kube::ObjectKey& key, const Json& service,
                                        Deadline deadline) {
  BeginAnswer(key);
  auto given = MakeTwin(key, service, deadline);
  if (!given.ok()) {
    EndAnswer(key);
  }
  return given;
}

Result<Json> ServiceSyncer::MakeTwin(const kube::ObjectKey& key, const Json& service,
                                     Deadline deadline) {
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  const client::Client host_client = context().host_client.WithTimeout(time);
  SUBLET_TRY(const Json wanted, Translate(service));
  const client::Target target = HostTarget(kube::FindString(wanted, {"metadata", "name"}));
  for (int i = 0; i < kAllocateTries; ++i) {
    // A twin may stand there: this is an update, a POST whose answer got lost, or its predecessor
    // is still being deleted. It is looked for first, or its own address would be refused as taken.
    auto answer = host_client.Get(target);
    if (answer.ok() && !kube::IsDeleting(*answer)) {
      answer = host_client.Patch(target, client::PatchType::kMerge, PatchFor(*answer, wanted));
    } else if (!answer.ok() && answer.error().Is(Reason::kNotFound)) {
      answer = host_client.Create(HostTarget(""), wanted);
      // An API server that gives the address before it looks at the name (upstream's) refuses the
      // address of a twin that the loop of this kind has just made: it is there to be changed.
      if (!answer.ok() && answer.error().Is(Reason::kInvalid) && host_client.Get(target).ok()) {
        continue;
      }
    }
    if (answer.ok() && !kube::IsDeleting(*answer)) {
      host_informer().NoteWritten(*answer);
      return answer->value("spec", Json::object());
    }
    if (!answer.ok() && !answer.error().Is(Reason::kNotFound) &&
        !answer.error().Is(Reason::kAlreadyExists)) {
      return std::move(answer).error();
    }
  }
  return Conflict({"", "services"}, key.name, "its predecessor is still being deleted; try again");
}

void ServiceSyncer::BeginAnswer(const kube::ObjectKey& key) {
  const WallTime now = context().clock.Now();
  MutexLock lock(mutex_);
  std::erase_if(answering_, [&](const auto& entry) { return entry.second <= now; });
  answering_[key] = now + kAnswerTime;
}

void ServiceSyncer::EndAnswer(const kube::ObjectKey& key) {
  MutexLock lock(mutex_);
  answering_.erase(key);
}

Result<void> ServiceSyncer::NoteThere(const kube::ObjectKey& key) {
  EndAnswer(key);
  return IsBeingRemade(key) ? context().mapping.NoteSynced(info().name, key, "") : Ok();
}

std::chrono::nanoseconds ServiceSyncer::AnswerTimeLeft(const kube::ObjectKey& key) {
  MutexLock lock(mutex_);
  const auto found = answering_.find(key);
  return found == answering_.end()
             ? std::chrono::nanoseconds::zero()
             : std::chrono::nanoseconds(found->second - context().clock.Now());
}

Result<Outcome> ServiceSyncer::SyncToHost(const Json& service) {
  // The tenant's own API address needs no twin, and an ExternalName is answered by the tenant's
  // DNS: on the host it could point at names that are not the tenant's.
  if (IsKubernetesService(kube::KeyOf(service)) || kube::IsDeleting(service)) {
    return Outcome::Done();
  }
  SUBLET_RETURN_IF_ERROR(NoteThere(kube::KeyOf(service)));
  if (IsExternalName(service)) {
    return Outcome::Done();
  }
  SUBLET_TRY(Json host, Translate(service));
  auto created = CreateHost(host);
  if (created.ok() || !created.error().Is(Reason::kInvalid)) {
    return created;
  }
  // The address or a port was free when the tenant got it and is not any more: the host chooses,
  // and Sync brings the tenant's side to it.
  host["spec"].erase("clusterIP");
  host["spec"].erase("healthCheckNodePort");
  for (Json& port : host["spec"]["ports"]) {
    port.erase("nodePort");
  }
  return CreateHost(host);
}

Result<Outcome> ServiceSyncer::SyncToVirtual(const kube::ObjectKey& key, const Json& host) {
  if (IsBeingRemade(key)) {
    return Remake(key);
  }
  if (const auto left = AnswerTimeLeft(key); left > left.zero()) {
    return Outcome::After(left);
  }
  return TranslatedKind::SyncToVirtual(key, host);
}

Result<Outcome> ServiceSyncer::Rebuild(const Json& service, const Json& host) {
  const auto ip = kube::FindString(host, {"spec", "clusterIP"});
  if (ip == "None" || kube::FindString(service, {"spec", "clusterIP"}) == "None") {
    return DeleteHost(host);  // its end brings this key back
  }
  // The new virtual Service takes the host's address over: Allocate finds this twin, and holds it.
  Json again = service;
  again.erase("status");
  for (const char* field :
       {"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"}) {
    again["metadata"].erase(field);
  }
  for (const char* field : {"clusterIP", "clusterIPs", "healthCheckNodePort"}) {
    again["spec"].erase(field);
  }
  for (Json& port : again["spec"]["ports"]) {
    port.erase("nodePort");
  }
  const kube::ObjectKey key = kube::KeyOf(service);
  SUBLET_TRY(const Json given, MakeNewTwin(key, again, After(std::chrono::seconds(10))));
  (void)given;
  // Durable before the old one goes: whatever ends between the two steps, the Service is the tenant's.
  SUBLET_RETURN_IF_ERROR(context().mapping.NoteSynced(info().name, key, kube::Dump(again)));
  SUBLET_TRY(const Outcome deleted, DeleteVirtual(service));
  (void)deleted;
  return Remake(key);
}

bool ServiceSyncer::IsBeingRemade(const kube::ObjectKey& key) const {
  return !context().mapping.LastSynced(info().name, key).empty();
}

Result<Outcome> ServiceSyncer::Remake(const kube::ObjectKey& key) {
  SUBLET_TRY(const Json service, kube::ParseJson(context().mapping.LastSynced(info().name, key)));
  auto created = context().virtual_client.Create(VirtualTarget({key.namespace_name, ""}), service);
  if (!created.ok() && !created.error().Is(Reason::kNotFound)) {
    return std::move(created).error();
  }
  // NotFound: the namespace is gone, and the Service with it.
  SUBLET_RETURN_IF_ERROR(context().mapping.NoteSynced(info().name, key, ""));
  return Outcome::Done();
}

Result<Outcome> ServiceSyncer::Gone(const kube::ObjectKey& key) {
  return IsBeingRemade(key) ? Remake(key) : TranslatedKind::Gone(key);
}

Result<Outcome> ServiceSyncer::Sync(const Json& service, const Json& host) {
  if (kube::IsDeleting(service)) {
    return DeleteHost(host);
  }
  SUBLET_RETURN_IF_ERROR(NoteThere(kube::KeyOf(service)));
  if (IsExternalName(service)) {
    return DeleteHost(host);
  }
  SUBLET_TRY(const Json wanted, Translate(service));
  const auto ip = kube::FindString(wanted, {"spec", "clusterIP"});
  if (!ip.empty() && ip != kube::FindString(host, {"spec", "clusterIP"})) {
    return Rebuild(service, host);
  }
  // The twin of a predecessor keeps its address and takes the new identity.
  SUBLET_TRY(const Outcome patched, PatchHost(host, PatchFor(host, wanted)));
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
