#include "scheduler/pod_filters.h"

#include <algorithm>
#include <climits>
#include <set>

#include "scheduler/filters.h"

namespace sublet::scheduler {

namespace {

bool InNamespaces(const State& state, const PodAffinityTerm& term, const std::string& ns) {
  if (term.all_namespaces ||
      std::find(term.namespaces.begin(), term.namespaces.end(), ns) != term.namespaces.end()) {
    return true;
  }
  if (!term.selects_namespaces) {
    return false;
  }
  const auto it = state.namespaces.find(ns);
  return it != state.namespaces.end() && Matches(term.namespace_selector, it->second.labels);
}

bool TermSelects(const State& state, const PodAffinityTerm& term, const Task& pod) {
  return !term.selects_nothing && InNamespaces(state, term, pod.ns) &&
         Matches(term.selector, *pod.labels);
}

// True for pods that are there or will be, on this placement.
bool Counts(const State& state, TaskId id, NodeId node) {
  for (const Placement& placement : state.task(id).placements) {
    if (placement.node == node && placement.status != Status::kReleasing) {
      return true;
    }
  }
  return false;
}

// True for those, and for pods that are leaving: until they are gone, what they keep away stays away
// and their ports are taken. So do KAI, in its simulations too, and kube-scheduler.
bool IsThere(const State& state, TaskId id, NodeId node) {
  const auto& placements = state.task(id).placements;
  return std::any_of(placements.begin(), placements.end(),
                     [&](const Placement& placement) { return placement.node == node; });
}

template <typename F>
bool AnyPodInDomain(const State& state, const std::string& key, const std::string& value,
                    TaskId self, F matches) {
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    if (!state.hot[i].present) {
      continue;
    }
    const std::string* have = FindLabel(state.nodes[i].spec.labels, key);
    if (have == nullptr || *have != value) {
      continue;
    }
    for (TaskId id : state.nodes[i].tasks) {
      if (id != self && IsThere(state, id, static_cast<NodeId>(i)) && matches(state.task(id))) {
        return true;
      }
    }
  }
  return false;
}

template <typename F>
bool AnyPodAnywhere(const State& state, TaskId self, F matches) {
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    for (TaskId id : state.nodes[i].tasks) {
      if (id != self && IsThere(state, id, static_cast<NodeId>(i)) && matches(state.task(id))) {
        return true;
      }
    }
  }
  return false;
}

bool PortsClash(const HostPort& a, const HostPort& b) {
  const auto any = [](const std::string& ip) { return ip.empty() || ip == "0.0.0.0"; };
  return a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || any(a.ip) || any(b.ip));
}

bool PortsFree(const State& state, const Task& task, TaskId self, NodeId node) {
  for (TaskId id : state.nodes[static_cast<std::size_t>(node)].tasks) {
    if (id == self || !IsThere(state, id, node)) {
      continue;
    }
    for (const HostPort& taken : state.task(id).shape->constraints.ports) {
      for (const HostPort& wanted : task.shape->constraints.ports) {
        if (PortsClash(taken, wanted)) {
          return false;
        }
      }
    }
  }
  return true;
}

std::string AffinityReason(const State& state, const Task& task, TaskId self, NodeId id) {
  const Constraints& own = task.shape->constraints;
  const NodeSpec& node = state.nodes[static_cast<std::size_t>(id)].spec;
  for (const PodAffinityTerm& term : own.affinity) {
    const std::string* value = FindLabel(node.labels, term.topology_key);
    const auto selects = [&](const Task& pod) { return TermSelects(state, term, pod); };
    bool holds =
        value != nullptr && AnyPodInDomain(state, term.topology_key, *value, self, selects);
    // The first pod of a set that wants to be near itself may go anywhere.
    if (!holds && value != nullptr && TermSelects(state, term, task) &&
        !AnyPodAnywhere(state, self, [&](const Task& pod) {
          return std::all_of(own.affinity.begin(), own.affinity.end(),
                             [&](const auto& each) { return TermSelects(state, each, pod); });
        })) {
      holds = true;
    }
    if (!holds) {
      return "node(s) didn't match pod affinity rules";
    }
  }
  for (const PodAffinityTerm& term : own.anti_affinity) {
    const std::string* value = FindLabel(node.labels, term.topology_key);
    if (value != nullptr &&
        AnyPodInDomain(state, term.topology_key, *value, self,
                       [&](const Task& pod) { return TermSelects(state, term, pod); })) {
      return "node(s) didn't match pod anti-affinity rules";
    }
  }
  return "";
}

