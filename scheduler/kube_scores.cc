#include "scheduler/kube_scores.h"

#include <algorithm>
#include <cmath>

#include "scheduler/filters.h"
#include "scheduler/pod_filters.h"

namespace sublet::scheduler {

namespace {

using Scores = std::vector<double>;

// Scales to 0..100; `reverse`: the largest becomes 0. All equal to 0 stays 0 (100 when reversed).
void Normalise(Scores& scores, bool reverse) {
  const double most = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  for (double& score : scores) {
    const double part = most == 0 ? 0 : std::floor(score * 100 / most);
    score = reverse ? 100 - part : part;
  }
}

// kube-scheduler counts pods without a request as 100m and 200 MiB when it spreads load.
double Utilisation(const Task& task, const NodeHot& hot, const NodeSpec& spec, int dim,
                   bool defaults) {
  const double have = static_cast<double>(dim == kCpu ? spec.cpu : spec.memory);
  if (have <= 0) {
    return 1;
  }
  double ask = static_cast<double>(task.shape->tracked[dim]);
  if (defaults && ask == 0) {
    ask = dim == kCpu ? 100 : 200.0 * 1024 * 1024;
  }
  return std::min(1.0, (have - static_cast<double>(hot.idle[dim]) + ask) / have);
}

}  // namespace

void KubeScores(Session& session, const Task& task, std::vector<std::pair<NodeId, double>>& nodes) {
  const State& state = session.state;
  const Constraints& constraints = task.shape->constraints;
  Scores taints(nodes.size()), affinity(nodes.size()), pods(nodes.size()), spread(nodes.size());
  std::vector<NodeId> ids;
  for (const auto& [id, score] : nodes) {
    ids.push_back(id);
  }
  const auto pod_scores = PodAffinityScores(session, task, ids);
  const auto spread_counts = SpreadCounts(session, task, ids);
  double least = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeSpec& spec = state.nodes[static_cast<std::size_t>(ids[i])].spec;
    for (const Taint& taint : spec.taints) {
      taints[i] +=
          taint.effect == "PreferNoSchedule" && !Tolerates(constraints.tolerations, taint) ? 1 : 0;
    }
    for (const PreferredNodeTerm& preferred : constraints.preferred) {
      affinity[i] += TermMatches(preferred.term, spec) ? preferred.weight : 0;
    }
    if (auto it = pod_scores.find(ids[i]); it != pod_scores.end()) {
      pods[i] = static_cast<double>(it->second);
      least = std::min(least, pods[i]);
    }
    if (auto it = spread_counts.find(ids[i]); it != spread_counts.end()) {
      spread[i] = it->second;
    }
  }
  for (double& score : pods) {
    score -= least;
  }
  Normalise(taints, true);
  Normalise(affinity, false);
  Normalise(pods, false);
  const bool spreads = !spread_counts.empty();
  Normalise(spread, spreads);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeHot& hot = state.hot[static_cast<std::size_t>(ids[i])];
    const NodeSpec& spec = state.nodes[static_cast<std::size_t>(ids[i])].spec;
    const double fit = std::floor(((1 - Utilisation(task, hot, spec, kCpu, true)) * 100 +
                                   (1 - Utilisation(task, hot, spec, kMemory, true)) * 100) /
                                  2);
    const double gap = std::fabs(Utilisation(task, hot, spec, kCpu, false) -
                                 Utilisation(task, hot, spec, kMemory, false)) /
                       2;
    nodes[i].second = fit + std::floor((1 - gap) * 100) + 3 * taints[i] + 2 * affinity[i] +
                      2 * pods[i] + 2 * spread[i];
  }
}

}  // namespace sublet::scheduler
