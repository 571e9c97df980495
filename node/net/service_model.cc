#include "node/net/service_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;

template <typename Visit>
void Each(const Json& object, std::initializer_list<std::string_view> path, Visit&& visit) {
  const Json* list = Find(object, path);
  if (list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      visit(item);
    }
  }
}

std::string Protocol(const Json& port) {
  std::string text(FindString(port, {"protocol"}, "TCP"));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(c | 0x20); });
  return text == "udp" || text == "sctp" ? text : "tcp";
}

void AddAddress(std::string_view text, std::vector<Ipv4>* out) {
  if (auto address = ParseIpv4(text);
      address.ok() && std::find(out->begin(), out->end(), *address) == out->end()) {
    out->push_back(*address);
  }
}

PolicyRule ParseRule(const Json& json, const char* peers) {
  PolicyRule rule;
  Each(json, {peers}, [&](const Json& item) {
    PolicyPeer peer;
    if (const Json* block = Find(item, {"ipBlock"})) {
      if (auto net = ParseIpv4Net(FindString(*block, {"cidr"})); net.ok()) {
        peer.block = *net;
      }
      Each(*block, {"except"}, [&](const Json& except) {
        if (except.is_string()) {
          if (auto net = ParseIpv4Net(except.get_ref<const std::string&>()); net.ok()) {
            peer.except.push_back(*net);
          }
        }
      });
    }
    const auto selector = [&](const char* member) -> std::optional<kube::LabelSelector> {
      const Json* found = Find(item, {member});
      if (found == nullptr) {
        return std::nullopt;
      }
      auto parsed = kube::LabelSelector::FromJson(found);
      return parsed.ok() ? *parsed : kube::LabelSelector::Nothing();
    };
    peer.pods = selector("podSelector");
    peer.namespaces = selector("namespaceSelector");
    rule.peers.push_back(std::move(peer));
  });
  Each(json, {"ports"}, [&](const Json& item) {
    PolicyPort port;
    port.protocol = Protocol(item);
    const Json* number = Find(item, {"port"});
    if (number != nullptr && number->is_string()) {
      port.name = number->get<std::string>();
    } else if (number != nullptr && number->is_number_integer()) {
      port.first = number->get<int>();
      port.last = static_cast<int>(FindInt(item, {"endPort"}, port.first));
    }
    rule.ports.push_back(std::move(port));
  });
  return rule;
}

}  // namespace

Labels ParseLabels(const Json& object) {
  Labels out;
  if (const Json* labels = kube::LabelsOf(object); labels != nullptr && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      if (value.is_string()) {
        out.emplace_back(key, value.get<std::string>());
      }
    }
  }
  return out;
}

ServiceView ParseService(const Json& service) {
  ServiceView view;
  view.namespace_name = kube::NamespaceOf(service);
  view.name = kube::NameOf(service);
  const std::string_view cluster_ip = FindString(service, {"spec", "clusterIP"});
  view.is_headless = cluster_ip.empty() || cluster_ip == "None" ||
                     FindString(service, {"spec", "type"}) == "ExternalName";
  AddAddress(cluster_ip, &view.addresses);
  for (const char* member : {"clusterIPs", "externalIPs"}) {
    Each(service, {"spec", member}, [&](const Json& ip) {
      if (ip.is_string()) {
        AddAddress(ip.get_ref<const std::string&>(), &view.addresses);
      }
    });
  }
  Each(service, {"status", "loadBalancer", "ingress"},
       [&](const Json& item) { AddAddress(FindString(item, {"ip"}), &view.addresses); });
  view.affinity = FindString(service, {"spec", "sessionAffinity"}) == "ClientIP";
  view.internal_local = FindString(service, {"spec", "internalTrafficPolicy"}) == "Local";
  view.external_local = FindString(service, {"spec", "externalTrafficPolicy"}) == "Local";
  Each(service, {"spec", "ports"}, [&](const Json& item) {
    ServicePort port;
    port.name = FindString(item, {"name"});
    port.protocol = Protocol(item);
    port.port = static_cast<int>(FindInt(item, {"port"}));
    port.node_port = static_cast<int>(FindInt(item, {"nodePort"}));
    view.ports.push_back(std::move(port));
  });
  return view;
}