// Anti-affinity of the pods already there against this one.
std::string ExistingReason(const State& state, const Task& task, TaskId self, NodeId id) {
  if (state.constrained_tasks == 0) {
    return "";
  }
  const NodeSpec& node = state.nodes[static_cast<std::size_t>(id)].spec;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    if (state.nodes[i].placed_constraints == 0) {
      continue;
    }
    for (TaskId other : state.nodes[i].tasks) {
      const Task& pod = state.task(other);
      if (other == self || pod.shape->constraints.anti_affinity.empty() ||
          !IsThere(state, other, static_cast<NodeId>(i))) {
        continue;
      }
      for (const PodAffinityTerm& term : pod.shape->constraints.anti_affinity) {
        const std::string* there = FindLabel(state.nodes[i].spec.labels, term.topology_key);
        const std::string* here = FindLabel(node.labels, term.topology_key);
        if (there != nullptr && here != nullptr && *there == *here &&
            TermSelects(state, term, task)) {
          return "node(s) didn't satisfy existing pods anti-affinity rules";
        }
      }
    }
  }
  return "";
}

// Matching pods per value of the constraint's topology key, over the nodes that count.
std::map<std::string, int> DomainCounts(const State& state, const Task& task, TaskId self,
                                        const SpreadConstraint& spread) {
  std::map<std::string, int> counts;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    if (!state.hot[i].present) {
      continue;
    }
    const NodeSpec& node = state.nodes[i].spec;
    const std::string* value = FindLabel(node.labels, spread.topology_key);
    if (value == nullptr || (spread.honor_affinity && !NodeAffinityMatches(*task.shape, node))) {
      continue;
    }
    if (spread.honor_taints &&
        std::any_of(node.taints.begin(), node.taints.end(), [&](const Taint& taint) {
          return taint.effect != "PreferNoSchedule" &&
                 !Tolerates(task.shape->constraints.tolerations, taint);
        })) {
      continue;
    }
    int& count = counts[*value];
    for (TaskId id : state.nodes[i].tasks) {
      const Task& pod = state.task(id);
      count += id != self && pod.ns == task.ns && Counts(state, id, static_cast<NodeId>(i)) &&
               Matches(spread.selector, *pod.labels);
    }
  }
  return counts;
}

std::string SpreadReason(const State& state, const Task& task, TaskId self, NodeId id) {
  for (const SpreadConstraint& spread : task.shape->constraints.spread) {
    if (!spread.hard) {
      continue;
    }
    const std::string* value =
        FindLabel(state.nodes[static_cast<std::size_t>(id)].spec.labels, spread.topology_key);
    if (value == nullptr) {
      return "node(s) didn't match pod topology spread constraints (missing required label)";
    }
    const std::map<std::string, int> counts = DomainCounts(state, task, self, spread);
    int least = INT_MAX;
    for (const auto& [domain, count] : counts) {
      least = std::min(least, count);
    }
    if (static_cast<int>(counts.size()) < spread.min_domains || least == INT_MAX) {
      least = 0;
    }
    const auto here = counts.find(*value);
    const int after = (here == counts.end() ? 0 : here->second) +
                      (Matches(spread.selector, *task.labels) ? 1 : 0);
    if (after - least > spread.max_skew) {
      return "node(s) didn't match pod topology spread constraints";
    }
  }
  return "";
}

std::string VolumeLimitReason(const State& state, const Task& task, NodeId id) {
  const Node& node = state.nodes[static_cast<std::size_t>(id)];
  if (task.attachments.empty() || node.spec.volume_limits.empty()) {
    return "";
  }
  // A volume that several pods of the node use is attached once.
  std::set<std::pair<std::string, std::string>> attached;
  for (TaskId other : node.tasks) {
    if (IsThere(state, other, id)) {
      const Task& pod = state.task(other);
      attached.insert(pod.attachments.begin(), pod.attachments.end());
    }
  }
  std::map<std::string, std::int64_t> counts;
  std::set<std::string> asked;
  for (const auto& volume : task.attachments) {
    if (attached.insert(volume).second) {
      asked.insert(volume.first);
    }
  }
  for (const auto& [driver, volume] : attached) {
    ++counts[driver];
  }
  return std::any_of(asked.begin(), asked.end(),
                     [&](const std::string& driver) {
                       const auto limit = node.spec.volume_limits.find(driver);
                       return limit != node.spec.volume_limits.end() &&
                              counts[driver] > limit->second;
                     })
             ? "node(s) exceed max volume count"
             : "";
}

}  // namespace

