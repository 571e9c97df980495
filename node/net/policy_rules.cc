// NetworkPolicies as nft rules: a chain per isolated pod and direction that accepts what a policy
// allows and drops the rest. Accepting in the egress hook leaves the ingress hook to decide as
// well, since they are base chains of their own.
#include <algorithm>
#include <map>
#include <set>

#include "node/net/rules.h"

namespace sublet::node {
namespace {

const std::string* FindLabel(const Labels& labels, const std::string& key) {
  const auto it = std::lower_bound(
      labels.begin(), labels.end(), key,
      [](const auto& item, const std::string& wanted) { return item.first < wanted; });
  return it != labels.end() && it->first == key ? &it->second : nullptr;
}

bool Matches(const kube::LabelSelector& selector, const Labels& labels) {
  return selector.MatchesWith([&](const std::string& key) { return FindLabel(labels, key); });
}

std::string Set(const std::set<Ipv4>& addresses) {
  std::string out = "{ ";
  for (const Ipv4 address : addresses) {
    out += (out.size() > 2 ? ", " : "") + FormatIpv4(address);
  }
  return out + " }";
}

class PolicyBuilder {
 public:
  explicit PolicyBuilder(const RulesInput& input) : input_(input), pods_(input.pods) {
    for (const auto& item : input.namespaces) {
      namespaces_[item.name] = &item.labels;
    }
    // The cluster's DNS server runs inside the agent. For policies it is what people expect to
    // find: a pod of kube-system labelled k8s-app=kube-dns.
    PodView dns;
    dns.namespace_name = "kube-system";
    dns.name = "kube-dns";
    dns.ip = input.gateway;
    dns.labels = {{"k8s-app", "kube-dns"}};
    dns.ports = {{"dns", "udp", 53, 0, 0}, {"dns-tcp", "tcp", 53, 0, 0}};
    pods_.push_back(std::move(dns));
  }

  std::string Run() {
    std::string chains;
    std::string ingress;
    std::string egress;
    for (const PodView& pod : input_.pods) {
      if (pod.ip == 0 || pod.node_name != input_.node_name || !input_.pod_net.Contains(pod.ip)) {
        continue;
      }
      Isolate(pod, true, &chains, &ingress);
      Isolate(pod, false, &chains, &egress);
    }
    const std::string veths = "\"" + input_.veth_prefix + "*\"";
    std::string out = chains;
    out += Map("isolated_to", ingress) + Map("isolated_from", egress);
    const auto base = [&](const char* name, const char* hook, const char* priority,
                          const std::string& rule) {
      out += std::string("  chain ") + name + " { type filter hook " + hook + " priority " +
             priority +
             ";\n    ct state established,related accept;\n"
             "    ip saddr . ip daddr @itself accept;\n    " +
             rule + ";\n  }\n";
    };
    base("egress", "forward", "filter - 2", "iifname " + veths + " ip saddr vmap @isolated_from");
    base("egress_here", "input", "filter - 2",
         "iifname " + veths + " ip saddr vmap @isolated_from");
    base("ingress", "forward", "filter - 1", "oifname " + veths + " ip daddr vmap @isolated_to");
    return out;
  }

 private:
  static std::string Map(const std::string& name, const std::string& elements) {
    return "  map " + name + " { type ipv4_addr : verdict;" +
           (elements.empty() ? "" : " elements = { " + elements + " };") + " }\n";
  }

  void Isolate(const PodView& pod, bool ingress, std::string* chains, std::string* elements) {
    std::string rules;
    bool isolated = false;
    for (const PolicyView& policy : input_.policies) {
      if (policy.namespace_name != pod.namespace_name || !Matches(policy.pods, pod.labels) ||
          !(ingress ? policy.isolates_ingress : policy.isolates_egress)) {
        continue;
      }
      isolated = true;
      for (const PolicyRule& rule : ingress ? policy.ingress : policy.egress) {
        rules += Rule(policy, rule, pod, ingress);
      }
    }
    if (!isolated) {
      return;
    }
    const std::string name = ChainName(ingress ? 'i' : 'e', pod.namespace_name + "/" + pod.name);
    *chains += "  chain " + name + " {\n" + rules + "    drop;\n  }\n";
    *elements += (elements->empty() ? "" : ", ") + FormatIpv4(pod.ip) + " : goto " + name;
  }

