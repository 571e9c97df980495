// Services.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

void Port(const Path& at, const Json& port, bool name_required, std::set<std::string>* names,
          FieldErrors* errors) {
  const std::string name = Str(port, "name");
  if (name.empty() && name_required) {
    errors->Required(at.Child("name"));
  } else if (!name.empty()) {
    Check(at.Child("name"), name, &IsDns1123Label, errors);
    if (!names->insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
  }
  errors->InvalidEach(at.Child("port"), FindInt(port, {"port"}),
                      IsPortNumber(FindInt(port, {"port"})));
  OneOf(at.Child("protocol"), Str(port, "protocol"), {"SCTP", "TCP", "UDP"}, true, errors);
  const Json& target = Get(port, "targetPort");
  PortNumberOrName(at.Child("targetPort"), target, errors);
  if (Has(port, "appProtocol")) {
    Check(at.Child("appProtocol"), Str(port, "appProtocol"), &IsQualifiedName, errors);
  }
}

void ForType(const Json& spec, const std::string& type, FieldErrors* errors) {
  const bool headless = Str(spec, "clusterIP") == "None";
  if (Items(spec, "ports").empty() && !headless && type != "ExternalName") {
    errors->Required(kSpec.Child("ports"));
  }
  if (headless && (type == "LoadBalancer" || type == "NodePort")) {
    const Path ips = kSpec.Child("clusterIPs");
    errors->Invalid(ips.Index(0), "None", "may not be set to 'None' for " + type + " services");
  }
  if (type != "ExternalName") {
    return;
  }
  for (const char* field : {"clusterIPs", "ipFamilies", "ipFamilyPolicy"}) {
    if (!Items(spec, field).empty() || Get(spec, field).is_string()) {
      errors->Forbidden(kSpec.Child(field), "may not be set for ExternalName services");
    }
  }
  const std::string name = Str(spec, "externalName");
  const std::string host = name.ends_with('.') ? name.substr(0, name.size() - 1) : name;
  CheckRequired(kSpec.Child("externalName"), host, &IsDns1123Subdomain, errors);
}

void Ports(const Json& spec, FieldErrors* errors) {
  const auto& ports = Items(spec, "ports");
  const Path path = kSpec.Child("ports");
  std::set<std::string> names;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    Port(path.Index(i), ports[i], ports.size() > 1, &names, errors);
  }
}

void NodePorts(const Json& spec, const std::string& type, FieldErrors* errors) {
  const auto& ports = Items(spec, "ports");
  const Path path = kSpec.Child("ports");
  std::set<std::pair<std::string, std::int64_t>> node_ports;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const Path at = path.Index(i);
    const std::int64_t number = FindInt(ports[i], {"nodePort"});
    if (number == 0) {
      continue;
    }
    if (type == "ClusterIP") {
      errors->Forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'");
    } else if (!node_ports.emplace(Str(ports[i], "protocol"), number).second) {
      errors->Duplicate(at.Child("nodePort"), number);
    }
  }
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const std::int64_t number = FindInt(ports[i], {"port"});
    const std::string protocol = Str(ports[i], "protocol");
    if (!seen.emplace(protocol, number).second) {
      errors->DuplicateShown(path.Index(i),
                             "{\"Name\":\"\",\"Protocol\":" + GoQuote(protocol) +
                                 ",\"AppProtocol\":null,\"Port\":" + std::to_string(number) +
                                 ",\"TargetPort\":0,\"NodePort\":0}");
    }
  }
}

void Families(const Json& spec, FieldErrors* errors) {
  const auto& families = Items(spec, "ipFamilies");
  const Path path = kSpec.Child("ipFamilies");
  std::set<std::string> seen;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const std::string one = families[i].get<std::string>();
    if (one != "IPv4" && one != "IPv6") {
      errors->NotSupported(path.Index(i), one, {"IPv4", "IPv6"});
    }
    if (!seen.insert(one).second) {
      errors->Duplicate(path.Index(i), one);
    }
  }
  Choice(kSpec, spec, "ipFamilyPolicy", {"PreferDualStack", "RequireDualStack", "SingleStack"},
         errors);
}

