// LeaseSchedule: when each simulated node's lease is written. A node is written no sooner than the
// interval after its last write, and the writes of many nodes are spread: the first ones after the
// registration, when all come at once, are up to kFirstSpread later, by the node's number.
// Pure: time is handed in. Threads: none of its own; SimulatedNodes guards it with its mutex.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace sublet::node {

class LeaseSchedule {
 public:
  using Interval = MonotonicTime::duration;
  // Beyond the interval, so that interval and spread together stay below a lease's 40 s.
  static constexpr Interval kFirstSpread = std::chrono::seconds(12);

  LeaseSchedule(int nodes, Interval interval) : interval_(interval), due_of_(nodes) {}

  // The node's lease has just been written for the first time, or anew after its node was replaced.
  void Written(int node, MonotonicTime now) {
    Put(node, now + interval_ + kFirstSpread * node / static_cast<int>(due_of_.size()));
  }

  // When there is something to take; nullopt: no node is known.
  std::optional<MonotonicTime> NextAt() const {
    return queue_.empty() ? std::nullopt : std::optional<MonotonicTime>(queue_.begin()->first);
  }

  // The node to be written now, or nullopt. Its next turn is the interval after `now`: a slow server
  // stretches the rounds, and what it missed is not caught up.
  std::optional<int> Take(MonotonicTime now) {
    if (queue_.empty() || queue_.begin()->first > now) {
      return std::nullopt;
    }
    const int node = queue_.begin()->second;
    Put(node, now + interval_);
    return node;
  }

 private:
  void Put(int node, MonotonicTime at) {
    std::optional<Queue::iterator>& place = due_of_[static_cast<std::size_t>(node)];
    if (place) {
      queue_.erase(*place);
    }
    place = queue_.emplace(at, node);
  }

  using Queue = std::multimap<MonotonicTime, int>;
  const Interval interval_;
  Queue queue_;
  std::vector<std::optional<Queue::iterator>> due_of_;
};

}  // namespace sublet::node
