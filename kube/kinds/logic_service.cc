#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/logic_functions.h"
#include "kube/object.h"

namespace sublet::kube::logic {
namespace {

std::string Type(const Json& service) { return std::string(FindString(service, {"spec", "type"})); }
bool NeedsClusterIp(const Json& service) {
  const std::string type = Type(service);
  return type == "ClusterIP" || type == "NodePort" || type == "LoadBalancer";
}
bool NeedsNodePort(const Json& service) {
  return Type(service) == "NodePort" ||
         (Type(service) == "LoadBalancer" &&
          FindBool(service, {"spec", "allocateLoadBalancerNodePorts"}, true));
}
bool NeedsHealthCheckPort(const Json& service) {
  return Type(service) == "LoadBalancer" &&
         FindString(service, {"spec", "externalTrafficPolicy"}) == "Local";
}

std::string ClusterIp(const Json& service) {
  return std::string(FindString(service, {"spec", "clusterIP"}));
}

// clusterIP is the first of clusterIPs: clients of either age may set one of them.
void AgreeOnClusterIps(const Json* old, Json* service) {
  Json& spec = EnsureObject(service, "spec");
  const std::string ip = ClusterIp(*service);
  const Json* list = Find(spec, {"clusterIPs"});
  const bool has_list = list != nullptr && list->is_array() && !list->empty();
  if (old == nullptr) {
    if (!ip.empty() && !has_list) {
      spec["clusterIPs"] = Json::array({ip});
    }
    return;
  }
  const std::string old_ip = ClusterIp(*old);
  const Json* old_list = Find(*old, {"spec", "clusterIPs"});
  if (!has_list && old_list != nullptr && ip == old_ip) {
    spec["clusterIPs"] = *old_list;  // a client that does not know the list
    return;
  }
  const Json* now = Find(spec, {"clusterIPs"});
  const bool list_changed =
      (now == nullptr ? Json() : *now) != (old_list == nullptr ? Json() : *old_list);
  if (ip != old_ip && !list_changed) {
    if (ip.empty()) {
      EraseMember(&spec, "clusterIPs");  // an old client clears the address
    } else {
      spec["clusterIPs"] = Json::array({ip});
    }
  }
}

std::set<std::int64_t> PortsOnNodes(const Json& service) {
  std::set<std::int64_t> numbers;
  if (const Json* ports = Find(service, {"spec", "ports"}); ports != nullptr && ports->is_array()) {
    for (const Json& port : *ports) {
      numbers.insert(FindInt(port, {"nodePort"}));
    }
  }
  numbers.erase(0);
  return numbers;
}

// A port without a number gets the one that its name had, unless another port took that.
void KeepNodePorts(const Json& old, Json* service) {
  const std::set<std::int64_t> before = PortsOnNodes(old);
  const std::set<std::int64_t> now = PortsOnNodes(*service);
  const Json* old_ports = Find(old, {"spec", "ports"});
  Json* ports = Find(*service, {"spec", "ports"});
  if (old_ports == nullptr || ports == nullptr || !ports->is_array()) {
    return;
  }
  for (Json& port : *ports) {
    for (const Json& one : *old_ports) {
      const std::int64_t number = FindInt(one, {"nodePort"});
      if (FindInt(port, {"nodePort"}) == 0 && number != 0 &&
          FindString(port, {"name"}) == FindString(one, {"name"}) &&
          !(now.contains(number) && before.contains(number))) {
        port["nodePort"] = number;
      }
    }
  }
}

// A client that does not know the allocated values keeps them.
void KeepAllocated(const Json& old, Json* service) {
  Json& spec = EnsureObject(service, "spec");
  if (NeedsClusterIp(old) && NeedsClusterIp(*service)) {
    if (ClusterIp(*service).empty()) {
      PutString(&spec, "clusterIP", ClusterIp(old));
    }
    const Json* list = Find(spec, {"clusterIPs"});
    if (const Json* old_list = Find(old, {"spec", "clusterIPs"});
        old_list != nullptr && (list == nullptr || list->empty())) {
      spec["clusterIPs"] = *old_list;
    }
    for (const char* field : {"ipFamilies", "ipFamilyPolicy"}) {
      const Json* before = Find(old, {"spec", field});
      if (before != nullptr && Find(spec, {field}) == nullptr) {
        spec[field] = *before;
      }
    }
  }
  if (NeedsNodePort(old) && NeedsNodePort(*service)) {
    KeepNodePorts(old, service);
  }
  if (NeedsHealthCheckPort(old) && NeedsHealthCheckPort(*service) &&
      FindInt(spec, {"healthCheckNodePort"}) == 0) {
    if (const std::int64_t port = FindInt(old, {"spec", "healthCheckNodePort"}); port != 0) {
      spec["healthCheckNodePort"] = port;
    }
  }
}

// Fields that mean nothing for the new type go, when they are what they were before.
void DropForType(const Json& old, Json* service) {
  Json& spec = EnsureObject(service, "spec");
  const auto unchanged = [&](const char* field) {
    const Json* a = Find(old, {"spec", field});
    const Json* b = Find(spec, {field});
    return a != nullptr && b != nullptr && *a == *b;
  };
  if (NeedsClusterIp(old) && !NeedsClusterIp(*service)) {
    if (unchanged("clusterIPs")) {
      EraseMember(&spec, "clusterIP");
      EraseMember(&spec, "clusterIPs");
    }
    for (const char* field : {"ipFamilies", "ipFamilyPolicy"}) {
      if (unchanged(field)) {
        EraseMember(&spec, field);
      }
    }
  }
  const auto external = [](const Json& one) {
    const Json* ips = Find(one, {"spec", "externalIPs"});
    return Type(one) == "LoadBalancer" || Type(one) == "NodePort" ||
           (Type(one) == "ClusterIP" && ips != nullptr && !ips->empty());
  };
  if (external(old) && !external(*service) && unchanged("externalTrafficPolicy")) {
    EraseMember(&spec, "externalTrafficPolicy");
  }
  if (NeedsNodePort(old) && !NeedsNodePort(*service) &&
      PortsOnNodes(old) == PortsOnNodes(*service)) {
    for (Json& port : EnsureArray(&spec, "ports")) {
      EraseMember(&port, "nodePort");
    }
  }
  if (NeedsHealthCheckPort(old) && !NeedsHealthCheckPort(*service) &&
      unchanged("healthCheckNodePort")) {
    EraseMember(&spec, "healthCheckNodePort");
  }
  if (Type(old) == "LoadBalancer" && Type(*service) != "LoadBalancer") {
    for (const char* field : {"allocateLoadBalancerNodePorts", "loadBalancerClass"}) {
      if (unchanged(field)) {
        EraseMember(&spec, field);
      }
    }
  }
}

// Names of other hosts have no traffic of their own; what is no policy at all is left to be refused.
void DropInternalPolicy(Json* service) {
  const std::string policy(FindString(*service, {"spec", "internalTrafficPolicy"}));
  if (Type(*service) == "ExternalName" && (policy == "Cluster" || policy == "Local")) {
    EraseMember(&EnsureObject(service, "spec"), "internalTrafficPolicy");
  }
}

}  // namespace

void PrepareServiceCreate(const WriteContext&, Json* service) {
  AgreeOnClusterIps(nullptr, service);
  DropInternalPolicy(service);
}

void PrepareServiceUpdate(const WriteContext&, const Json& old, Json* service) {
  KeepAllocated(old, service);
  AgreeOnClusterIps(&old, service);
  DropForType(old, service);
  DropInternalPolicy(service);
}

}  // namespace sublet::kube::logic