void ClusterIps(const Json& spec, FieldErrors* errors) {
  const std::string ip = Str(spec, "clusterIP");
  const auto& ips = Items(spec, "clusterIPs");
  const Path path = kSpec.Child("clusterIPs");
  const Json& list = Get(spec, "clusterIPs");
  if (ip.empty() && !ips.empty()) {
    errors->Invalid(path, list, "must be empty when `clusterIP` is not specified");
  } else if (!ip.empty() && ips.empty()) {
    errors->Required(path);
  } else if (!ip.empty() && ips[0] != ip) {
    errors->Invalid(path, list, "first value must match `clusterIP`");
  }
  Families(spec, errors);
  const std::size_t before = errors->size();
  for (std::size_t i = 0; i < ips.size(); ++i) {
    const std::string one = ips[i].get<std::string>();
    if (i == 0 && one == "None") {
      if (ips.size() > 1) {
        errors->Invalid(path, list, "'None' must be the first and only value");
        return;
      }
      continue;
    }
    Ip(path.Index(i), one, errors);
  }
  const bool readable = errors->size() == before;
  if (ips.size() > 2) {
    errors->Invalid(path, list, "may only hold up to 2 values");
  }
  if (!readable || ips.empty() || ip == "None") {
    return;
  }
  const auto is_v6 = [](const Json& one) {
    return one.get_ref<const std::string&>().find(':') != std::string::npos;
  };
  const auto v6 = static_cast<std::size_t>(std::count_if(ips.begin(), ips.end(), is_v6));
  if (ips.size() > 1 && (v6 == 0 || v6 == ips.size())) {
    errors->Invalid(path, list, "may specify no more than one IP for each IP family");
  }
  const auto& families = Items(spec, "ipFamilies");
  for (std::size_t i = 0; i < std::min(ips.size(), families.size()); ++i) {
    const bool wants_v6 = families[i] == "IPv6";
    if (wants_v6 != is_v6(ips[i]) && (wants_v6 || families[i] == "IPv4")) {
      errors->Invalid(path.Index(i), ips[i],
                      "expected an " + families[i].get<std::string>() +
                          " value as indicated by `ipFamilies[" + std::to_string(i) + "]`");
    }
  }
}

void Traffic(const Json& spec, const std::string& type, FieldErrors* errors) {
  const std::string external = Str(spec, "externalTrafficPolicy");
  const bool reachable = type == "LoadBalancer" || type == "NodePort" ||
                         (type == "ClusterIP" && !Items(spec, "externalIPs").empty());
  const Path path = kSpec.Child("externalTrafficPolicy");
  if (!external.empty()) {
    if (!reachable) {
      errors->Invalid(path, external, "may only be set for externally-accessible services");
    } else {
      OneOf(path, external, {"Cluster", "Local"}, true, errors);
    }
  } else if (reachable) {
    errors->Required(path);
  }
  const std::int64_t health = FindInt(spec, {"healthCheckNodePort"});
  if (health != 0) {
    errors->InvalidEach(kSpec.Child("healthCheckNodePort"), health, IsPortNumber(health));
  }
  if (health > 0 && !(type == "LoadBalancer" && external == "Local")) {
    errors->Invalid(kSpec.Child("healthCheckNodePort"), health,
                    "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is "
                    "'Local'");
  }
  if (!Has(spec, "internalTrafficPolicy") &&
      (type == "ClusterIP" || type == "NodePort" || type == "LoadBalancer")) {
    errors->Required(kSpec.Child("internalTrafficPolicy"));
  }
  Choice(kSpec, spec, "internalTrafficPolicy", {"Cluster", "Local"}, errors);
  Choice(kSpec, spec, "trafficDistribution", {"PreferClose", "PreferSameZone", "PreferSameNode"},
         errors);
}

void Affinity(const Json& spec, FieldErrors* errors) {
  OneOf(kSpec.Child("sessionAffinity"), Str(spec, "sessionAffinity"), {"ClientIP", "None"}, true,
        errors);
  if (Str(spec, "sessionAffinity") == "ClientIP") {
    const std::int64_t seconds =
        FindInt(spec, {"sessionAffinityConfig", "clientIP", "timeoutSeconds"});
    if (seconds <= 0 || seconds > 86400) {
      const Path config = kSpec.Child("sessionAffinityConfig");
      const Path client = config.Child("clientIP");
      errors->Invalid(client.Child("timeoutSeconds"), seconds,
                      "must be greater than 0 and less than 86400");
    }
  } else if (Str(spec, "sessionAffinity") == "None" && Has(spec, "sessionAffinityConfig")) {
    errors->Forbidden(kSpec.Child("sessionAffinityConfig"),
                      "must not be set when session affinity is None");
  }
}

