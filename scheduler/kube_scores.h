// Scores of kube-scheduler's default profile, each normalised to 0..100 over the candidates and
// weighted as its default configuration does: NodeResourcesFit (least allocated) 1,
// BalancedAllocation 1, TaintToleration 3, NodeAffinity 2, InterPodAffinity 2, PodTopologySpread 2.
// Image locality is not known here and counts 0 for all. Source: kube-scheduler's default plugins.
// Threads: one.
#pragma once

#include <utility>
#include <vector>

#include "scheduler/session.h"

namespace sublet::scheduler {

// Fills the scores of the candidate nodes.
void KubeScores(Session& session, const Task& task, std::vector<std::pair<NodeId, double>>& nodes);

}  // namespace sublet::scheduler
