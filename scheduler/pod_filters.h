// Filters and scores that depend on the other pods of a node or a domain: host ports, inter-pod
// affinity in both directions, topology spread. Reads the pods where they are accounted; nothing is
// cached, but nothing is looked at either when neither the pod nor any placed pod has such terms.
// Source: kube-scheduler's NodePorts, InterPodAffinity, PodTopologySpread. Threads: one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/session.h"

namespace sublet::scheduler {

// "" or the reason.
std::string FilterByPods(Session& session, const Task& task, NodeId node);
// Preferred pod affinity of the pod and of those already placed, per node; absent = 0.
std::map<NodeId, std::int64_t> PodAffinityScores(Session& session, const Task& task,
                                                 const std::vector<NodeId>& nodes);
// Soft topology spread: a lower number is better. Absent when the pod has no soft constraint.
std::map<NodeId, double> SpreadCounts(Session& session, const Task& task,
                                      const std::vector<NodeId>& nodes);

}  // namespace sublet::scheduler
