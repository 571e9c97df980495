#include "syncer/kinds/replicated_service.h"

#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "syncer/kinds/mirror_syncer.h"
#include "syncer/kinds/service_syncer.h"

namespace sublet::syncer {
namespace {

using client::Outcome;
using kube::Json;

// "namespace/name"; a bare name means `space`.
kube::ObjectKey KeyOfText(const std::string& text, const std::string& space) {
  const auto slash = text.find('/');
  return slash == std::string::npos
             ? kube::ObjectKey{space, text}
             : kube::ObjectKey{text.substr(0, slash), text.substr(slash + 1)};
}

Json PortsOf(const Json& service) {
  Json ports = Json::array();
  for (const Json& port : service.at("spec").value("ports", Json::array())) {
    Json copy = {{"port", port.at("port")}, {"protocol", port.value("protocol", "TCP")}};
    if (port.contains("name")) {
      copy["name"] = port["name"];
    }
    ports.push_back(std::move(copy));
  }
  return ports;
}

}  // namespace

ServiceToHost::ServiceToHost(SyncContext& context)
    : TranslatedKind(context, {"replicated-services", "/v1, Kind=Service", false},
                     {"", "v1", "services"}, "Service") {
  for (const ServiceReplication& row : context.config.replicate_to_host) {
    names_[KeyOfText(row.from, "default")] = KeyOfText(row.to, "").name;
  }
}

client::ObjectPtr ServiceToHost::Virtual(const kube::ObjectKey& key) const {
  return names_.contains(key) ? TranslatedKind::Virtual(key) : nullptr;
}

std::string ServiceToHost::NameFormula(const kube::ObjectKey& key) const {
  const auto found = names_.find(key);
  // No object has this name, so keys that are not replicated have no twin.
  return found == names_.end() ? "-" : found->second;
}

Result<Json> ServiceToHost::Translate(const Json& service) {
  SUBLET_TRY(Json host, NewHostObject(service));
  host["metadata"]["labels"][std::string(kLabelControlledBy)] = "sublet";
  host["spec"] = HostServiceSpec(context().tenant, service);
  host["spec"].erase("clusterIP");
  host["spec"].erase("healthCheckNodePort");
  host["spec"]["type"] = "ClusterIP";
  host["spec"].erase("externalTrafficPolicy");
  for (Json& port : host["spec"]["ports"]) {
    port.erase("nodePort");
  }
  return host;
}

Result<Outcome> ServiceToHost::SyncToHost(const Json& service) {
  if (kube::IsDeleting(service) || kube::FindString(service, {"spec", "type"}) == "ExternalName") {
    return Outcome::Done();
  }
  SUBLET_TRY(const Json host, Translate(service));
  return CreateHost(host);
}

Result<Outcome> ServiceToHost::Sync(const Json& service, const Json& host) {
  if (kube::IsDeleting(service)) {
    return DeleteHost(host);
  }
  SUBLET_TRY(const Json wanted, Translate(service));
  Json patch = MetadataPatch(host, wanted);
  for (const char* field : {"ports", "selector"}) {
    if (wanted["spec"].contains(field) &&
        host.at("spec").value(field, Json()) != wanted["spec"][field]) {
      patch["spec"][field] = wanted["spec"][field];
    }
  }
  return PatchHost(host, patch);
}

ServiceFromHost::ServiceFromHost(SyncContext& context)
    : KindSyncer({"imported-services", "/v1, Kind=Service", false}), context_(context) {
  for (const ServiceReplication& row : context.config.replicate_from_host) {
    sources_[KeyOfText(row.to, "default")] = {KeyOfText(row.from, context.tenant.host_namespace),
                                              nullptr};
  }
}

void ServiceFromHost::Watch(Enqueue enqueue) {
  virtual_services_ = &context_.VirtualInformer("", "v1", "services", "Service");
  virtual_services_->AddHandler(
      [this, enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        const auto& object = after != nullptr ? after : before;
        if (sources_.contains(object->key)) {
          enqueue(object->key);
        }
      });
  for (auto& [key, source] : sources_) {
    client::InformerOptions options;
    options.resource = {"", "v1", "services"};
    options.kind = "Service";
    options.namespace_name = source.host.namespace_name;
    options.field_selector =
        "metadata.name=" + source.host.name;  // the only one the Role lets through
    source.informer = &context_.host_informers.For(options);
    source.informer->AddHandler(
        [enqueue, key = key](const client::ObjectPtr&, const client::ObjectPtr&) { enqueue(key); });
  }
}

client::ObjectPtr ServiceFromHost::Virtual(const kube::ObjectKey& key) const {
  return sources_.contains(key) ? virtual_services_->Get(key) : nullptr;
}

client::ObjectPtr ServiceFromHost::Host(const kube::ObjectKey& key) const {
  const auto found = sources_.find(key);
  return found == sources_.end() ? nullptr : found->second.informer->Get(found->second.host);
}

Result<Outcome> ServiceFromHost::SyncToHost(const Json& service) {
  if (kube::LabelOf(service, kMirroredLabel) != "true" || kube::IsDeleting(service)) {
    return Outcome::Done();
  }
  client::DeleteOptions options;
  options.uid = kube::UidOf(service);
  const kube::ObjectKey key = kube::KeyOf(service);
  auto deleted = context_.virtual_client.Delete(
      {{"", "v1", "services"}, key.namespace_name, key.name, ""}, options);
  if (!deleted.ok() && !deleted.error().Is(Reason::kNotFound)) {
    return std::move(deleted).error();
  }
  return Outcome::Done();
}

Result<Outcome> ServiceFromHost::Write(const kube::ObjectKey& key, const Json& host) {
  const auto ip = kube::FindString(host, {"spec", "clusterIP"});
  const Json metadata = {{"name", key.name},
                         {"namespace", key.namespace_name},
                         {"labels", {{kMirroredLabel, "true"}}}};
  const Json service = {{"apiVersion", "v1"},
                        {"kind", "Service"},
                        {"metadata", metadata},
                        {"spec", {{"clusterIP", "None"}, {"ports", PortsOf(host)}}}};
  Json endpoints = {{"apiVersion", "v1"},
                    {"kind", "Endpoints"},
                    {"metadata", metadata},
                    {"subsets", Json::array()}};
  if (!ip.empty() && ip != "None") {
    endpoints["subsets"].push_back(
        {{"addresses", Json::array({{{"ip", ip}}})}, {"ports", PortsOf(host)}});
  }
  client::WriteOptions options;
  options.field_manager = "sublet-syncer";
  options.force = true;
  for (const auto& [resource, object] :
       {std::pair<const char*, const Json&>{"services", service}, {"endpoints", endpoints}}) {
    auto applied = context_.virtual_client.Apply(
        {{"", "v1", resource}, key.namespace_name, key.name, ""}, object, options);
    if (!applied.ok() && applied.error().Is(Reason::kNotFound)) {
      // The namespace is made for it, as an administrator asked for the Service.
      auto made = context_.virtual_client.Create({{"", "v1", "namespaces"}, "", "", ""},
                                                 {{"apiVersion", "v1"},
                                                  {"kind", "Namespace"},
                                                  {"metadata", {{"name", key.namespace_name}}}});
      if (!made.ok() && !made.error().Is(Reason::kAlreadyExists)) {
        return std::move(made).error();
      }
      return Outcome::After(std::chrono::milliseconds(50));
    }
    if (!applied.ok()) {
      return std::move(applied).error();
    }
  }
  return Outcome::Done();
}

Result<Outcome> ServiceFromHost::Sync(const Json& service, const Json& host) {
  if (kube::LabelOf(service, kMirroredLabel) != "true") {
    context_.reporter.Warn(service, "SyncWarning",
                           "the administrator replicates a Service of the host under this name; "
                           "this one stays the tenant's own");
    return Outcome::Done();
  }
  // Equal already: nothing is written, so nothing comes back to write again.
  return PortsOf(service) == PortsOf(host) ? Result<Outcome>(Outcome::Done())
                                           : Write(kube::KeyOf(service), host);
}

Result<Outcome> ServiceFromHost::SyncToVirtual(const kube::ObjectKey& key, const Json& host) {
  return Write(key, host);
}

Result<Outcome> ServiceFromHost::Gone(const kube::ObjectKey&) { return Outcome::Done(); }

}  // namespace sublet::syncer
