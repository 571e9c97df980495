// The endpoints of a Service, computed from its pods: shared by the Endpoints and the EndpointSlice
// controllers. Pure but for the lookups it is given.
// Source: kube-controller-manager pkg/controller/endpoint, k8s.io/endpointslice.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "controllers/context.h"
#include "controllers/pod_record.h"

namespace sublet::controllers {

// On the endpoints of a Service without an address of its own.
inline constexpr char kHeadlessLabel[] = "service.kubernetes.io/headless";

// What a Service's change detection needs; the record of the services' informer.
struct ServiceRecord {
  std::vector<std::pair<std::string, std::string>> selector;
  bool has_selector = false;
  bool external_name = false;
  bool Selects(const client::CachedObject& pod) const;
};
ServiceRecord ReadServiceRecord(const kube::Json& service);

struct ServicePort {
  std::string name;
  std::string protocol;
  std::string app_protocol;
  std::int32_t number = 0;
  auto operator<=>(const ServicePort&) const = default;
};

struct Endpoint {
  std::string ip;
  bool ipv6 = false;
  std::string node;
  std::string hostname;
  std::string pod_namespace;
  std::string pod_name;
  std::string pod_uid;
  bool ready = false;
  bool serving = false;
  bool terminating = false;
  std::vector<ServicePort> ports;
};

// One entry per pod address of the families the Service has; finished pods and those without
// address are left out, terminating ones too unless `with_terminating`.
std::vector<Endpoint> EndpointsOf(const kube::Json& service,
                                  const std::vector<client::ObjectPtr>& pods,
                                  bool with_terminating);

// Adds the Services whose endpoints a change of a pod can touch, a little later, so that a burst of
// pods is one reconcile: 10 ms, 100 ms for Services with many pods.
void RoutePodsToServices(const Collection& pods, const Collection& services,
                         client::WorkQueue& queue);

bool IsHeadless(const kube::Json& service);

}  // namespace sublet::controllers