void ExternalIps(const Json& spec, FieldErrors* errors) {
  const Path ips = kSpec.Child("externalIPs");
  std::size_t index = 0;
  for (const Json& ip : Items(spec, "externalIPs")) {
    const Path at = ips.Index(index++);
    const std::size_t before = errors->size();
    Ip(at, ip.get<std::string>(), errors);
    if (errors->size() == before) {
      NoSpecialIp(at, ip.get<std::string>(), errors);
    }
  }
}

void LoadBalancerClass(const Json& spec, const std::string& type, FieldErrors* errors) {
  if (!Has(spec, "loadBalancerClass")) {
    return;
  }
  const Path path = kSpec.Child("loadBalancerClass");
  if (type != "LoadBalancer") {
    errors->Forbidden(path, "may only be used when `type` is 'LoadBalancer'");
  } else {
    Check(path, Str(spec, "loadBalancerClass"), &IsQualifiedName, errors);
  }
}

void LoadBalancing(const Json& spec, const std::string& type, FieldErrors* errors) {
  const auto& ranges = Items(spec, "loadBalancerSourceRanges");
  const Path ranges_path = kSpec.Child("LoadBalancerSourceRanges");  // upstream's spelling
  if (!ranges.empty() && type != "LoadBalancer") {
    errors->Forbidden(ranges_path, "may only be used when `type` is 'LoadBalancer'");
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    Cidr(ranges_path.Index(i), ranges[i].get<std::string>(), errors);
  }
  if (Has(spec, "allocateLoadBalancerNodePorts") && type != "LoadBalancer") {
    errors->Forbidden(kSpec.Child("allocateLoadBalancerNodePorts"),
                      "may only be used when `type` is 'LoadBalancer'");
  }
  if (type == "LoadBalancer" && !Has(spec, "allocateLoadBalancerNodePorts")) {
    errors->Required(Path("allocateLoadBalancerNodePorts"));
  }
  LoadBalancerClass(spec, type, errors);
}

}  // namespace

namespace {

// Addresses are given before the rest is looked at: what is wrong with them is all that is said.
bool AddressesRefused(const Json& spec, FieldErrors* errors) {
  FieldErrors early;
  if (Str(spec, "type") != "ExternalName") {
    ClusterIps(spec, &early);
  }
  if (early.empty()) {
    return false;
  }
  *errors = std::move(early);
  return true;
}

}  // namespace

void Service(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const std::string type = Str(spec, "type");
  if (AddressesRefused(spec, errors)) {
    return;
  }
  ForType(spec, type, errors);
  Ports(spec, errors);
  const Path selector = kSpec.Child("selector");
  Labels(selector, Get(spec, "selector"), errors);
  Affinity(spec, errors);
  ExternalIps(spec, errors);
  OneOf(kSpec.Child("type"), type, {"ClusterIP", "ExternalName", "LoadBalancer", "NodePort"}, true,
        errors);
  NodePorts(spec, type, errors);
  LoadBalancing(spec, type, errors);
  Traffic(spec, type, errors);
}

namespace {

bool IsHeadless(const Json& spec) { return Str(spec, "clusterIP") == "None"; }

bool NeedsHealthPort(const Json& spec) {
  return Str(spec, "type") == "LoadBalancer" && Str(spec, "externalTrafficPolicy") == "Local";
}

// Addresses once given stay; a second one may come and go.
void ClusterIpsUpdate(const Json& spec, const Json& before, FieldErrors* errors) {
  const auto& now = Items(spec, "clusterIPs");
  const auto& then = Items(before, "clusterIPs");
  const Path path = kSpec.Child("clusterIPs");
  const Json& shown = Get(spec, "clusterIPs");
  if (now.size() == then.size()) {
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i] != then[i]) {
        errors->Invalid(path.Index(i), shown, "may not change once set");
      }
    }
    return;
  }
  if (now.empty()) {
    return errors->Invalid(path.Index(0), shown, "primary clusterIP can not be unset");
  }
  if (!then.empty() && now[0] != then[0]) {
    errors->Invalid(path.Index(0), shown, "may not change once set");
  }
  if (now.size() == 1 && then.size() > 1 && Str(spec, "ipFamilyPolicy") != "SingleStack") {
    errors->Invalid(kSpec.Child("ipFamilyPolicy"), Get(spec, "ipFamilyPolicy"),
                    "must be set to 'SingleStack' when releasing the secondary clusterIP");
  }
}

