// Texts that users see in events, conditions and explanations, in KAI's and kube-scheduler's
// wording. Threads: pure, any.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/job_view.h"

namespace sublet::scheduler {

// At most three digits after the point, without trailing zeros; "unlimited" for -1 does not occur
// here.
std::string Human(double value, double unit);
const char* ResourceTitle(int resource);  // "CPU", "Memory", "GPU"

std::string LimitMessage(const QueueShare& queue, int resource, double request);
std::string QuotaMessage(const QueueShare& queue, int resource, const Amounts& request);
std::string PreemptMessage(const Task& victim, const Job& winner);
std::string ConsolidateMessage(const Task& victim);
std::string ReclaimMessage(const State& state, const Task& victim, const Job& winner);
std::string StaleMessage(const Job& job, const Task& victim);

// "no nodes with enough resources were found: 2 reason. \n1 other." from counted reasons.
std::string HistogramMessage(const std::map<std::string, int>& reasons);
// "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had ...." (kube-scheduler).
std::string KubeHistogram(int nodes, const std::map<std::string, int>& reasons);
// Why a batch could not be placed, KAI's wording by kind of gang.
std::string GangMessage(const Job& job, const Task& failed, int placed, const std::string& cause);
// All failures of a job in KAI's detailed form.
std::string DetailedMessage(const std::vector<JobFailure>& failures);

}  // namespace sublet::scheduler
