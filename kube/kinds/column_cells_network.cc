#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/column_cells.h"
#include "kube/label_selector.h"
#include "kube/object.h"

namespace sublet::kube::cells {
namespace {

std::string JoinList(const Json& list) {
  std::string out;
  for (const Json& one : list) {
    if (one.is_string()) {
      out.append(out.empty() ? "" : ",").append(one.get_ref<const std::string&>());
    }
  }
  return out;
}

std::string LoadBalancer(const Json& object) {
  std::set<std::string> names;
  for (const Json& ingress : List(object, {"status", "loadBalancer", "ingress"})) {
    const std::string ip = Text(ingress, {"ip"});
    names.insert(ip.empty() ? Text(ingress, {"hostname"}) : ip);
  }
  names.erase("");
  std::string out;
  for (const std::string& name : names) {
    out.append(out.empty() ? "" : ",").append(name);
  }
  return out;
}

std::string ExternalIp(const Json& service) {
  const std::string type = Text(service, {"spec", "type"});
  const std::string own = JoinList(List(service, {"spec", "externalIPs"}));
  if (type == "ClusterIP" || type == "NodePort") {
    return own.empty() ? "<none>" : own;
  }
  if (type == "LoadBalancer") {
    const std::string balancer = LoadBalancer(service);
    if (!own.empty()) {
      return balancer.empty() ? own : balancer + "," + own;
    }
    return balancer.empty() ? "<pending>" : balancer;
  }
  return type == "ExternalName" ? Text(service, {"spec", "externalName"}) : "<unknown>";
}

std::string Ports(const Json& service) {
  std::string out;
  for (const Json& port : List(service, {"spec", "ports"})) {
    const std::int64_t node_port = FindInt(port, {"nodePort"});
    out.append(out.empty() ? "" : ",").append(std::to_string(FindInt(port, {"port"})));
    if (node_port > 0) {
      out.append(":").append(std::to_string(node_port));
    }
    out.append("/").append(Text(port, {"protocol"}));
  }
  return out.empty() ? "<none>" : out;
}

constexpr std::size_t kShownMax = 3;

// "10.0.0.1:80", an IPv6 address in brackets.
std::string HostPort(const std::string& ip, std::int64_t port) {
  const std::string host = ip.find(':') == std::string::npos ? ip : "[" + ip + "]";
  return host + ":" + std::to_string(port);
}

struct Limited {
  std::string list;
  std::size_t shown = 0;
  std::size_t count = 0;

  void Add(const std::string& one) {
    ++count;
    if (shown < kShownMax) {
      list.append(list.empty() ? "" : ",").append(one);
      ++shown;
    }
  }
  std::string Finish(std::string_view none) const {
    if (count == 0) {
      return std::string(none);
    }
    return Shortened(list, count > kShownMax, count, kShownMax);
  }
};

}  // namespace

Json Service(const Json& object, WallTime now) {
  const Json& ips = List(object, {"spec", "clusterIPs"});
  return Json::array({NameText(object), Text(object, {"spec", "type"}),
                      ips.empty() ? "<none>" : ips.front().get<std::string>(), ExternalIp(object),
                      Ports(object), Age(object, now), Labels(Find(object, {"spec", "selector"}))});
}

Json Endpoints(const Json& object, WallTime now) {
  Limited shown;
  const Json& subsets = List(object, {"subsets"});
  for (const Json& subset : subsets) {
    const Json& ports = List(subset, {"ports"});
    for (const Json& address : List(subset, {"addresses"})) {
      if (ports.empty()) {
        shown.Add(Text(address, {"ip"}));
      }
    }
    for (const Json& port : ports) {
      for (const Json& address : List(subset, {"addresses"})) {
        shown.Add(HostPort(Text(address, {"ip"}), FindInt(port, {"port"})));
      }
    }
  }
  return Json::array(
      {NameText(object), subsets.empty() ? "<none>" : shown.Finish(""), Age(object, now)});
}

Json EndpointSlice(const Json& object, WallTime now) {
  Limited ports;
  for (const Json& port : List(object, {"ports"})) {
    const Json* number = Find(port, {"port"});
    const Json* name = Find(port, {"name"});
    ports.Add(number != nullptr ? std::to_string(number->get<std::int64_t>())
              : name != nullptr ? name->get<std::string>()
                                : "*");
  }
  Limited addresses;
  for (const Json& endpoint : List(object, {"endpoints"})) {
    for (const Json& address : List(endpoint, {"addresses"})) {
      addresses.Add(address.get<std::string>());
    }
  }
  return Json::array({NameText(object), Text(object, {"addressType"}), ports.Finish("<unset>"),
                      addresses.Finish("<unset>"), Age(object, now)});
}

Json Ingress(const Json& object, WallTime now) {
  const Json& rules = List(object, {"spec", "rules"});
  std::string hosts;
  std::size_t shown = 0;
  bool more = false;
  for (const Json& rule : rules) {
    more |= shown == kShownMax;
    const std::string host = Text(rule, {"host"});
    if (!more && !host.empty()) {
      hosts.append(hosts.empty() ? "" : ",").append(host);
      ++shown;
    }
  }
  hosts = hosts.empty() ? "*" : Shortened(std::move(hosts), more, rules.size(), kShownMax);
  return Json::array({NameText(object), Text(object, {"spec", "ingressClassName"}, "<none>"), hosts,
                      LoadBalancer(object),
                      List(object, {"spec", "tls"}).empty() ? "80" : "80, 443", Age(object, now)});
}

Json IngressClass(const Json& object, WallTime now) {
  std::string name = NameText(object);
  if (AnnotationOf(object, "ingressclass.kubernetes.io/is-default-class") == "true") {
    name += " (default)";
  }
  std::string parameters = "<none>";
  if (const Json* reference = Find(object, {"spec", "parameters"})) {
    parameters = Text(*reference, {"kind"});
    if (const Json* group = Find(*reference, {"apiGroup"})) {
      parameters += "." + group->get<std::string>();
    }
    parameters += "/" + Text(*reference, {"name"});
  }
  return Json::array({name, Text(object, {"spec", "controller"}), parameters, Age(object, now)});
}

Json NetworkPolicy(const Json& object, WallTime now) {
  return Json::array({NameText(object), FormatLabelSelector(Find(object, {"spec", "podSelector"})),
                      Age(object, now)});
}

Json ServiceCidr(const Json& object, WallTime now) {
  return Json::array(
      {NameText(object), JoinList(List(object, {"spec", "cidrs"})), Age(object, now)});
}

Json IpAddress(const Json& object, WallTime now) {
  std::string parent = "<none>";
  if (const Json* reference = Find(object, {"spec", "parentRef"})) {
    const std::string group = Text(*reference, {"group"});
    const std::string space = Text(*reference, {"namespace"});
    parent = Text(*reference, {"resource"}) + (group.empty() ? "" : "." + group);
    parent += (space.empty() ? "" : "/" + space) + "/" + Text(*reference, {"name"});
  }
  return Json::array({NameText(object), parent, Age(object, now)});
}

}  // namespace sublet::kube::cells