SliceView ParseSlice(const Json& slice) {
  SliceView view;
  view.namespace_name = kube::NamespaceOf(slice);
  view.service = kube::LabelOf(slice, "kubernetes.io/service-name");
  if (FindString(slice, {"addressType"}) != "IPv4") {
    return view;
  }
  Each(slice, {"ports"}, [&](const Json& item) {
    ServicePort port;
    port.name = FindString(item, {"name"});
    port.protocol = Protocol(item);
    port.port = static_cast<int>(FindInt(item, {"port"}));
    view.ports.push_back(std::move(port));
  });
  Each(slice, {"endpoints"}, [&](const Json& item) {
    EndpointView endpoint;
    endpoint.node_name = FindString(item, {"nodeName"});
    endpoint.ready = FindBool(item, {"conditions", "ready"}, true);
    endpoint.serving = FindBool(item, {"conditions", "serving"}, endpoint.ready);
    Each(item, {"addresses"}, [&](const Json& text) {
      if (text.is_string()) {
        if (auto address = ParseIpv4(text.get_ref<const std::string&>()); address.ok()) {
          endpoint.address = *address;
          view.endpoints.push_back(endpoint);
        }
      }
    });
  });
  return view;
}

PodView ParsePodView(const Json& pod) {
  PodView view;
  view.namespace_name = kube::NamespaceOf(pod);
  view.name = kube::NameOf(pod);
  view.node_name = FindString(pod, {"spec", "nodeName"});
  view.labels = ParseLabels(pod);
  const std::string_view phase = FindString(pod, {"status", "phase"});
  if (!FindBool(pod, {"spec", "hostNetwork"}) && phase != "Succeeded" && phase != "Failed") {
    if (auto ip = ParseIpv4(FindString(pod, {"status", "podIP"})); ip.ok()) {
      view.ip = *ip;
    }
  }
  for (const char* list : {"containers", "initContainers"}) {
    Each(pod, {"spec", list}, [&](const Json& container) {
      Each(container, {"ports"}, [&](const Json& item) {
        PodView::Port port;
        port.name = FindString(item, {"name"});
        port.protocol = Protocol(item);
        port.port = static_cast<int>(FindInt(item, {"containerPort"}));
        port.host_port = static_cast<int>(FindInt(item, {"hostPort"}));
        if (auto ip = ParseIpv4(FindString(item, {"hostIP"})); ip.ok()) {
          port.host_ip = *ip;
        }
        view.ports.push_back(std::move(port));
      });
    });
  }
  return view;
}

PolicyView ParsePolicy(const Json& policy) {
  PolicyView view;
  view.namespace_name = kube::NamespaceOf(policy);
  view.name = kube::NameOf(policy);
  static const Json kAll = Json::object();
  const Json* selector = Find(policy, {"spec", "podSelector"});
  auto parsed = kube::LabelSelector::FromJson(selector != nullptr ? selector : &kAll);
  view.pods = parsed.ok() ? *parsed : kube::LabelSelector::Nothing();
  Each(policy, {"spec", "ingress"},
       [&](const Json& rule) { view.ingress.push_back(ParseRule(rule, "from")); });
  Each(policy, {"spec", "egress"},
       [&](const Json& rule) { view.egress.push_back(ParseRule(rule, "to")); });
  bool named = false;
  Each(policy, {"spec", "policyTypes"}, [&](const Json& type) {
    named = true;
    view.isolates_ingress = view.isolates_ingress || type == "Ingress";
    view.isolates_egress = view.isolates_egress || type == "Egress";
  });
  if (!named) {
    view.isolates_ingress = true;
    view.isolates_egress = !view.egress.empty();
  }
  return view;
}

}  // namespace sublet::node
