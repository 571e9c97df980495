#include "scheduler/messages.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace sublet::scheduler {

std::string Human(double value, double unit) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f", value / unit);
  std::string out(text);
  while (out.back() == '0') {
    out.pop_back();
  }
  if (out.back() == '.') {
    out.pop_back();
  }
  return out;
}

const char* ResourceTitle(int resource) {
  return resource == kCpu ? "CPU" : resource == kMemory ? "Memory" : resource == kGpu ? "GPU" : "";
}

namespace {

constexpr double kUnit[] = {1000, 1e9, 1};
constexpr const char* kPlural[] = {"cores", "GB", "GPUs"};

std::string Usage(const Amounts& amounts) {
  return "GPU: " + Human(amounts[kGpu], 1) + ", CPU: " + Human(amounts[kCpu], 1000) +
         " (cores), memory: " + Human(amounts[kMemory], 1e9) + " (GB)";
}

std::string QueueDetails(const QueueShare& queue) {
  return queue.name + " uses <" + Usage(queue.Allocated()) + "> with a quota of <" +
         Usage(queue.Deserved()) + ">, fair-share of <" + Usage(queue.FairShare()) +
         "> and queue priority of <" + std::to_string(queue.priority) + ">.";
}

}  // namespace

std::string LimitMessage(const QueueShare& queue, int resource, double request) {
  static constexpr const char* kTitles[] = {"CPU cores", "memory", "GPUs"};
  const std::string unit = kPlural[resource];
  const ResourceShare& share = queue.r[resource];
  return queue.name + " quota has reached the allowable limit of " + kTitles[resource] +
         ". Limit is " + Human(share.limit, kUnit[resource]) + " " + unit + ", currently " +
         Human(share.allocated, kUnit[resource]) + " " + unit +
         " allocated and workload requested " + Human(request, kUnit[resource]) + " " + unit;
}

std::string QuotaMessage(const QueueShare& queue, int resource, const Amounts& request) {
  static constexpr const char* kAsked[] = {"CPU cores", "GB memory", "GPUs"};
  const std::string unit = kPlural[resource];
  const ResourceShare& share = queue.r[resource];
  return "Non-preemptible workload is over quota. Workload requested " +
         Human(request[resource], kUnit[resource]) + " " + kAsked[resource] + ", but " +
         queue.name + " quota is " + Human(share.deserved, kUnit[resource]) + " " + unit +
         ", while " + Human(share.allocated_np, kUnit[resource]) + " " + unit +
         " are already allocated for non-preemptible pods. Use a preemptible workload to go over "
         "quota.";
}

std::string PreemptMessage(const Task& victim, const Job& winner) {
  return "Pod " + victim.ns + "/" + victim.name + " was preempted by higher priority workload " +
         winner.ns + "/" + winner.name;
}

std::string ConsolidateMessage(const Task& victim) {
  return "Pod " + victim.ns + "/" + victim.name +
         " was preempted and rescheduled due to bin packing (resource consolidation) procedure";
}

std::string ReclaimMessage(const State& state, const Task& victim, const Job& winner) {
  std::string text = "Pod " + victim.ns + "/" + victim.name + " was preempted by workload " +
                     winner.ns + "/" + winner.name + ".";
  const Job& loser = state.job(victim.job);
  if (winner.queue == kNone || loser.queue == kNone) {
    return text;
  }
  const Queue* mine = &state.queue(winner.queue);
  const Queue* theirs = &state.queue(loser.queue);
  if (mine->parent != theirs->parent && mine->parent != kNone && theirs->parent != kNone) {
    mine = &state.queue(mine->parent);
    theirs = &state.queue(theirs->parent);
  }
  return text + "\n" + QueueDetails(theirs->share) + "\n" + QueueDetails(mine->share);
}

std::string StaleMessage(const Job& job, const Task& victim) {
  const PodSet& set = job.pod_sets[static_cast<std::size_t>(victim.pod_set)];
  const std::string sub =
      job.pod_sets.size() == 1 && set.name == "default" ? "" : " in sub-group " + set.name;
  return "Workload doesn't meet the minimum required number of pods (" +
         std::to_string(set.min_available) + ")" + sub + ", evicting remaining pod: " + victim.ns +
         "/" + victim.name;
}

namespace {

std::vector<std::string> Counted(const std::map<std::string, int>& reasons) {
  std::vector<std::string> lines;
  for (const auto& [reason, count] : reasons) {
    lines.push_back(std::to_string(count) + " " + reason);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace

std::string HistogramMessage(const std::map<std::string, int>& reasons) {
  std::string text = "no nodes with enough resources were found";
  const char* separator = ": ";
  for (const std::string& line : Counted(reasons)) {
    text += separator + line;
    separator = ". \n";
  }
  return reasons.empty() ? text : text + ".";
}

std::string KubeHistogram(int nodes, const std::map<std::string, int>& reasons) {
  std::string text = "0/" + std::to_string(nodes) + " nodes are available";
  const char* separator = ": ";
  for (const std::string& line : Counted(reasons)) {
    text += separator + line;
    separator = ", ";
  }
  return text + ".";
}

std::string GangMessage(const Job& job, const Task& failed, int placed, const std::string& cause) {
  const PodSet& set = job.pod_sets[static_cast<std::size_t>(failed.pod_set)];
  const bool gang = std::any_of(job.pod_sets.begin(), job.pod_sets.end(),
                                [](const PodSet& s) { return s.min_available > 1; });
  if (!gang || set.active_used >= set.min_available) {
    return "Resources were not found for pod " + failed.ns + "/" + failed.name +
           " due to: " + cause;
  }
  const std::string found = "Resources were found for " + std::to_string(placed) + " pods ";
  const std::string minimum = std::to_string(set.min_available);
  if (job.pod_sets.size() == 1 && set.name == "default") {
    return found + "while " + minimum +
           " are required for gang scheduling. Additional pods cannot be scheduled due to: " +
           cause;
  }
  return found + "from all sub-groups while sub-group " + set.name + " requires " + minimum +
         " pods for gang scheduling. Additional pods cannot be scheduled in this sub-group due "
         "to: " +
         cause;
}

std::string DetailedMessage(const std::vector<JobFailure>& failures) {
  std::vector<std::string> lines;
  for (const JobFailure& failure : failures) {
    lines.push_back("\n" + (failure.detail.empty() ? failure.message : failure.detail) + ".");
  }
  std::sort(lines.begin(), lines.end());
  std::string text =
      "\n" +
      (failures.size() == 1 ? failures[0].reason : std::string("Unable to schedule podgroup")) +
      ".";
  for (const std::string& line : lines) {
    text += line;
  }
  return text;
}

}  // namespace sublet::scheduler
