#include "controllers/zone_evictions.h"

#include <algorithm>

namespace sublet::controllers {
namespace {

// Below this many lost nodes a zone counts as well, whatever part of it they are.
constexpr std::size_t kFewNodes = 2;

}  // namespace

bool ZoneEvictions::Put(const std::string& node, const std::string& zone, bool ready) {
  const MutexLock lock(mutex_);
  const auto found = nodes_.find(node);
  if (found != nodes_.end() && found->second.zone == zone && found->second.ready == ready) {
    return false;
  }
  bool changed = RemoveLocked(node);
  const Member& member = nodes_[node] = {zone, ready};
  changed = Count(member, true) || changed;
  return changed;
}

bool ZoneEvictions::Remove(const std::string& node) {
  const MutexLock lock(mutex_);
  return RemoveLocked(node);
}

bool ZoneEvictions::RemoveLocked(const std::string& node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) {
    return false;
  }
  const bool changed = Count(found->second, false);
  nodes_.erase(found);
  passed_.erase(node);
  return changed;
}

// Counts one node in or out; true when its zone's state, or that of all together, is another one
// now.
bool ZoneEvictions::Count(const Member& member, bool in) {
  const bool all_before = AllDisruptedLocked();
  Zone& zone = zones_[member.zone];
  std::size_t& counter = member.ready ? zone.ready : zone.not_ready;
  counter += in ? 1 : -1;
  const ZoneState before = zone.state;
  const std::size_t all = zone.ready + zone.not_ready;
  if (zone.ready == 0 && zone.not_ready > 0) {
    zone.state = ZoneState::kFullDisruption;
  } else if (zone.not_ready > kFewNodes && static_cast<double>(zone.not_ready) >=
                                               rates_.unhealthy_part * static_cast<double>(all)) {
    zone.state = ZoneState::kPartialDisruption;
  } else {
    zone.state = ZoneState::kNormal;
  }
  const bool changed = zone.state != before;
  if (all == 0) {
    zones_.erase(member.zone);
  }
  if (AllDisruptedLocked() == all_before) {
    return changed;
  }
  passed_.clear();  // taints go; who is lost afterwards waits its turn again
  return true;
}

std::optional<std::chrono::nanoseconds> ZoneEvictions::Ask(const std::string& node,
                                                           MonotonicTime now) {
  const MutexLock lock(mutex_);
  const auto member = nodes_.find(node);
  if (member == nodes_.end() || AllDisruptedLocked()) {
    return std::nullopt;
  }
  if (passed_.contains(node)) {
    return std::chrono::nanoseconds(0);
  }
  Zone& zone = zones_[member->second.zone];
  double rate = rates_.normal;
  if (zone.state == ZoneState::kPartialDisruption) {
    rate = zone.ready + zone.not_ready > rates_.large_zone_nodes ? rates_.reduced : 0;
  }
  if (rate <= 0) {
    return std::nullopt;
  }
  const std::chrono::nanoseconds pause(static_cast<std::int64_t>(1e9 / rate));
  if (zone.last && now < *zone.last + pause) {
    return *zone.last + pause - now;
  }
  zone.last = now;
  passed_.insert(node);
  return std::chrono::nanoseconds(0);
}

bool ZoneEvictions::AllDisrupted() const {
  const MutexLock lock(mutex_);
  return AllDisruptedLocked();
}

bool ZoneEvictions::AllDisruptedLocked() const {
  return std::all_of(zones_.begin(), zones_.end(), [](const auto& entry) {
    return entry.second.state == ZoneState::kFullDisruption;
  });
}

ZoneState ZoneEvictions::StateOf(const std::string& zone) const {
  const MutexLock lock(mutex_);
  const auto found = zones_.find(zone);
  return found != zones_.end() ? found->second.state : ZoneState::kNormal;
}

}  // namespace sublet::controllers
