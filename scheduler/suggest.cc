// What would let a waiting pod run (scheduler/simulation.h): candidates are made from what the
// engine knows, tried on copies, and only those that work are told.
#include <algorithm>
#include <set>

#include "scheduler/simulation.h"
#include "scheduler/suggest_candidates.h"

namespace sublet::scheduler {

namespace {

constexpr int kTrialsMax = 12;
constexpr std::size_t kSuggestionsMax = 5;
constexpr std::size_t kManyPods = 20'000;

std::string OutcomeText(const std::string& node, const SimulationResult& result) {
  std::string text = "it runs on node " + node;
  if (!result.evicted.empty()) {
    text += " after " + std::to_string(result.evicted.size()) +
            (result.evicted.size() == 1 ? " pod is" : " pods are") + " evicted (" +
            result.evicted[0].ns + "/" + result.evicted[0].name +
            (result.evicted.size() > 1 ? ", ..." : "") + ")";
  }
  return text;
}

}  // namespace

std::vector<Suggestion> Suggest(const std::vector<Profile>& profiles, const Snapshot& snapshot,
                                const std::string& uid, Millis now) {
  const auto found = std::find_if(snapshot.pods.begin(), snapshot.pods.end(),
                                  [&](const PodSpec& pod) { return pod.uid == uid; });
  if (found == snapshot.pods.end() || !found->node.empty()) {
    return {};
  }
  std::vector<std::pair<std::size_t, Suggestion>> good;
  int trials = snapshot.pods.size() > kManyPods ? 4 : kTrialsMax;
  std::set<Family> done;
  for (const Candidate& candidate : MakeCandidates(profiles, snapshot, *found, now)) {
    if (done.contains(candidate.family)) {
      continue;
    }
    if (trials-- <= 0 || good.size() >= kSuggestionsMax) {
      break;
    }
    Snapshot changed = snapshot;
    candidate.apply(changed);
    Simulation simulation(profiles, changed);
    const SimulationResult result = simulation.Settle(now);
    const auto pod = simulation.engine().ExportPod(uid);
    if (pod && !pod->node.empty()) {
      good.emplace_back(result.evicted.size(),
                        Suggestion{candidate.change, OutcomeText(pod->node, result), true});
      if (candidate.family != Family::kAlone) {
        done.insert(candidate.family);
      }
    }
  }
  std::stable_sort(good.begin(), good.end(),
                   [](const auto& a, const auto& b) { return (a.first > 0) < (b.first > 0); });
  std::vector<Suggestion> out;
  for (auto& [evictions, suggestion] : good) {
    out.push_back(std::move(suggestion));
  }
  return out;
}

}  // namespace sublet::scheduler
