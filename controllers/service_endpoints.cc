#include "controllers/service_endpoints.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/int_or_string.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using kube::Json;

constexpr std::chrono::milliseconds kSettle{10};
constexpr std::chrono::milliseconds kSettleLarge{100};
constexpr std::size_t kLargeNamespace = 500;

// The pod's port for a Service port; nothing when a named port does not exist in it.
std::optional<std::int32_t> PortOf(const Json& port, const PodRecord& pod) {
  const auto target = kube::IntOrString::FromJson(kube::Find(port, {"targetPort"}));
  if (!target) {
    return static_cast<std::int32_t>(kube::FindInt(port, {"port"}));
  }
  if (!target->is_string) {
    return target->number != 0 ? target->number
                               : static_cast<std::int32_t>(kube::FindInt(port, {"port"}));
  }
  const std::string_view protocol = kube::FindString(port, {"protocol"}, "TCP");
  for (const PodPort& candidate : pod.ports) {
    if (candidate.name == target->text && candidate.protocol == protocol) {
      return candidate.number;
    }
  }
  return std::nullopt;
}

std::vector<ServicePort> PortsOf(const Json& service, const PodRecord& pod) {
  std::vector<ServicePort> out;
  const Json* ports = kube::Find(service, {"spec", "ports"});
  for (const Json& port : ports != nullptr && ports->is_array() ? *ports : Json::array()) {
    if (const auto number = PortOf(port, pod)) {
      out.push_back({std::string(kube::FindString(port, {"name"})),
                     std::string(kube::FindString(port, {"protocol"}, "TCP")),
                     std::string(kube::FindString(port, {"appProtocol"})), *number});
    }
  }
  return out;
}

bool WantsFamily(const Json& service, bool ipv6) {
  const Json* families = kube::Find(service, {"spec", "ipFamilies"});
  if (families == nullptr || !families->is_array() || families->empty()) {
    return !ipv6;
  }
  return std::any_of(families->begin(), families->end(),
                     [&](const Json& family) { return family == (ipv6 ? "IPv6" : "IPv4"); });
}

// Whether a change of a pod can show in anybody's endpoints.
bool Differs(const client::CachedObject& before, const client::CachedObject& after) {
  const auto& a = before.As<PodRecord>();
  const auto& b = after.As<PodRecord>();
  return before.uid != after.uid || before.labels != after.labels || a.ips != b.ips ||
         a.ready != b.ready || a.node != b.node || a.Finished() != b.Finished() ||
         before.deleting() != after.deleting() || a.hostname != b.hostname;
}

}  // namespace

bool ServiceRecord::Selects(const client::CachedObject& pod) const {
  return has_selector && std::all_of(selector.begin(), selector.end(), [&](const auto& wanted) {
           const auto found = std::lower_bound(
               pod.labels.begin(), pod.labels.end(), wanted.first,
               [](const auto& label, const std::string& key) { return label.first < key; });
           return found != pod.labels.end() && *found == wanted;
         });
}

ServiceRecord ReadServiceRecord(const Json& service) {
  ServiceRecord out;
  out.external_name = kube::FindString(service, {"spec", "type"}) == "ExternalName";
  const Json* selector = kube::Find(service, {"spec", "selector"});
  if (selector != nullptr && selector->is_object() && !selector->empty()) {
    out.has_selector = true;
    for (const auto& [key, value] : selector->items()) {
      out.selector.emplace_back(key, value.is_string() ? value.get<std::string>() : "");
    }
  }
  return out;
}

bool IsHeadless(const Json& service) {
  return kube::FindString(service, {"spec", "clusterIP"}) == "None";
}

std::vector<Endpoint> EndpointsOf(const Json& service, const std::vector<ObjectPtr>& pods,
                                  bool with_terminating) {
  const bool publish_unready = kube::FindBool(service, {"spec", "publishNotReadyAddresses"});
  std::vector<Endpoint> out;
  for (const ObjectPtr& pod : pods) {
    const PodRecord& record = PodOf(pod);
    if (record.Finished() || record.ips.empty() || (pod->deleting() && !with_terminating)) {
      continue;
    }
    Endpoint endpoint;
    endpoint.node = record.node;
    endpoint.pod_namespace = pod->key.namespace_name;
    endpoint.pod_name = pod->key.name;
    endpoint.pod_uid = pod->uid;
    endpoint.serving = record.ready;
    endpoint.terminating = pod->deleting();
    endpoint.ready = publish_unready || (record.ready && !pod->deleting());
    if (!record.hostname.empty() && record.subdomain == kube::NameOf(service)) {
      endpoint.hostname = record.hostname;
    }
    endpoint.ports = PortsOf(service, record);
    for (const std::string& ip : record.ips) {
      endpoint.ip = ip;
      endpoint.ipv6 = ip.find(':') != std::string::npos;
      if (WantsFamily(service, endpoint.ipv6)) {
        out.push_back(endpoint);
      }
    }
  }
  return out;
}

void RoutePodsToServices(const Collection& pods, const Collection& services,
                         client::WorkQueue& queue) {
  client::Informer& service_informer = services.informer();
  client::Informer& pod_informer = pods.informer();
  pods.informer().AddHandler([&](const ObjectPtr& before, const ObjectPtr& after) {
    if (before && after && !Differs(*before, *after)) {
      return;
    }
    const std::string& name_space = (after ? after : before)->key.namespace_name;
    const auto wait = pod_informer.size() > kLargeNamespace ? kSettleLarge : kSettle;
    for (const ObjectPtr& service : service_informer.ListNamespace(name_space)) {
      const auto& record = service->As<ServiceRecord>();
      if ((before && record.Selects(*before)) || (after && record.Selects(*after))) {
        queue.AddAfter(service->key, wait);
      }
    }
  });
}

}  // namespace sublet::controllers
