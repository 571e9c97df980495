#include "controllers/endpoint_slice_controller.h"

#include <map>
#include <nlohmann/json.hpp>

#include "controllers/endpoint_slices.h"
#include "controllers/service_endpoints.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr char kSliceManager[] = "endpointslice-controller.k8s.io";
constexpr char kMirrorManager[] = "endpointslicemirroring-controller.k8s.io";
constexpr std::string_view kZoneLabel = "topology.kubernetes.io/zone";
constexpr std::string_view kServiceIndex = "service-name";

// The slices of one Service that `manager` keeps.
std::vector<ObjectPtr> SlicesOf(const Collection& slices, const kube::ObjectKey& key,
                                std::string_view manager) {
  auto out = slices.informer().ByIndex(kServiceIndex, key.Text());
  std::erase_if(
      out, [&](const ObjectPtr& slice) { return slice->Label(kSliceManagedByLabel) != manager; });
  return out;
}

void AddServiceIndex(const Collection& slices) {
  slices.informer().AddIndex(kServiceIndex, [](const client::CachedObject& slice) {
    const std::string name(slice.Label(kServiceNameLabel));
    return name.empty() ? std::vector<std::string>{}
                        : std::vector<std::string>{slice.key.namespace_name + "/" + name};
  });
}

void RouteSlices(const Collection& slices, std::string_view manager, client::WorkQueue& queue) {
  slices.informer().AddHandler([manager, &queue](const ObjectPtr& before, const ObjectPtr& after) {
    for (const ObjectPtr& slice : {before, after}) {
      if (slice && slice->Label(kSliceManagedByLabel) == manager) {
        queue.Add({slice->key.namespace_name, std::string(slice->Label(kServiceNameLabel))});
      }
    }
  });
}

Json OwnerJson(const Json& owner, const char* api_version, const char* kind) {
  return {{"apiVersion", api_version}, {"kind", kind},       {"name", kube::NameOf(owner)},
          {"uid", kube::UidOf(owner)}, {"controller", true}, {"blockOwnerDeletion", true}};
}

class SliceController final : public Controller {
 public:
  explicit SliceController(const Context& context)
      : services_(context, kServices),
        pods_(context, kPods),
        nodes_(context, kNodes),
        slices_(context, kEndpointSlices),
        queue_(context.manager.Add(
            {.name = "endpointslice",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 2,
             .needs = {&services_.informer(), &pods_.informer(), &nodes_.informer(),
                       &slices_.informer()}})) {
    AddServiceIndex(slices_);
    RouteSlices(slices_, kSliceManager, queue_);
    services_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      queue_.Add((after ? after : before)->key);
    });
    RoutePodsToServices(pods_, services_, queue_);
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr service = services_.Find(key);
    const std::vector<ObjectPtr> present = SlicesOf(slices_, key, kSliceManager);
    const bool wanted = service && service->As<ServiceRecord>().has_selector &&
                        !service->As<ServiceRecord>().external_name;
    if (!wanted || service->deleting()) {
      // A Service that lost its selector keeps no slices of ours; one that is gone takes them with
      // it.
      if (!wanted) {
        for (const ObjectPtr& slice : present) {
          SUBLET_RETURN_IF_ERROR(slices_.Delete(slice->key, slice->uid));
        }
      }
      return Outcome::Done();
    }
    SUBLET_TRY(const Json value, service->Parse());
    std::vector<ObjectPtr> selected;
    for (const ObjectPtr& pod : pods_.informer().ListNamespace(key.namespace_name)) {
      if (service->As<ServiceRecord>().Selects(*pod)) {
        selected.push_back(pod);
      }
    }
    SUBLET_TRY(
        SlicePlan plan,
        PlanSlices(OwnerOf(value), GroupsOf(EndpointsOf(value, selected, true)), present, true));
    SUBLET_RETURN_IF_ERROR(ApplyPlan(slices_, key.namespace_name, std::move(plan)));
    return Outcome::Done();
  }

  static SliceOwner OwnerOf(const Json& service) {
    SliceOwner out;
    out.namespace_name = kube::NamespaceOf(service);
    out.name_prefix = kube::NameOf(service);
    out.labels = Json::object();
    if (const Json* labels = kube::LabelsOf(service)) {
      out.labels = *labels;
    }
    out.labels[std::string(kServiceNameLabel)] = out.name_prefix;
    out.labels[std::string(kSliceManagedByLabel)] = kSliceManager;
    if (IsHeadless(service)) {
      out.labels[kHeadlessLabel] = "";
    } else {
      out.labels.erase(kHeadlessLabel);
    }
    out.owner_reference = OwnerJson(service, "v1", "Service");
    return out;
  }

  std::vector<SliceGroup> GroupsOf(const std::vector<Endpoint>& endpoints) const {
    std::map<std::pair<bool, std::vector<ServicePort>>, SliceGroup> groups;
    for (const Endpoint& endpoint : endpoints) {
      SliceGroup& group = groups[{endpoint.ipv6, endpoint.ports}];
      if (group.address_type.empty()) {
        group.address_type = endpoint.ipv6 ? "IPv6" : "IPv4";
        group.ports = Json::array();
        for (const ServicePort& port : endpoint.ports) {
          Json entry = {{"name", port.name}, {"port", port.number}, {"protocol", port.protocol}};
          kube::PutString(&entry, "appProtocol", port.app_protocol);
          group.ports.push_back(std::move(entry));
        }
      }
      group.endpoints.push_back(EndpointJson(endpoint));
    }
    std::vector<SliceGroup> out;
    for (auto& [key, group] : groups) {
      out.push_back(std::move(group));
    }
    return out;
  }

  Json EndpointJson(const Endpoint& endpoint) const {
    Json out = {{"addresses", Json::array({endpoint.ip})},
                {"conditions",
                 {{"ready", endpoint.ready},
                  {"serving", endpoint.serving},
                  {"terminating", endpoint.terminating}}},
                {"targetRef",
                 {{"kind", "Pod"},
                  {"namespace", endpoint.pod_namespace},
                  {"name", endpoint.pod_name},
                  {"uid", endpoint.pod_uid}}}};
    kube::PutString(&out, "nodeName", endpoint.node);
    kube::PutString(&out, "hostname", endpoint.hostname);
    if (const ObjectPtr node = nodes_.Find({"", endpoint.node})) {
      kube::PutString(&out, "zone", node->Label(kZoneLabel));
    }
    return out;
  }

  const Collection services_;
  const Collection pods_;
  const Collection nodes_;
  const Collection slices_;
  client::WorkQueue& queue_;
};

