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
  const bool list_changed =
      (list == nullptr ? Json() : *list) != (old_list == nullptr ? Json() : *old_list);
  if (ip.empty() && !old_ip.empty() && !list_changed) {
    EraseMember(&spec, "clusterIPs");  // an old client clears the address
  } else if (ip != old_ip && !ip.empty() && !list_changed) {
    spec["clusterIPs"] = Json::array({ip});
  }
}

// A client that does not know the allocated values keeps them.
void KeepAllocated(const Json& old, Json* service) {
  Json& spec = EnsureObject(service, "spec");
  if (NeedsClusterIp(old) && NeedsClusterIp(*service)) {
    if (ClusterIp(*service).empty()) {
      PutString(&spec, "clusterIP", ClusterIp(old));
      const Json* list = Find(spec, {"clusterIPs"});
      if (const Json* old_list = Find(old, {"spec", "clusterIPs"});
          old_list != nullptr && (list == nullptr || list->empty())) {
        spec["clusterIPs"] = *old_list;
      }
    }
    for (const char* field : {"ipFamilies", "ipFamilyPolicy"}) {
      const Json* before = Find(old, {"spec", field});
      if (before != nullptr && Find(spec, {field}) == nullptr) {
        spec[field] = *before;
      }
    }
  }
  if (NeedsNodePort(old) && NeedsNodePort(*service)) {
    const Json* before = Find(old, {"spec", "ports"});
    Json* ports = Find(spec, {"ports"});
    if (before != nullptr && ports != nullptr && ports->is_array()) {
      for (Json& port : *ports) {
        for (const Json& one : *before) {
          if (FindInt(port, {"nodePort"}) == 0 && FindInt(one, {"nodePort"}) != 0 &&
              FindInt(port, {"port"}) == FindInt(one, {"port"}) &&
              FindString(port, {"protocol"}) == FindString(one, {"protocol"})) {
            port["nodePort"] = FindInt(one, {"nodePort"});
          }
        }
      }
    }
  }
  if (NeedsHealthCheckPort(old) && NeedsHealthCheckPort(*service) &&
      FindInt(spec, {"healthCheckNodePort"}) == 0) {
    if (const std::int64_t port = FindInt(old, {"spec", "healthCheckNodePort"}); port != 0) {
      spec["healthCheckNodePort"] = port;
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

// Fields that mean nothing for the new type go, when they are what they were before.
void DropForType(const Json& old, Json* service) {
  Json& spec = EnsureObject(service, "spec");
  const auto unchanged = [&](const char* field) {
    const Json* a = Find(old, {"spec", field});
    const Json* b = Find(spec, {field});
    return a != nullptr && b != nullptr && *a == *b;
  };
  if (NeedsClusterIp(old) && !NeedsClusterIp(*service)) {
    if (unchanged("clusterIP")) {
      for (const char* field : {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}) {
        EraseMember(&spec, field);
      }
    }
    if (unchanged("internalTrafficPolicy")) {
      EraseMember(&spec, "internalTrafficPolicy");
    }
  }
  const auto external = [](const Json& one) {
    return Type(one) == "LoadBalancer" || Type(one) == "NodePort";
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
  if (Type(old) == "ExternalName" && Type(*service) != "ExternalName" &&
      unchanged("externalName")) {
    EraseMember(&spec, "externalName");
  }
}

}  // namespace

void PrepareServiceCreate(const WriteContext&, Json* service) {
  AgreeOnClusterIps(nullptr, service);
}

void PrepareServiceUpdate(const WriteContext&, const Json& old, Json* service) {
  AgreeOnClusterIps(&old, service);
  DropForType(old, service);
  KeepAllocated(old, service);
}

}  // namespace sublet::kube::logic