std::string FilterByPods(Session& session, const Task& task, NodeId node) {
  const State& state = session.state;
  // KAI does not count volumes.
  if (session.profile.kube) {
    if (std::string reason = VolumeLimitReason(state, task, node); !reason.empty()) {
      return reason;
    }
  }
  if (!task.shape->pod_constraints && state.constrained_tasks == 0) {
    return "";
  }
  const TaskId self = state.FindTask(task.uid);
  if (!task.shape->constraints.ports.empty() && !PortsFree(state, task, self, node)) {
    return "node(s) didn't have free ports for the requested pod ports";
  }
  if (std::string reason = AffinityReason(state, task, self, node); !reason.empty()) {
    return reason;
  }
  if (std::string reason = ExistingReason(state, task, self, node); !reason.empty()) {
    return reason;
  }
  return SpreadReason(state, task, self, node);
}

std::map<NodeId, std::int64_t> PodAffinityScores(Session& session, const Task& task,
                                                 const std::vector<NodeId>& nodes) {
  const State& state = session.state;
  std::map<NodeId, std::int64_t> scores;
  const Constraints& own = task.shape->constraints;
  if (own.preferred_affinity.empty() && own.preferred_anti_affinity.empty() &&
      state.constrained_tasks == 0) {
    return scores;
  }
  std::map<std::pair<std::string, std::string>, std::int64_t> by_domain;
  const auto add = [&](const PodAffinityTerm& term, const NodeSpec& where, std::int64_t weight) {
    if (const std::string* value = FindLabel(where.labels, term.topology_key)) {
      by_domain[{term.topology_key, *value}] += weight;
    }
  };
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const NodeSpec& where = state.nodes[i].spec;
    for (TaskId id : state.nodes[i].tasks) {
      const Task& pod = state.task(id);
      if (pod.uid == task.uid || !Counts(state, id, static_cast<NodeId>(i))) {
        continue;
      }
      const Constraints& other = pod.shape->constraints;
      for (const auto& term : own.preferred_affinity) {
        add(term, where, TermSelects(state, term, pod) ? term.weight : 0);
      }
      for (const auto& term : own.preferred_anti_affinity) {
        add(term, where, TermSelects(state, term, pod) ? -term.weight : 0);
      }
      for (const auto& term : other.preferred_affinity) {
        add(term, where, TermSelects(state, term, task) ? term.weight : 0);
      }
      for (const auto& term : other.preferred_anti_affinity) {
        add(term, where, TermSelects(state, term, task) ? -term.weight : 0);
      }
      for (const auto& term : other.affinity) {  // kube-scheduler's hardPodAffinityWeight
        add(term, where, TermSelects(state, term, task) ? 1 : 0);
      }
    }
  }
  for (NodeId id : nodes) {
    for (const auto& [domain, weight] : by_domain) {
      const std::string* value =
          FindLabel(state.nodes[static_cast<std::size_t>(id)].spec.labels, domain.first);
      if (value != nullptr && *value == domain.second) {
        scores[id] += weight;
      }
    }
  }
  return scores;
}

std::map<NodeId, double> SpreadCounts(Session& session, const Task& task,
                                      const std::vector<NodeId>& nodes) {
  const State& state = session.state;
  std::map<NodeId, double> result;
  const TaskId self = state.FindTask(task.uid);
  for (const SpreadConstraint& spread : task.shape->constraints.spread) {
    if (spread.hard) {
      continue;
    }
    const std::map<std::string, int> counts = DomainCounts(state, task, self, spread);
    for (NodeId id : nodes) {
      const std::string* value =
          FindLabel(state.nodes[static_cast<std::size_t>(id)].spec.labels, spread.topology_key);
      const auto it = value == nullptr ? counts.end() : counts.find(*value);
      result[id] += it == counts.end() ? 1e9 : it->second;
    }
  }
  return result;
}

}  // namespace sublet::scheduler
