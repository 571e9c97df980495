// Profile: which rules a scheduler name follows. Every switch is a behaviour that a user can see;
// the named profiles are rows of one table (profile.cc). An unknown profile, argument or value is
// an error of the caller's configuration and stops the start; nothing falls back silently. Source:
// reference facts on KAI 1.3, 1.4, 8. Threads: values, any.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "scheduler/model.h"
#include "scheduler/usage_window.h"

namespace sublet::scheduler {

enum class Action : std::uint8_t { kAllocate, kConsolidation, kReclaim, kPreempt, kStaleGang };
constexpr std::size_t kActions = 5;
const char* ActionName(Action action);  // "allocate", ...

enum class PlacementOrder : std::uint8_t { kBinpack, kSpread, kAny };

struct Profile {
  std::string name;
  std::vector<std::string> scheduler_names;
  bool kube = false;  // kube-scheduler's rules: no queues, single pods, cluster-wide preemption
  std::vector<Action> actions{Action::kAllocate, Action::kConsolidation, Action::kReclaim,
                              Action::kPreempt, Action::kStaleGang};
  PlacementOrder gpu = PlacementOrder::kBinpack;
  PlacementOrder cpu = PlacementOrder::kBinpack;
  PlacementOrder devices = PlacementOrder::kBinpack;
  bool score_sharing = true;       // prefer nodes with a fitting shared device
  bool score_availability = true;  // prefer nodes where it fits now
  bool score_resource_type = true;
  bool score_pod_affinity = true;  // preferred terms of node and pod affinity
  double k = 1;
  UsageParams usage;  // of the usage history; off: usage counts as 0
  double saturation = 1;
  bool strict_fair_share = false;    // before 0.8: no saturation rule, nobody above the fair share
  bool preemptibility_field = true;  // else by priority alone
  bool sub_groups = true;            // else all pods of a group are one set
  bool min_sub_group = false;        // 0.15
  bool topology = true;
  bool elastic_order = true;
  bool pinned_min_memory = true;  // before 0.16.2
  bool count_dra = true;          // 0.13
  bool preemption_delay = false;  // 0.17
  bool smart_search = false;      // 0.16: one node's victims before many
  bool consolidating_reclaim = true;
  bool signatures = true;  // skip jobs not easier than one that just failed
  bool budgets = false;    // PodDisruptionBudgets hold back evictions
  bool backfill = false;   // a gang that waited long keeps nodes free for itself
  Millis reserve_after = 300'000;
  int max_consolidation_victims = 16;  // -1 = unlimited
  Millis stale_grace = 60'000;         // negative = never
  Millis preempt_min_runtime = 0, reclaim_min_runtime = 0;
  bool min_runtime_by_lca = true;
  std::map<std::string, int> queue_depth;  // action name -> jobs per queue; absent = all
  std::int64_t search_steps = 50'000;      // placements tried by the victim searches of one cycle
};

// Returns the profile `name` (kai-0.7, kai-0.9, kai-0.13, kai-0.17, default).
// Errors: kInvalid for an unknown name, with the known ones in the message.
Result<Profile> NamedProfile(const std::string& name);
std::vector<std::string> ProfileNames();
// Applies `key` = `value` (KAI's argument names: placementStrategy.gpu, kValue, ...).
// Errors: kInvalid for an unknown key or a value that does not parse.
Result<void> SetArgument(Profile& profile, const std::string& key, const std::string& value);

}  // namespace sublet::scheduler
