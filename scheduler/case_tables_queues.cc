// The tables of what queues may do: which goes first, what it may reclaim, what it may hold.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "scheduler/case_tables.h"

namespace sublet::scheduler {

using kube::Json;

namespace {

// What the next batch of a job record asks for.
Amounts NextRequest(const Json& job, double smallest_memory) {
  struct Set {
    std::string name;
    int minimum, active = 0;
    std::vector<const Json*> pending;
  };
  std::vector<Set> sets;
  for (const Json& object : job.at("podSets")) {
    Set set{CaseText(object, "name"), object.at("minAvailable").get<int>()};
    std::vector<const Json*> tasks;
    for (const Json& task : object.at("tasks")) {
      const std::string status = CaseText(task, "status");
      if (status == "Pending") {
        set.pending.push_back(&task);
      } else if (status != "Releasing" && status != "Succeeded" && status != "Failed" &&
                 status != "Gated") {
        ++set.active;
      }
    }
    std::sort(set.pending.begin(), set.pending.end(), [](const Json* a, const Json* b) {
      return CaseText(*a, "name") < CaseText(*b, "name");
    });
    sets.push_back(std::move(set));
  }
  const bool below =
      std::any_of(sets.begin(), sets.end(), [](const Set& s) { return s.active < s.minimum; });
  Amounts sum{};
  bool one = false;
  for (const Set& set : sets) {
    int left = set.minimum - set.active;
    if (left <= 0) {
      left = below || one ? 0 : 1;
      one = one || (left == 1 && !set.pending.empty());
    }
    for (int i = 0; i < std::min(left, static_cast<int>(set.pending.size())); ++i) {
      const Json& request = set.pending[static_cast<std::size_t>(i)]->at("request");
      sum = Plus(sum, CaseAmounts(request));
      if (request.contains("gpuMemoryMiB") && smallest_memory > 0) {
        sum[kGpu] += request.at("gpuMemoryMiB").get<double>() * request.value("devices", 1.0) /
                     smallest_memory;
      }
    }
  }
  return sum;
}

}  // namespace

void QueueOrderRow(const Json& row, CaseRow& out) {
  const QueueShare left = CaseQueue(row.at("left"));
  const QueueShare right = CaseQueue(row.at("right"));
  const double smallest = row.value("minNodeGpuMemoryMiB", 0.0);
  const int order = CompareQueues({&left, NextRequest(row.at("leftJob"), smallest), {}},
                                  {&right, NextRequest(row.at("rightJob"), smallest), {}},
                                  CaseAmounts(row.at("total")));
  out.Same("order", row.at("expected"), order < 0 ? "left" : order > 0 ? "right" : "equal");
}

void StrategiesRow(const Json& row, CaseRow& out) {
  const QueueShare victim = CaseQueue(row.at("reclaimeeQueue"));
  const Amounts remaining = CaseAmounts(row.at("reclaimeeRemaining"));
  const bool have = CaseText(row, "strategy") == "maintainFairShare"
                        ? MaintainFairShare(victim, remaining)
                        : GuaranteeDeservedQuota(CaseQueue(row.at("reclaimerQueue")),
                                                 CaseAmounts(row.at("request")), victim, remaining);
  out.Same("reclaimable", row.at("expected"), have);
}

void ReclaimRow(const Json& row, CaseRow& out) {
  CaseQueues set(row.at("queues"));
  const Json& from = row.at("reclaimer");
  const Reclaimer reclaimer{set.At(CaseText(from, "queue")), from.at("preemptible").get<bool>(),
                            CaseAmounts(from.at("request"))};
  if (CaseText(row, "function") == "canReclaim") {
    out.Same("canReclaim", row.at("expected"),
             CanReclaim(set.queues[static_cast<std::size_t>(reclaimer.queue)], reclaimer, nullptr));
    return;
  }
  std::vector<VictimUnits> victims;
  for (const Json& object : row.at("victims")) {
    VictimUnits units{set.At(CaseText(object, "queue")), {}};
    for (const Json& unit : object.at("units")) {
      units.units.push_back(CaseAmounts(unit));
    }
    victims.push_back(std::move(units));
  }
  out.Same("reclaimable", row.at("expected"),
           Reclaimable(set.pointers, reclaimer, victims, row.value("saturationMultiplier", 1.0),
                       false, nullptr));
}

void QueueCapacityRow(const Json& row, CaseRow& out) {
  const std::string function = CaseText(row, "function");
  const Amounts request = CaseAmounts(row.at("request"));
  const Json& expected = row.at("expected");
  if (function == "queueOverLimit" || function == "queueNonPreemptibleOverQuota") {
    const QueueShare queue = CaseQueue(row.at("queue"));
    const int over = function == "queueOverLimit" ? OverLimit(queue, request)
                                                  : NonPreemptibleOverQuota(queue, request);
    out.Same("over", expected.at("over"), over >= 0);
    out.Same("resource", expected.at("resource"), over >= 0 ? kCaseDims[over] : "");
    return;
  }
  CaseQueues set(row.at("queues"));
  const Json& job = row.at("job");
  const bool preemptible = job.contains("preemptible") && job.at("preemptible").is_boolean() &&
                           job.at("preemptible").get<bool>();
  std::string reason;
  const auto walk = [&](const char* name, auto check) {
    for (int at = set.At(CaseText(job, "queue")); at >= 0 && reason.empty();
         at = set.queues[static_cast<std::size_t>(at)].parent) {
      reason = check(set.queues[static_cast<std::size_t>(at)], request) >= 0 ? name : "";
    }
  };
  if (function != "nonPreemptibleQuotaOnly") {
    walk("OverLimit", OverLimit);
  }
  if (function != "limitOnly" && !preemptible && reason.empty()) {
    walk("NonPreemptibleOverQuota", NonPreemptibleOverQuota);
  }
  out.Same("reason", expected.at("reason"), reason);
  out.Same("schedulable", expected.at("schedulable"), reason.empty());
}

}  // namespace sublet::scheduler
