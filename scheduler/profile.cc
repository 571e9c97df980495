#include "scheduler/profile.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "kube/timestamp.h"

namespace sublet::scheduler {

const char* ActionName(Action action) {
  switch (action) {
    case Action::kAllocate: return "allocate";
    case Action::kConsolidation: return "consolidation";
    case Action::kReclaim: return "reclaim";
    case Action::kPreempt: return "preempt";
    case Action::kStaleGang: return "stalegangeviction";
  }
  return "";
}

std::vector<std::string> ProfileNames() {
  return {"kai-0.7", "kai-0.9", "kai-0.13", "kai-0.17", "default"};
}

Result<Profile> NamedProfile(const std::string& name) {
  Profile profile;
  profile.name = name;
  profile.scheduler_names = {"kai-scheduler"};
  if (name == "kai-0.13") {
    return profile;
  }
  if (name == "kai-0.17") {
    profile.min_sub_group = true;
    profile.pinned_min_memory = false;
    profile.preemption_delay = true;
    profile.smart_search = true;
    return profile;
  }
  if (name == "kai-0.9" || name == "kai-0.7") {
    profile.preemptibility_field = false;
    profile.sub_groups = false;
    profile.topology = false;
    profile.count_dra = false;
    profile.k = 0;
    profile.strict_fair_share = name == "kai-0.7";
    return profile;
  }
  if (name == "default") {
    profile.scheduler_names = {"", "default-scheduler"};
    profile.kube = true;
    profile.actions = {Action::kAllocate, Action::kPreempt};
    profile.budgets = true;
    profile.sub_groups = profile.topology = false;
    return profile;
  }
  std::string known;
  for (const std::string& each : ProfileNames()) {
    known += (known.empty() ? "" : ", ") + each;
  }
  return Status(Reason::kInvalid, "unknown scheduler profile \"" + name + "\"; known: " + known);
}

namespace {

Status BadValue(const std::string& key, const std::string& value, const char* wanted) {
  return Status(Reason::kInvalid,
                "scheduler argument " + key + ": \"" + value + "\" is not " + wanted);
}

Result<double> Number(const std::string& key, const std::string& value, double least) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !std::isfinite(number) || number < least) {
    return BadValue(key, value, "a number in range");
  }
  return number;
}

Result<bool> Boolean(const std::string& key, const std::string& value) {
  if (value == "true" || value == "false") {
    return value == "true";
  }
  return BadValue(key, value, "true or false");
}

Result<PlacementOrder> Strategy(const std::string& key, const std::string& value) {
  if (value == "binpack") {
    return PlacementOrder::kBinpack;
  }
  if (value == "spread") {
    return PlacementOrder::kSpread;
  }
  return BadValue(key, value, "binpack or spread");
}

// A duration as Go writes it; parts of a millisecond are cut.
Result<Millis> Duration(const std::string& key, const std::string& value) {
  const auto duration = kube::ParseDuration(value);
  if (!duration.ok()) {
    return BadValue(key, value, "a duration");
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(*duration).count();
}

bool IsAction(const std::string& name) {
  for (Action action : {Action::kAllocate, Action::kConsolidation, Action::kReclaim,
                        Action::kPreempt, Action::kStaleGang}) {
    if (name == ActionName(action)) {
      return true;
    }
  }
  return false;
}

void DropConsolidationIfSpread(Profile& profile) {
  // As KAI's operator does: consolidation would undo what spreading wants.
  if (profile.gpu == PlacementOrder::kSpread || profile.cpu == PlacementOrder::kSpread) {
    std::erase(profile.actions, Action::kConsolidation);
  }
}

// KAI's usageDBConfig. What speaks of its database (client, staleness, timeouts) has nothing to
// speak of here.
constexpr std::string_view kUsagePrefix = "usageDBConfig.usageParams.";

Result<void> SetUsageParam(UsageParams& usage, const std::string& key, const std::string& param,
                           const std::string& value) {
  const auto duration = [&](Millis least, Millis* to) -> Result<void> {
    SUBLET_TRY(const Millis read, Duration(key, value));
    if (read < least) {
      return BadValue(key, value, least == 0 ? "a duration from 0 on" : "a duration from 1s on");
    }
    *to = read;
    return Ok();
  };
  usage.on = true;
  if (param == "halfLifePeriod") {
    return duration(0, &usage.half_life);
  }
  if (param == "windowSize") {
    return duration(1000, &usage.size);
  }
  if (param == "fetchInterval") {
    return duration(1000, &usage.fetch);
  }
  if (param == "windowType") {
    using Window = UsageParams::Window;
    if (value != "sliding" && value != "tumbling" && value != "cron") {
      return BadValue(key, value, "sliding, tumbling or cron");
    }
    usage.type = value == "sliding"    ? Window::kSliding
                 : value == "tumbling" ? Window::kTumbling
                                       : Window::kCron;
    return Ok();
  }
  if (param == "tumblingWindowStartTime") {
    const auto time = kube::ParseTime(value);
    if (!time.ok()) {
      return BadValue(key, value, "a time such as 2026-01-01T00:00:00Z");
    }
    usage.start =
        std::chrono::duration_cast<std::chrono::milliseconds>(time->time_since_epoch()).count();
    return Ok();
  }
  if (param == "cronString") {
    usage.cron = value;
    SUBLET_TRY(CronTimes times, CronTimes::Parse(value));
    (void)times;
    return Ok();
  }
  return Status(Reason::kInvalid,
                "unknown scheduler argument \"" + key +
                    "\"; known of usageParams: cronString, fetchInterval, halfLifePeriod, "
                    "tumblingWindowStartTime, windowSize, windowType");
}

constexpr std::string_view kDepthPrefix = "queueDepthPerAction.";

constexpr std::pair<std::string_view, Millis Profile::*> kDurations[] = {
    {"defaultStalenessGracePeriod", &Profile::stale_grace},
    {"preemptMinRuntime", &Profile::preempt_min_runtime},
    {"reclaimMinRuntime", &Profile::reclaim_min_runtime},
    {"reserveAfter", &Profile::reserve_after},
};
constexpr std::pair<std::string_view, bool Profile::*> kFlags[] = {
    {"allowConsolidatingReclaim", &Profile::consolidating_reclaim},
    {"backfill", &Profile::backfill},
    {"respectDisruptionBudgets", &Profile::budgets},
    {"useSchedulingSignatures", &Profile::signatures},
};

Result<void> SetCount(Profile& profile, const std::string& key, const std::string& value) {
  if (key.starts_with(kDepthPrefix) && !IsAction(key.substr(kDepthPrefix.size()))) {
    return Status(Reason::kInvalid, "scheduler argument " + key +
                                        ": no such action; known: allocate, consolidation, "
                                        "reclaim, preempt, stalegangeviction");
  }
  SUBLET_TRY(const double amount, Number(key, value, key == "maxConsolidationPreemptees" ? -1 : 1));
  if (amount != std::floor(amount) || amount > (key == "searchSteps" ? 1e12 : 1e9)) {
    return BadValue(key, value, "a whole number");
  }
  if (key == "maxConsolidationPreemptees") {
    profile.max_consolidation_victims = static_cast<int>(amount);
  } else if (key == "searchSteps") {
    profile.search_steps = static_cast<std::int64_t>(amount);
  } else {
    profile.queue_depth[key.substr(kDepthPrefix.size())] = static_cast<int>(amount);
  }
  return Ok();
}

}  // namespace