void FamiliesUpdate(const Json& spec, const Json& before, FieldErrors* errors) {
  const auto& now = Items(spec, "ipFamilies");
  const auto& then = Items(before, "ipFamilies");
  const Path path = kSpec.Child("ipFamilies");
  if (now.size() == then.size()) {
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i] != then[i]) {
        errors->Invalid(path.Index(0), Get(spec, "ipFamilies"), "may not change once set");
      }
    }
    return;
  }
  const bool fewer = now.size() < then.size();
  if (fewer && Items(spec, "clusterIPs").empty()) {
    errors->Invalid(path.Index(0), Get(spec, "ipFamilies"), "primary ipFamily can not be unset");
  }
  if (!now.empty() && !then.empty() && now[0] != then[0]) {
    errors->Invalid(path.Index(0), Get(spec, "clusterIPs"), "may not change once set");
  }
  if (fewer && now.size() == 1 && Str(spec, "ipFamilyPolicy") != "SingleStack") {
    errors->Invalid(kSpec.Child("ipFamilyPolicy"), Get(spec, "ipFamilyPolicy"),
                    "must be set to 'SingleStack' when releasing the secondary ipFamily");
  }
}

}  // namespace

void ServiceUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& before = Get(old, "spec");
  if (AddressesRefused(spec, errors)) {
    return;
  }
  if (Str(spec, "type") != "ExternalName" && Str(before, "type") != "ExternalName") {
    if (!IsHeadless(spec) || !IsHeadless(before)) {
      ClusterIpsUpdate(spec, before, errors);
    }
    if (!IsHeadless(spec) && !IsHeadless(before)) {
      FamiliesUpdate(spec, before, errors);
    }
  }
  const bool balanced =
      Str(spec, "type") == "LoadBalancer" && Str(before, "type") == "LoadBalancer";
  if (balanced && !SameMember(spec, before, "loadBalancerClass")) {
    errors->Invalid(kSpec.Child("loadBalancerClass"), Get(spec, "loadBalancerClass"),
                    "may not change once set");
  }
  LoadBalancerClass(spec, Str(spec, "type"), errors);
  if (NeedsHealthPort(spec) && NeedsHealthPort(before) &&
      FindInt(spec, {"healthCheckNodePort"}) != FindInt(before, {"healthCheckNodePort"})) {
    errors->Forbidden(kSpec.Child("healthCheckNodePort"), "field is immutable");
  }
  Service(object, errors);
}

void ServiceStatus(const Json& object, const Json& old, FieldErrors* errors) {
  const Path status("status");
  const Path balancer = status.Child("loadBalancer");
  const Path path = balancer.Child("ingress");
  const auto& items = Items(Get(Get(object, "status"), "loadBalancer"), "ingress");
  if (Str(Get(object, "spec"), "type") != "LoadBalancer" && !items.empty()) {
    return errors->Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'");
  }
  const auto& before = Items(Get(Get(old, "status"), "loadBalancer"), "ingress");
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Path at = path.Index(i);
    const std::string ip = Str(items[i], "ip");
    const bool known = std::any_of(before.begin(), before.end(),
                                   [&](const Json& one) { return Str(one, "ip") == ip; });
    if (!ip.empty() && !known) {
      Ip(at.Child("ip"), ip, errors);
    }
    if (!Has(items[i], "ipMode")) {
      if (!ip.empty()) {
        errors->Required(at.Child("ipMode"), "must be specified when `ip` is set");
      }
    } else if (ip.empty()) {
      errors->Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set");
    } else {
      Choice(at, items[i], "ipMode", {"Proxy", "VIP"}, errors);
    }
    if (const std::string host = Str(items[i], "hostname"); !host.empty()) {
      Check(at.Child("hostname"), host, &IsDns1123Subdomain, errors);
      if (IsIpAddress(host).empty()) {
        errors->Invalid(at.Child("hostname"), host, "must be a DNS name, not an IP address");
      }
    }
  }
}

}  // namespace sublet::kube::validate
