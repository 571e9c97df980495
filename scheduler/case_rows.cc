#include "scheduler/case_rows.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace sublet::scheduler {

using kube::Json;

namespace {

bool Near(double a, double b) {
  return a == b || std::fabs(a - b) <= 1e-9 * std::max(1.0, std::max(std::fabs(a), std::fabs(b)));
}

}  // namespace

std::string CaseText(const Json& object, const char* key) {
  return object.contains(key) && object.at(key).is_string() ? object.at(key).get<std::string>()
                                                            : "";
}

Amounts CaseAmounts(const Json& object) {
  Amounts amounts{};
  for (int i = 0; i < kShareDims; ++i) {
    amounts[i] = object.value(kCaseDims[i], 0.0);
  }
  return amounts;
}

QueueShare CaseQueue(const Json& object) {
  QueueShare queue;
  queue.name = CaseText(object, "name");
  queue.priority = object.value("priority", 100);
  queue.created = object.value("createdOrder", Millis{0});
  for (int i = 0; i < kShareDims; ++i) {
    if (!object.contains(kCaseDims[i])) {
      continue;
    }
    const Json& from = object.at(kCaseDims[i]);
    ResourceShare& share = queue.r[i];
    share.deserved = from.value("deserved", 0.0);
    share.limit = from.value("limit", 0.0);
    share.weight = from.value("weight", 0.0);
    share.request = from.value("request", 0.0);
    share.allocated = from.value("allocated", 0.0);
    share.allocated_np = from.value("allocatedNonPreemptible", 0.0);
    share.fair_share = from.value("fairShare", 0.0);
    share.usage = from.value("usage", 0.0);
  }
  return queue;
}

CaseQueues::CaseQueues(const Json& list) {
  for (const Json& object : list) {
    index[CaseText(object, "name")] = static_cast<int>(queues.size());
    queues.push_back(CaseQueue(object));
  }
  children.resize(queues.size());
  for (std::size_t i = 0; i < queues.size(); ++i) {
    pointers.push_back(&queues[i]);
    const std::string parent = CaseText(list[i], "parent");
    const auto it = index.find(parent);
    if (it != index.end()) {
      queues[i].parent = it->second;
      children[static_cast<std::size_t>(it->second)].push_back(static_cast<int>(i));
    } else {
      roots.push_back(static_cast<int>(i));
    }
  }
}

int CaseQueues::At(const std::string& name) const {
  const auto it = index.find(name);
  return it == index.end() ? -1 : it->second;
}

void CaseRow::Same(const std::string& what, const Json& want, const Json& have) {
  if (want.is_number() && have.is_number() ? !Near(want.get<double>(), have.get<double>())
                                           : want != have) {
    problems_->push_back(what + ": expected " + want.dump() + ", got " + have.dump());
  }
}

}  // namespace sublet::scheduler
