// The actions of a cycle, in KAI's sense: they orchestrate, the rules are elsewhere.
// Threads: one.
#pragma once

#include "scheduler/session.h"
#include "scheduler/topology.h"

namespace sublet::scheduler {

void RunAllocate(Session& session, TopologyCache& topologies);
void RunConsolidation(Session& session, TopologyCache& topologies);
void RunReclaim(Session& session, TopologyCache& topologies);
void RunPreempt(Session& session, TopologyCache& topologies);
void RunStaleGang(Session& session);

void RunAction(Action action, Session& session, TopologyCache& topologies);

}  // namespace sublet::scheduler
