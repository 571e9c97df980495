#include "node/net/rules.h"

#include <algorithm>
#include <map>
#include <set>

namespace sublet::node {
namespace {

constexpr int kAffinityBuckets = 64;

std::uint64_t Hash(std::string_view text) {
  std::uint64_t hash = 1469598103934665603ull;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  hash ^= hash >> 32;
  return hash * 0x9E3779B97F4A7C15ull;
}

struct Target {
  Ipv4 address = 0;
  int port = 0;
  std::string node_name;
  auto operator<=>(const Target&) const = default;
};

std::string Elements(const std::string& name, const std::string& type,
                     const std::vector<std::string>& items, const char* kind,
                     const char* flags = "") {
  std::string out = std::string("  ") + kind + " " + name + " { type " + type + ";";
  out += flags;
  if (!items.empty()) {
    out += " elements = { ";
    for (std::size_t i = 0; i < items.size(); ++i) {
      out += (i == 0 ? "" : ", ") + items[i];
    }
    out += " };";
  }
  return out + " }\n";
}

class RulesBuilder {
 public:
  explicit RulesBuilder(const RulesInput& input) : input_(input) {
    for (const SliceView& slice : input.slices) {
      by_service_[{slice.namespace_name, slice.service}].push_back(&slice);
    }
  }

  std::string Run() {
    for (const ServiceView& service : input_.services) {
      for (const ServicePort& port : service.ports) {
        AddPort(service, port);
      }
    }
    AddHostPorts();
    for (const PodView& pod : input_.pods) {
      if (pod.ip != 0 && input_.pod_net.Contains(pod.ip)) {
        local_.insert(pod.ip);
      }
    }
    return Text();
  }

 private:
  std::vector<Target> TargetsOf(const ServiceView& service, const ServicePort& port,
                                bool local) const {
    const auto it = by_service_.find({service.namespace_name, service.name});
    std::set<Target> ready;
    std::set<Target> ending;  // used only when nobody is ready
    if (it != by_service_.end()) {
      for (const SliceView* slice : it->second) {
        for (const ServicePort& candidate : slice->ports) {
          if (candidate.name != port.name || candidate.protocol != port.protocol ||
              candidate.port == 0) {
            continue;
          }
          for (const EndpointView& endpoint : slice->endpoints) {
            if (local && endpoint.node_name != input_.node_name) {
              continue;
            }
            Target target{endpoint.address, candidate.port, endpoint.node_name};
            if (endpoint.ready) {
              ready.insert(target);
            } else if (endpoint.serving) {
              ending.insert(target);
            }
          }
        }
      }
    }
    const auto& chosen = ready.empty() ? ending : ready;
    return {chosen.begin(), chosen.end()};
  }

  static std::string Dnat(const std::vector<Target>& targets, bool affinity,
                          const std::string& protocol) {
    const auto text = [](const Target& target) {
      return FormatIpv4(target.address) + " . " + std::to_string(target.port);
    };
    std::string rule = "meta l4proto " + protocol + " dnat to ";
    if (targets.size() == 1) {
      return rule + FormatIpv4(targets[0].address) + ":" + std::to_string(targets[0].port);
    }
    std::string map;
    if (affinity) {
      for (int bucket = 0; bucket < kAffinityBuckets; ++bucket) {
        const Target* best = nullptr;
        std::uint64_t best_weight = 0;
        for (const Target& target : targets) {
          const std::uint64_t weight = Hash(text(target) + "#" + std::to_string(bucket));
          if (best == nullptr || weight > best_weight) {
            best = &target;
            best_weight = weight;
          }
        }
        map += (bucket == 0 ? "" : ", ") + std::to_string(bucket) + " : " + text(*best);
      }
      return rule + "jhash ip saddr mod " + std::to_string(kAffinityBuckets) +
             " seed 0x5b1e7 map { " + map + " }";
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      map += (i == 0 ? "" : ", ") + std::to_string(i) + " : " + text(targets[i]);
    }
    return rule + "numgen random mod " + std::to_string(targets.size()) + " map { " + map + " }";
  }

  void AddPort(const ServiceView& service, const ServicePort& port) {
    if (service.is_headless || port.port == 0) {
      return;
    }
    const std::string id = service.namespace_name + "/" + service.name + ":" + port.name + "/" +
                           port.protocol + "/" + std::to_string(port.port);
    const std::vector<Target> targets = TargetsOf(service, port, service.internal_local);
    for (const Ipv4 address : service.addresses) {
      const std::string key =
          FormatIpv4(address) + " . " + port.protocol + " . " + std::to_string(port.port);
      if (!seen_.insert(key).second) {
        continue;  // two Services with one external address: the first in order has it
      }
      if (targets.empty()) {
        refused_.push_back(key);
      } else {
        services_.push_back(key + " : goto " + ChainName('s', id));
      }
    }
    if (!targets.empty()) {
      chains_ += "  chain " + ChainName('s', id) + " { " +
                 Dnat(targets, service.affinity, port.protocol) + "; }\n";
    }
    if (port.node_port == 0) {
      return;
    }
    const std::string key = port.protocol + " . " + std::to_string(port.node_port);
    if (!seen_.insert(key).second) {
      return;
    }
    const std::vector<Target> outside = TargetsOf(service, port, service.external_local);
    if (outside.empty()) {
      refused_ports_.push_back(key);
      return;
    }
    node_ports_.push_back(key + " : goto " + ChainName('n', id));
    chains_ += "  chain " + ChainName('n', id) + " { " +
               Dnat(outside, service.affinity, port.protocol) + "; }\n";
  }

