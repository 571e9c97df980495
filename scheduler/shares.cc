#include "scheduler/shares.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace sublet::scheduler {

namespace {

template <typename F>
Amounts Each(const QueueShare& queue, F f) {
  Amounts out{};
  for (int i = 0; i < kShareDims; ++i) {
    out[i] = f(queue.r[i]);
  }
  return out;
}

}  // namespace

Amounts QueueShare::Deserved() const {
  return Each(*this, [](const auto& s) { return s.deserved; });
}
Amounts QueueShare::FairShare() const {
  return Each(*this, [](const auto& s) { return s.fair_share; });
}
Amounts QueueShare::Allocated() const {
  return Each(*this, [](const auto& s) { return s.allocated; });
}
Amounts QueueShare::AllocatedNonPreemptible() const {
  return Each(*this, [](const auto& s) { return s.allocated_np; });
}
Amounts QueueShare::Allocatable() const { return Each(*this, AllocatableShare); }

Amounts Plus(const Amounts& a, const Amounts& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
Amounts Minus(const Amounts& a, const Amounts& b) {
  return {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
}

int CompareAmount(double left, double right) {
  if (left == kUnlimited) {
    return right == kUnlimited ? 0 : 1;
  }
  if (right == kUnlimited) {
    return -1;
  }
  return left > right ? 1 : left < right ? -1 : 0;
}

bool LessEqual(const Amounts& left, const Amounts& right) {
  for (int i = 0; i < kShareDims; ++i) {
    if (CompareAmount(left[i], right[i]) > 0) {
      return false;
    }
  }
  return true;
}

bool StrictlyLess(const Amounts& left, const Amounts& right) {
  return left[0] < right[0] && left[1] < right[1] && left[2] < right[2];
}

double Requestable(const ResourceShare& share) {
  return share.limit == kUnlimited ? share.request : std::min(share.limit, share.request);
}

double AllocatableShare(const ResourceShare& share) {
  if (share.deserved == kUnlimited) {
    return share.limit;
  }
  const double most = std::max(share.deserved, share.fair_share);
  return share.limit == kUnlimited ? most : std::min(share.limit, most);
}

double DominantShare(const QueueShare& queue, const Amounts& allocated, const Amounts& total) {
  constexpr double kNoShareFactor = 1000;  // KAI's penalty for use without any share
  double dominant = 0;
  for (int i = 0; i < kShareDims; ++i) {
    double allocatable = AllocatableShare(queue.r[i]);
    if (allocatable == kUnlimited) {
      allocatable = total[i];
    }
    dominant = std::max(
        dominant, allocatable == 0 ? allocated[i] * kNoShareFactor : allocated[i] / allocatable);
  }
  return dominant;
}

namespace {

double RemainingRequest(const ResourceShare& share) {
  const double requested = Requestable(share);
  return requested < share.fair_share ? 0 : requested - share.fair_share;
}

bool Satisfied(const ResourceShare& share) {
  return share.request <= share.fair_share ||
         (share.limit != kUnlimited && share.limit <= share.fair_share);
}

// What rounding kept from a queue; ordered only when it is handed out, never by this map's keys.
using Remainders = std::map<QueueShare*, double>;

// One pass over the queues of one priority. Returns true when another pass can give more.
bool GiveOnce(double* left, double k, int resource, const std::vector<QueueShare*>& queues,
              Remainders* remainders, bool* any_weight) {
  double weights = 0;
  for (const QueueShare* queue : queues) {
    if (RemainingRequest(queue->r[resource]) > 0) {
      weights += queue->r[resource].weight;
    }
  }
  *any_weight = false;
  if (weights == 0) {
    return false;
  }
  std::vector<double> weight(queues.size(), 0);
  double sum = 0;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const ResourceShare& share = queues[i]->r[resource];
    if (!Satisfied(share)) {
      const double normal = share.weight / weights;
      weight[i] = std::max(0.0, normal + k * (normal - share.usage));
      sum += weight[i];
    }
  }
  if (sum == 0) {
    return false;
  }
  *any_weight = true;
  const double round = *left;
  bool again = false;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    ResourceShare& share = queues[i]->r[resource];
    if (*left == 0) {
      break;
    }
    if (Satisfied(share) || share.weight == 0) {
      continue;
    }
    const double requested = RemainingRequest(share);
    const double fair = round * (weight[i] / sum);
    double give = requested;
    if (requested > fair) {
      give = std::max(0.0, std::floor(fair));
      if (fair - give > 0) {
        (*remainders)[queues[i]] = fair - give;
      }
    } else {
      remainders->erase(queues[i]);
    }
    if (give == 0) {
      continue;
    }
    share.fair_share += give;
    *left -= give;
    again = again || requested < fair;
  }
  return again;
}

}  // namespace

