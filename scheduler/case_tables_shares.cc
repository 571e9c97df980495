// The tables of the fair shares: how amounts are divided between queues, and their arithmetic.
#include <functional>
#include <nlohmann/json.hpp>

#include "scheduler/case_tables.h"

namespace sublet::scheduler {

using kube::Json;

void DivisionRow(const Json& row, CaseRow& out) {
  const std::string function = CaseText(row, "function");
  const Json& expected = row.at("expected");
  if (function == "groupByPriority") {
    std::map<int, std::vector<std::string>, std::greater<>> groups;
    for (const auto& [name, priority] : row.at("priorities").items()) {
      groups[priority.get<int>()].push_back(name);
    }
    Json order = Json::array();
    for (const auto& [priority, names] : groups) {
      order.push_back(priority);
      out.Same("group " + std::to_string(priority),
               expected.at("groups").at(std::to_string(priority)), names);
    }
    out.Same("order", expected.at("order"), order);
    return;
  }
  CaseQueues set(row.at("queues"));
  const double k = row.value("kValue", 1.0);
  double left = 0;
  for (int i = 0; i < kShareDims; ++i) {
    if (!row.at("total").contains(kCaseDims[i])) {
      continue;
    }
    const double total = row.at("total").at(kCaseDims[i]).get<double>();
    left = function == "divide" ? Divide(total, k, i, set.pointers)
                                : DivideOverQuota(total, k, i, set.pointers);
    for (const auto& [name, shares] : expected.at("fairShare").items()) {
      if (shares.contains(kCaseDims[i])) {
        out.Same(name + " " + kCaseDims[i], shares.at(kCaseDims[i]),
                 set.queues[static_cast<std::size_t>(set.At(name))].r[i].fair_share);
      }
    }
  }
  if (expected.contains("remaining") && expected.at("remaining").is_number()) {
    out.Same("remaining", expected.at("remaining"), left);
  }
}

void FairShareRow(const Json& row, CaseRow& out) {
  CaseQueues set(row.at("queues"));
  DivideTree(CaseAmounts(row.at("total")), row.value("kValue", 1.0), set.pointers, set.children,
             set.roots);
  for (const auto& [name, share] : row.at("expected").at("gpuFairShare").items()) {
    out.Same(name, share, set.queues[static_cast<std::size_t>(set.At(name))].r[kGpu].fair_share);
  }
}

void ShareArithmeticRow(const Json& row, CaseRow& out) {
  const std::string function = CaseText(row, "function");
  const Json& expected = row.at("expected");
  if (function == "requestable") {
    ResourceShare share;
    share.limit = row.at("limit").get<double>();
    share.request = row.at("request").get<double>();
    out.Same(function, expected, Requestable(share));
  } else if (function == "allocatableShare") {
    const Amounts have = CaseQueue(row.at("queue")).Allocatable();
    for (int i = 0; i < kShareDims; ++i) {
      if (expected.contains(kCaseDims[i])) {
        out.Same(kCaseDims[i], expected.at(kCaseDims[i]), have[i]);
      }
    }
  } else if (function == "dominantShare") {
    const QueueShare queue = CaseQueue(row.at("queue"));
    out.Same(function, expected,
             DominantShare(queue, queue.Allocated(), CaseAmounts(row.at("total"))));
  } else if (function == "compare") {
    out.Same(function, expected,
             CompareAmount(row.at("left").get<double>(), row.at("right").get<double>()));
  } else {
    out.Same("function", "known", function);
  }
}

}  // namespace sublet::scheduler