  // The pods that a peer selects.
  std::vector<const PodView*> Selected(const PolicyView& policy, const PolicyPeer& peer) const {
    std::vector<const PodView*> out;
    for (const PodView& pod : pods_) {
      if (pod.ip == 0) {
        continue;
      }
      if (peer.namespaces) {
        const auto it = namespaces_.find(pod.namespace_name);
        if (it == namespaces_.end() || !Matches(*peer.namespaces, *it->second)) {
          continue;
        }
      } else if (pod.namespace_name != policy.namespace_name) {
        continue;
      }
      if (!peer.pods || Matches(*peer.pods, pod.labels)) {
        out.push_back(&pod);
      }
    }
    return out;
  }

  std::string Rule(const PolicyView& policy, const PolicyRule& rule, const PodView& pod,
                   bool ingress) const {
    const std::string side = ingress ? "ip saddr " : "ip daddr ";
    std::string out;
    if (rule.peers.empty()) {
      std::vector<const PodView*> others;
      for (const PodView& other : pods_) {
        if (other.ip != 0) {
          others.push_back(&other);
        }
      }
      return Ports(rule, "", ingress ? std::vector<const PodView*>{&pod} : others, ingress);
    }
    for (const PolicyPeer& peer : rule.peers) {
      if (peer.block) {
        std::string match = side + peer.block->Text() + " ";
        for (const Ipv4Net& except : peer.except) {
          match += side + "!= " + except.Text() + " ";
        }
        out += Ports(rule, match,
                     ingress ? std::vector<const PodView*>{&pod} : std::vector<const PodView*>{},
                     ingress);
        continue;
      }
      const auto selected = Selected(policy, peer);
      std::set<Ipv4> addresses;
      for (const PodView* other : selected) {
        addresses.insert(other->ip);
      }
      if (!addresses.empty()) {
        out += Ports(rule, side + Set(addresses) + " ",
                     ingress ? std::vector<const PodView*>{&pod} : selected, ingress);
      }
    }
    return out;
  }

  // `destinations` are the pods whose ports a name can mean.
  static std::string Ports(const PolicyRule& rule, const std::string& match,
                           const std::vector<const PodView*>& destinations, bool ingress) {
    if (rule.ports.empty()) {
      return "    " + match + "accept;\n";
    }
    std::string out;
    for (const PolicyPort& port : rule.ports) {
      if (port.name.empty() && port.first == 0) {
        out += "    " + match + "meta l4proto " + port.protocol + " accept;\n";
      } else if (port.name.empty()) {
        out += "    " + match + port.protocol + " dport " + std::to_string(port.first);
        out += port.last > port.first ? "-" + std::to_string(port.last) : "";
        out += " accept;\n";
      } else {
        for (const PodView* pod : destinations) {
          for (const PodView::Port& own : pod->ports) {
            if (own.name == port.name && own.protocol == port.protocol) {
              // For egress the number holds for this destination only.
              const std::string where = ingress ? match : "ip daddr " + FormatIpv4(pod->ip) + " ";
              out += "    " + where + port.protocol + " dport " + std::to_string(own.port) +
                     " accept;\n";
            }
          }
        }
      }
    }
    return out;
  }

  const RulesInput& input_;
  std::vector<PodView> pods_;
  std::map<std::string, const Labels*> namespaces_;
};

}  // namespace

std::string MakePolicyRules(const RulesInput& input) { return PolicyBuilder(input).Run(); }

}  // namespace sublet::node