  void AddHostPorts() {
    for (const PodView& pod : input_.pods) {
      if (pod.node_name != input_.node_name || pod.ip == 0) {
        continue;
      }
      for (const PodView::Port& port : pod.ports) {
        const std::string key = port.protocol + " . " + std::to_string(port.host_port);
        if (port.host_port == 0 || !seen_.insert(key + FormatIpv4(port.host_ip)).second) {
          continue;
        }
        const std::string to = FormatIpv4(pod.ip) + ":" + std::to_string(port.port);
        host_ports_ += "    fib daddr type local ";
        if (port.host_ip != 0) {
          host_ports_ += "ip daddr " + FormatIpv4(port.host_ip) + " ";
        }
        host_ports_ +=
            port.protocol + " dport " + std::to_string(port.host_port) + " dnat to " + to + ";\n";
      }
    }
  }

  std::string Nat(const char* name, const char* hook, const char* priority) const {
    return std::string("  chain ") + name + " { type nat hook " + hook + " priority " + priority +
           ";\n    ip daddr . meta l4proto . th dport vmap @services;\n" + host_ports_ +
           "    fib daddr type local meta l4proto . th dport vmap @node_ports;\n  }\n";
  }

  std::string Refuse(const char* name, const char* hook) const {
    std::string out =
        std::string("  chain ") + name + " { type filter hook " + hook +
        " priority filter - 10;\n    ip daddr . meta l4proto . th dport @refused jump "
        "refuse;\n";
    if (std::string_view(hook) == "input") {
      out += "    fib daddr type local meta l4proto . th dport @refused_ports jump refuse;\n";
    } else if (input_.service_net.prefix > 0) {
      // A valid address was translated before this hook.
      out += "    ip daddr " + input_.service_net.Text() + " jump refuse;\n";
    }
    return out + "  }\n";
  }

  std::string Text() const {
    const std::string veths = "\"" + input_.veth_prefix + "*\"";
    const std::string pod_net = input_.pod_net.Text();
    const std::string gateway = FormatIpv4(input_.gateway);
    std::vector<std::string> own;
    for (const Ipv4 ip : local_) {
      own.push_back(FormatIpv4(ip) + " . " + FormatIpv4(ip));
    }
    std::string out = "add table ip " + input_.table + "\ndelete table ip " + input_.table +
                      "\ntable ip " + input_.table + " {\n";
    out += chains_;
    out +=
        Elements("services", "ipv4_addr . inet_proto . inet_service : verdict", services_, "map");
    out += Elements("node_ports", "inet_proto . inet_service : verdict", node_ports_, "map");
    out += Elements("refused", "ipv4_addr . inet_proto . inet_service", refused_, "set");
    out += Elements("refused_ports", "inet_proto . inet_service", refused_ports_, "set");
    out += Elements("itself", "ipv4_addr . ipv4_addr", own, "set");
    out +=
        "  chain refuse { meta l4proto tcp reject with tcp reset; reject with icmp type "
        "port-unreachable; }\n";
    out += Nat("prerouting", "prerouting", "dstnat - 5");
    out += Nat("output", "output", "-105");
    out += Refuse("refuse_forward", "forward") + Refuse("refuse_output", "output") +
           Refuse("refuse_input", "input");
    // The machine's loopback listeners stay out of the pods' reach although route_localnet is on.
    out += "  chain guard { type filter hook prerouting priority raw;\n    iifname " + veths +
           " ip daddr 127.0.0.0/8 drop;\n    iifname " + veths + " ip saddr != " + pod_net +
           " drop;\n  }\n";
    out +=
        "  chain postrouting { type nat hook postrouting priority srcnat - 5;\n"
        "    ct status dnat ip saddr . ip daddr @itself snat to " +
        gateway +
        ";\n"
        "    ct status dnat ip saddr 127.0.0.0/8 oifname " +
        veths + " snat to " + gateway +
        ";\n"
        "    ip saddr " +
        pod_net + " ip daddr != " + pod_net + " oifname != " + veths + " masquerade;\n  }\n";
    out += MakePolicyRules(input_);
    return out + "}\n";
  }

  const RulesInput& input_;
  std::map<std::pair<std::string, std::string>, std::vector<const SliceView*>> by_service_;
  std::set<std::string> seen_;
  std::vector<std::string> services_;
  std::vector<std::string> node_ports_;
  std::vector<std::string> refused_;
  std::vector<std::string> refused_ports_;
  std::string host_ports_;
  std::string chains_;
  std::set<Ipv4> local_;
};

}  // namespace

std::string ChainName(char kind, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::uint64_t hash = Hash(text);
  std::string name(1, kind);
  for (int i = 0; i < 16; ++i, hash >>= 4) {
    name += kHex[hash & 15];
  }
  return name;
}

std::string MakeRules(const RulesInput& input) { return RulesBuilder(input).Run(); }

}  // namespace sublet::node