Result<void> SetArgument(Profile& profile, const std::string& key, const std::string& value) {
  const auto number = [&](double* to, double least) -> Result<void> {
    SUBLET_TRY(*to, Number(key, value, least));
    return Ok();
  };
  for (const auto& [name, member] : kDurations) {
    if (key == name) {
      SUBLET_TRY(profile.*member, Duration(key, value));
      return Ok();
    }
  }
  for (const auto& [name, member] : kFlags) {
    if (key == name) {
      SUBLET_TRY(profile.*member, Boolean(key, value));
      return Ok();
    }
  }
  if (key == "placementStrategy.gpu") {
    SUBLET_TRY(profile.gpu, Strategy(key, value));
    profile.devices = profile.gpu;
    profile.score_sharing = profile.gpu == PlacementOrder::kBinpack;
    DropConsolidationIfSpread(profile);
    return Ok();
  }
  if (key == "placementStrategy.cpu") {
    SUBLET_TRY(profile.cpu, Strategy(key, value));
    DropConsolidationIfSpread(profile);
    return Ok();
  }
  if (key == "kValue") {
    return number(&profile.k, 0);
  }
  if (key == "usageHalfLifePeriod" || key.compare(0, kUsagePrefix.size(), kUsagePrefix) == 0) {
    return SetUsageParam(
        profile.usage, key,
        key == "usageHalfLifePeriod" ? "halfLifePeriod" : key.substr(kUsagePrefix.size()), value);
  }
  // KAI's spelling is part of its interface; the right one is accepted too.
  if (key == "relcaimerSaturationMultiplier" || key == "reclaimerSaturationMultiplier") {
    return number(&profile.saturation, 1);
  }
  if (key == "reclaimResolveMethod") {
    if (value != "lca" && value != "queue") {
      return BadValue(key, value, "lca or queue");
    }
    profile.min_runtime_by_lca = value == "lca";
    return Ok();
  }
  if (key == "maxConsolidationPreemptees" || key == "searchSteps" ||
      key.starts_with(kDepthPrefix)) {
    return SetCount(profile, key, value);
  }
  return Status(
      Reason::kInvalid,
      "unknown scheduler argument \"" + key +
          "\"; known: allowConsolidatingReclaim, backfill, defaultStalenessGracePeriod, kValue, "
          "maxConsolidationPreemptees, placementStrategy.cpu, placementStrategy.gpu, "
          "preemptMinRuntime, "
          "queueDepthPerAction.ACTION, reclaimMinRuntime, reclaimResolveMethod, "
          "relcaimerSaturationMultiplier, reserveAfter, respectDisruptionBudgets, searchSteps, "
          "usageDBConfig.usageParams.PARAM, usageHalfLifePeriod, useSchedulingSignatures");
}

}  // namespace sublet::scheduler
