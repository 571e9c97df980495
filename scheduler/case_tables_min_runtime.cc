// The table of the least run times of queues.
#include <nlohmann/json.hpp>

#include "scheduler/case_tables.h"
#include "scheduler/min_runtime.h"

namespace sublet::scheduler {

using kube::Json;

namespace {

struct RuntimeTable {
  std::vector<RuntimeQueue> queues;
  std::map<std::string, int> index;
};

RuntimeTable RuntimeTableFrom(const Json& list) {
  RuntimeTable out;
  auto& [queues, index] = out;
  for (const Json& object : list) {
    index[CaseText(object, "name")] = static_cast<int>(queues.size());
    RuntimeQueue queue{CaseText(object, "name"), -1, std::nullopt, std::nullopt};
    const auto seconds = [&](const char* key, std::optional<Millis>* to) {
      if (object.contains(key) && object.at(key).is_number()) {
        *to = static_cast<Millis>(object.at(key).get<double>() * 1000);
      }
    };
    seconds("preemptMinRuntimeSeconds", &queue.preempt);
    seconds("reclaimMinRuntimeSeconds", &queue.reclaim);
    queues.push_back(std::move(queue));
  }
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const auto it = index.find(CaseText(list[i], "parent"));
    queues[i].parent = it == index.end() ? -1 : it->second;
  }
  return out;
}

}  // namespace

void MinRuntimeRow(const Json& row, CaseRow& out) {
  const RuntimeTable read = RuntimeTableFrom(row.at("queues"));
  const std::vector<RuntimeQueue>& queues = read.queues;
  const auto find = [&](const std::string& name) {
    const auto it = read.index.find(name);
    return it == read.index.end() ? -1 : it->second;
  };
  const auto preempt_default =
      static_cast<Millis>(row.at("defaultPreemptSeconds").get<double>() * 1000);
  const auto reclaim_default =
      static_cast<Millis>(row.at("defaultReclaimSeconds").get<double>() * 1000);
  const bool lca = row.value("method", "lca") == "lca";
  const std::string function = CaseText(row, "function");
  const Json& expected = row.at("expected");
  bool error = false;
  if (function == "path") {
    Json path = Json::array();
    for (int at : QueuePath(queues, find(CaseText(row, "queue")))) {
      path.push_back(queues[static_cast<std::size_t>(at)].name);
    }
    out.Same("path", expected, path);
    return;
  }
  if (function == "preemptMinRuntime" || function == "reclaimMinRuntime") {
    const int victim = find(CaseText(row, "victimQueue"));
    const Millis have = function == "preemptMinRuntime"
                            ? PreemptMinRuntime(queues, victim, preempt_default, &error)
                            : ReclaimMinRuntime(queues, find(CaseText(row, "reclaimerQueue")),
                                                victim, lca, reclaim_default, &error);
    out.Same("seconds", expected.at("seconds"), static_cast<double>(have) / 1000);
    out.Same("error", expected.at("error"), error);
    return;
  }
  const Json& victim = row.at("victim");
  const int theirs = find(CaseText(victim, "queue"));
  const bool preempt = function == "mayPreempt" || function == "preemptScenarioValid";
  const Millis least = preempt ? PreemptMinRuntime(queues, theirs, preempt_default, &error)
                               : ReclaimMinRuntime(queues, find(CaseText(row, "pendingQueue")),
                                                   theirs, lca, reclaim_default, &error);
  const Json started = victim.value("startedSecondsAgo", Json());
  const bool guarded =
      started.is_number() && started.get<double>() * 1000 < static_cast<double>(least);
  const int minimum = victim.at("minAvailable").get<int>();
  const int running = victim.at("runningPods").get<int>();
  bool allowed = !guarded || minimum < running;
  if (function == "preemptScenarioValid" || function == "reclaimScenarioValid") {
    allowed =
        !guarded || minimum >= running || minimum <= running - victim.at("victimPods").get<int>();
  }
  out.Same(function, expected, allowed);
}

}  // namespace sublet::scheduler