double DivideOverQuota(double total, double k, int resource,
                       const std::vector<QueueShare*>& queues) {
  std::map<int, std::vector<QueueShare*>, std::greater<>> by_priority;
  for (QueueShare* queue : queues) {
    by_priority[queue->priority].push_back(queue);
  }
  for (auto& [priority, members] : by_priority) {
    // KAI walks a map here; name order makes the float sums repeatable.
    std::sort(members.begin(), members.end(),
              [](const QueueShare* a, const QueueShare* b) { return a->name < b->name; });
  }
  double left = total;
  std::map<int, Remainders, std::greater<>> remainders;
  for (auto& [priority, members] : by_priority) {
    bool any = true;
    while (GiveOnce(&left, k, resource, members, &remainders[priority], &any) && left != 0 && any) {
    }
  }
  for (auto& [priority, open] : remainders) {
    std::vector<std::pair<QueueShare*, double>> order(open.begin(), open.end());
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      if (a.second != b.second) {
        return a.second > b.second;
      }
      return a.first->created != b.first->created ? a.first->created < b.first->created
                                                  : a.first->name < b.first->name;
    });
    for (auto& [queue, remainder] : order) {
      if (left <= 0) {
        break;
      }
      const double give = std::min(1.0, left);
      queue->r[resource].fair_share += give;
      left -= give;
    }
  }
  return left;
}

double Divide(double total, double k, int resource, const std::vector<QueueShare*>& queues) {
  double left = total;
  for (QueueShare* queue : queues) {
    ResourceShare& share = queue->r[resource];
    const double deserved = share.deserved == kUnlimited ? total : share.deserved;
    const double amount = std::min(deserved, Requestable(share));
    share.fair_share += amount;
    left -= amount;
  }
  return left > 0 ? DivideOverQuota(left, k, resource, queues) : 0;
}

void DivideTree(const Amounts& total, double k, const std::vector<QueueShare*>& queues,
                const std::vector<std::vector<int>>& children, const std::vector<int>& roots) {
  std::vector<std::pair<const std::vector<int>*, Amounts>> open{{&roots, total}};
  while (!open.empty()) {
    const auto [level, amount] = open.back();
    open.pop_back();
    std::vector<QueueShare*> members;
    for (int index : *level) {
      members.push_back(queues[static_cast<std::size_t>(index)]);
    }
    for (int resource = 0; resource < kShareDims; ++resource) {
      Divide(amount[resource], k, resource, members);
    }
    for (int index : *level) {
      const auto& below = children[static_cast<std::size_t>(index)];
      if (!below.empty()) {
        open.emplace_back(&below, queues[static_cast<std::size_t>(index)]->FairShare());
      }
    }
  }
}

int OverLimit(const QueueShare& queue, const Amounts& request) {
  for (int i = 0; i < kShareDims; ++i) {
    const ResourceShare& share = queue.r[i];
    if (share.limit != kUnlimited && request[i] != 0 &&
        share.limit < share.allocated + request[i]) {
      return i;
    }
  }
  return -1;
}

int NonPreemptibleOverQuota(const QueueShare& queue, const Amounts& request) {
  for (int i = 0; i < kShareDims; ++i) {
    const ResourceShare& share = queue.r[i];
    if (share.deserved != kUnlimited && request[i] != 0 &&
        share.deserved < share.allocated_np + request[i]) {
      return i;
    }
  }
  return -1;
}

}  // namespace sublet::scheduler
