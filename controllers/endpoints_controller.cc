#include "controllers/endpoints_controller.h"

#include <map>
#include <nlohmann/json.hpp>

#include "controllers/service_endpoints.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr std::size_t kAddressesMax = 1000;
constexpr char kManagedBy[] = "endpoints.kubernetes.io/managed-by";
constexpr char kOverCapacity[] = "endpoints.kubernetes.io/over-capacity";

Json AddressOf(const Endpoint& endpoint) {
  Json out = {{"ip", endpoint.ip},
              {"targetRef",
               {{"kind", "Pod"},
                {"namespace", endpoint.pod_namespace},
                {"name", endpoint.pod_name},
                {"uid", endpoint.pod_uid}}}};
  kube::PutString(&out, "nodeName", endpoint.node);
  kube::PutString(&out, "hostname", endpoint.hostname);
  return out;
}

Json PortsJson(const std::vector<ServicePort>& ports) {
  Json out = Json::array();
  for (const ServicePort& port : ports) {
    Json entry = {{"port", port.number}, {"protocol", port.protocol}};
    kube::PutString(&entry, "name", port.name);
    kube::PutString(&entry, "appProtocol", port.app_protocol);
    out.push_back(std::move(entry));
  }
  return out;
}

// Addresses with the same ports share a subset; both sorted, so that equal states are equal bytes.
Json SubsetsOf(std::vector<Endpoint> endpoints, bool headless, bool* truncated) {
  *truncated = endpoints.size() > kAddressesMax;
  if (*truncated) {
    std::stable_sort(endpoints.begin(), endpoints.end(),
                     [](const Endpoint& a, const Endpoint& b) { return a.ready > b.ready; });
    endpoints.resize(kAddressesMax);
  }
  std::map<std::vector<ServicePort>,
           std::pair<std::map<std::string, Json>, std::map<std::string, Json>>>
      groups;
  for (const Endpoint& endpoint : endpoints) {
    if (endpoint.ports.empty() && !headless) {
      continue;
    }
    auto& [ready, not_ready] = groups[endpoint.ports];
    (endpoint.ready ? ready : not_ready)[endpoint.ip + "/" + endpoint.pod_uid] =
        AddressOf(endpoint);
  }
  Json out = Json::array();
  for (const auto& [ports, addresses] : groups) {
    Json subset = Json::object();
    for (const auto& [ip, address] : addresses.first) {
      subset["addresses"].push_back(address);
    }
    for (const auto& [ip, address] : addresses.second) {
      subset["notReadyAddresses"].push_back(address);
    }
    if (!ports.empty()) {
      subset["ports"] = PortsJson(ports);
    }
    out.push_back(std::move(subset));
  }
  return out;
}

class EndpointsController final : public Controller {
 public:
  explicit EndpointsController(const Context& context)
      : services_(context, kServices),
        pods_(context, kPods),
        endpoints_(context, kEndpoints),
        queue_(context.manager.Add(
            {.name = "endpoints",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 2,
             .needs = {&services_.informer(), &pods_.informer(), &endpoints_.informer()}})) {
    services_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      queue_.Add((after ? after : before)->key);
    });
    endpoints_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      queue_.Add((after ? after : before)->key);
    });
    RoutePodsToServices(pods_, services_, queue_);
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr service = services_.Find(key);
    const ObjectPtr present = endpoints_.Find(key);
    if (!service) {
      // What a user made by hand for a Service without selector goes with the Service as well.
      if (present && present->Label(kManagedBy) == "endpoint-controller") {
        SUBLET_RETURN_IF_ERROR(endpoints_.Delete(key, present->uid));
      }
      return Outcome::Done();
    }
    const auto& record = service->As<ServiceRecord>();
    if (!record.has_selector || record.external_name || service->deleting()) {
      return Outcome::Done();
    }
    SUBLET_TRY(const Json value, service->Parse());
    std::vector<ObjectPtr> selected;
    for (const ObjectPtr& pod : pods_.informer().ListNamespace(key.namespace_name)) {
      if (record.Selects(*pod)) {
        selected.push_back(pod);
      }
    }
    bool truncated = false;
    Json wanted = {
        {"metadata", {{"name", key.name}, {"namespace", key.namespace_name}}},
        {"subsets", SubsetsOf(EndpointsOf(value, selected, false), IsHeadless(value), &truncated)}};
    if (const Json* labels = kube::LabelsOf(value)) {
      wanted["metadata"]["labels"] = *labels;
    }
    kube::SetLabel(&wanted, kManagedBy, "endpoint-controller");
    if (IsHeadless(value)) {
      kube::SetLabel(&wanted, kHeadlessLabel, "");
    } else {
      kube::RemoveLabel(&wanted, kHeadlessLabel);
    }
    if (truncated) {
      kube::SetAnnotation(&wanted, kOverCapacity, "truncated");
    }
    if (wanted["subsets"].empty()) {
      wanted.erase("subsets");
    }
    return Write(key, std::move(wanted), present);
  }

  Result<Outcome> Write(const kube::ObjectKey& key, Json wanted, const ObjectPtr& present) {
    if (!present) {
      auto created = endpoints_.Create(key.namespace_name, std::move(wanted));
      if (!created.ok() && !created.error().Is(Reason::kForbidden)) {
        return std::move(created).error();  // Forbidden: the namespace is going away
      }
      return Outcome::Done();
    }
    SUBLET_TRY(Json before, present->Parse());
    Json updated = before;
    if (wanted.contains("subsets")) {
      updated["subsets"] = wanted["subsets"];
    } else {
      updated.erase("subsets");
    }
    updated["metadata"]["labels"] = wanted["metadata"]["labels"];
    if (kube::AnnotationOf(wanted, kOverCapacity).empty()) {
      kube::RemoveAnnotation(&updated, kOverCapacity);
    } else {
      kube::SetAnnotation(&updated, kOverCapacity, "truncated");
    }
    if (updated == before) {
      return Outcome::Done();
    }
    SUBLET_RETURN_IF_ERROR(endpoints_.Update(updated));
    return Outcome::Done();
  }

  const Collection services_;
  const Collection pods_;
  const Collection endpoints_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeEndpointsController(const Context& context) {
  return std::make_unique<EndpointsController>(context);
}

}  // namespace sublet::controllers