class MirrorController final : public Controller {
 public:
  explicit MirrorController(const Context& context)
      : services_(context, kServices),
        endpoints_(context, kEndpoints),
        slices_(context, kEndpointSlices),
        queue_(context.manager.Add(
            {.name = "endpointslicemirroring",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .needs = {&services_.informer(), &endpoints_.informer(), &slices_.informer()}})) {
    AddServiceIndex(slices_);
    RouteSlices(slices_, kMirrorManager, queue_);
    for (const Collection* collection : {&services_, &endpoints_}) {
      collection->informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
        queue_.Add((after ? after : before)->key);
      });
    }
  }

 private:
  bool ShouldMirror(const ObjectPtr& service, const ObjectPtr& endpoints) const {
    return service && endpoints && !endpoints->deleting() &&
           !service->As<ServiceRecord>().has_selector &&
           endpoints->Label("endpointslice.kubernetes.io/skip-mirror") != "true" &&
           endpoints->Label("endpoints.kubernetes.io/managed-by") != "endpoint-controller";
  }

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr endpoints = endpoints_.Find(key);
    const std::vector<ObjectPtr> present = SlicesOf(slices_, key, kMirrorManager);
    if (!ShouldMirror(services_.Find(key), endpoints)) {
      for (const ObjectPtr& slice : present) {
        SUBLET_RETURN_IF_ERROR(slices_.Delete(slice->key, slice->uid));
      }
      return Outcome::Done();
    }
    SUBLET_TRY(const Json value, endpoints->Parse());
    SliceOwner owner;
    owner.namespace_name = key.namespace_name;
    owner.name_prefix = key.name;
    owner.labels = Json::object();
    if (const Json* labels = kube::LabelsOf(value)) {
      owner.labels = *labels;
    }
    owner.labels[std::string(kServiceNameLabel)] = key.name;
    owner.labels[std::string(kSliceManagedByLabel)] = kMirrorManager;
    owner.owner_reference = OwnerJson(value, "v1", "Endpoints");
    SUBLET_TRY(SlicePlan plan, PlanSlices(owner, GroupsOf(value), present, false));
    SUBLET_RETURN_IF_ERROR(ApplyPlan(slices_, key.namespace_name, std::move(plan)));
    return Outcome::Done();
  }

  static std::vector<SliceGroup> GroupsOf(const Json& endpoints) {
    std::map<std::string, SliceGroup> groups;
    const Json* subsets = kube::Find(endpoints, {"subsets"});
    for (const Json& subset :
         subsets != nullptr && subsets->is_array() ? *subsets : Json::array()) {
      Json ports = Json::array();
      const Json* given = kube::Find(subset, {"ports"});
      for (const Json& port : given != nullptr && given->is_array() ? *given : Json::array()) {
        Json entry = port;
        if (!entry.contains("name")) {
          entry["name"] = "";
        }
        ports.push_back(std::move(entry));
      }
      for (const auto& [list, ready] :
           {std::pair("addresses", true), std::pair("notReadyAddresses", false)}) {
        const Json* addresses = kube::Find(subset, {list});
        for (const Json& address :
             addresses != nullptr && addresses->is_array() ? *addresses : Json::array()) {
          AddAddress(address, ready, ports, &groups);
        }
      }
    }
    std::vector<SliceGroup> out;
    for (auto& [key, group] : groups) {
      out.push_back(std::move(group));
    }
    return out;
  }

  static void AddAddress(const Json& address, bool ready, const Json& ports,
                         std::map<std::string, SliceGroup>* groups) {
    const std::string ip(kube::FindString(address, {"ip"}));
    const char* type = ip.find(':') != std::string::npos ? "IPv6" : "IPv4";
    SliceGroup& group = (*groups)[type + kube::Dump(ports)];
    group.address_type = type;
    group.ports = ports;
    // Mirrored slices say nothing of serving and terminating: Endpoints know neither.
    Json endpoint = {{"addresses", Json::array({ip})}, {"conditions", {{"ready", ready}}}};
    for (const char* key : {"hostname", "nodeName", "targetRef"}) {
      if (const Json* value = kube::Find(address, {key})) {
        endpoint[key] = *value;
      }
    }
    group.endpoints.push_back(std::move(endpoint));
  }

  const Collection services_;
  const Collection endpoints_;
  const Collection slices_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeEndpointSliceController(const Context& context) {
  return std::make_unique<SliceController>(context);
}
std::unique_ptr<Controller> MakeEndpointSliceMirroringController(const Context& context) {
  return std::make_unique<MirrorController>(context);
}

}  // namespace sublet::controllers
