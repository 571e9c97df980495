#include "node/pod_admission.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::node {
namespace {

using kube::Json;

// Amounts as a kubelet prints them: whole numbers, thousandths for cpu.
std::string Number(const std::string& resource, const kube::Quantity& amount) {
  return std::to_string(resource == "cpu" ? amount.MilliValue() : amount.Value());
}

Rejection Short(const std::string& resource, const std::string& wanted, const std::string& used,
                const std::string& capacity) {
  return {"OutOf" + resource, "Node didn't have enough resource: " + resource + ", requested: " +
                                  wanted + ", used: " + used + ", capacity: " + capacity};
}

Rejection Failed(const std::string& predicate, const std::string& why) {
  return {predicate, "Predicate " + predicate + " failed: " + why};
}

void ReadPorts(const Json& pod, const char* list, std::vector<HostPort>* out) {
  const Json* containers = kube::Find(pod, {"spec", list});
  for (const Json& container :
       containers != nullptr && containers->is_array() ? *containers : Json::array()) {
    const Json* ports = kube::Find(container, {"ports"});
    for (const Json& port : ports != nullptr && ports->is_array() ? *ports : Json::array()) {
      if (const std::int64_t number = kube::FindInt(port, {"hostPort"}); number > 0) {
        const std::string_view ip = kube::FindString(port, {"hostIP"});
        out->push_back({std::string(kube::FindString(port, {"protocol"}, "TCP")) + "/" +
                            std::to_string(number),
                        ip.empty() ? "0.0.0.0" : std::string(ip)});
      }
    }
  }
}

bool Clash(const HostPort& a, const HostPort& b) {
  return a.port == b.port && (a.ip == b.ip || a.ip == "0.0.0.0" || b.ip == "0.0.0.0");
}

}  // namespace

PodDemand ReadPodDemand(const Json& pod) {
  PodDemand out;
  out.requests = kube::PodAmounts(pod, "requests");
  ReadPorts(pod, "containers", &out.host_ports);
  Json placement = Json::object();
  if (const Json* selector = kube::Find(pod, {"spec", "nodeSelector"});
      selector != nullptr && !selector->empty()) {
    placement["nodeSelector"] = *selector;
  }
  if (const Json* affinity = kube::Find(pod, {"spec", "affinity", "nodeAffinity"});
      affinity != nullptr) {
    placement["affinity"]["nodeAffinity"] = *affinity;
  }
  if (!placement.empty()) {
    out.placement = kube::Dump(placement);
  }
  if (const Json* tolerations = kube::Find(pod, {"spec", "tolerations"}); tolerations != nullptr) {
    out.tolerations = kube::Dump(*tolerations);
  }
  return out;
}

NodeOffer ReadNodeOffer(const Json& node) {
  NodeOffer out;
  out.name = kube::NameOf(node);
  if (const Json* labels = kube::Find(node, {"metadata", "labels"});
      labels != nullptr && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      out.labels.emplace_back(key, value.is_string() ? value.get<std::string>() : "");
    }
  }
  for (kube::Taint& taint : kube::TaintsOf(node)) {
    if (taint.effect == "NoExecute") {
      out.evicting.push_back(std::move(taint));
    }
  }
  out.allocatable = kube::AmountsOf(kube::Find(node, {"status", "allocatable"}));
  return out;
}

std::optional<Rejection> PodAdmission::Admit(const std::string& uid, const PodDemand& pod,
                                             const NodeOffer& node, bool runs_already) {
  if (held_.contains(uid)) {
    return std::nullopt;
  }
  if (!runs_already) {
    if (auto rejection = Judge(pod, node)) {
      return rejection;
    }
  }
  for (const auto& [name, amount] : pod.requests) {
    used_[name] += amount;
  }
  held_.emplace(uid, Held{pod.requests, pod.host_ports});
  return std::nullopt;
}

void PodAdmission::Release(const std::string& uid) {
  const auto found = held_.find(uid);
  if (found == held_.end()) {
    return;
  }
  for (const auto& [name, amount] : found->second.requests) {
    used_[name] -= amount;
  }
  held_.erase(found);
}

bool PodAdmission::PortsFree(const PodDemand& pod) const {
  return pod.host_ports.empty() || std::none_of(held_.begin(), held_.end(), [&](const auto& entry) {
           return std::any_of(entry.second.host_ports.begin(), entry.second.host_ports.end(),
                              [&](const HostPort& taken) {
                                return std::any_of(
                                    pod.host_ports.begin(), pod.host_ports.end(),
                                    [&](const HostPort& wanted) { return Clash(taken, wanted); });
                              });
         });
}

// In kubelet's order: resources, the number of pods first, then labels, ports, taints.
std::optional<Rejection> PodAdmission::Judge(const PodDemand& pod, const NodeOffer& node) const {
  const auto of = [](const kube::ResourceAmounts& amounts, const std::string& name) {
    const auto found = amounts.find(name);
    return found != amounts.end() ? found->second : kube::Quantity();
  };
  if (const auto most = node.allocatable.find("pods");
      most != node.allocatable.end() &&
      kube::Quantity::FromInt(static_cast<std::int64_t>(held_.size()) + 1) > most->second) {
    return Short("pods", "1", std::to_string(held_.size()), Number("pods", most->second));
  }
  for (const auto& [name, wanted] : pod.requests) {
    const kube::Quantity capacity = of(node.allocatable, name);
    const kube::Quantity used = of(used_, name);
    if (wanted.Sign() > 0 && used + wanted > capacity) {
      return Short(name, Number(name, wanted), Number(name, used), Number(name, capacity));
    }
  }
  if (!pod.placement.empty()) {
    const auto spec = kube::ParseJson(pod.placement);
    if (!spec.ok() || !kube::MatchesNodeAffinity(*spec, node.name, node.labels)) {
      return Failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
  }
  if (!PortsFree(pod)) {
    return Failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
  }
  if (!node.evicting.empty()) {
    const auto tolerations = kube::ParseJson(pod.tolerations.empty() ? "[]" : pod.tolerations);
    for (const kube::Taint& taint : node.evicting) {
      if (!tolerations.ok() || !kube::AnyTolerates(*tolerations, taint)) {
        return Failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
      }
    }
  }
  return std::nullopt;
}

}  // namespace sublet::node
