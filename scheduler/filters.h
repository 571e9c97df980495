// Which nodes can take a pod, and why not: resources, devices, MIG rules, node selectors, taints,
// ports, pod affinity, topology spread, volumes. Texts are KAI's and kube-scheduler's. Threads:
// one, the scheduler's.
#pragma once

#include <string>
#include <vector>

#include "scheduler/session.h"

namespace sublet::scheduler {

// Fits on what is idle now.
bool FitsNow(const State& state, const Task& task, NodeId node);
// Fits on what is idle or being freed.
bool FitsLater(const State& state, const Task& task, NodeId node);
// May the pod join the shared device `group`? (KAI: not when everything on it is leaving.)
bool FitsGroup(const Node& node, const Shape& shape, const GpuGroup& group);
std::int64_t DeviceMemory(const Node& node,
                          const Shape& shape);  // MiB the pod takes of each device

bool TermMatches(const NodeTerm& term, const NodeSpec& node);
bool NodeAffinityMatches(const Shape& shape, const NodeSpec& node);
bool Tolerates(const std::vector<Toleration>& tolerations, const Taint& taint);

// Everything but amounts. Returns "" or the reason.
std::string Filter(Session& session, const Task& task, NodeId node);
// "" or why no node at all can take the pod now.
std::string PreFilter(Session& session, const Task& task);
// Why amounts do not fit on the node now; several reasons of one node.
std::vector<std::string> ResourceReasons(const Session& session, const Task& task, NodeId node);

// The devices a shared pod would get on the node. Empty when there are too few.
struct DeviceChoice {
  std::vector<int> groups;
  bool later = false;  // some of it is not free yet
  bool new_group = false;
};
DeviceChoice ChooseGroups(Session& session, const Task& task, NodeId node, bool pipeline_only);

}  // namespace sublet::scheduler
