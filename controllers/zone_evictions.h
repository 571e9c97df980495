// ZoneEvictions: how fast nodes that are not ready lose their pods. A zone that fails as a whole,
// or in large part, is more often cut off than broken, so the node lifecycle controller asks here
// before it puts a NoExecute taint onto a node. Invariants: a node that was let through stays so
// until it is ready again; a zone lets one node through at once and the next ones at its rate.
// Source: kube-controller-manager pkg/controller/nodelifecycle (ComputeZoneState,
// zoneNoExecuteTainter). Threads: any. No clock of its own.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace sublet::controllers {

// Upstream's flags and their defaults. Rates in nodes per second and zone.
struct EvictionRates {
  double normal = 0.1;    // --node-eviction-rate
  double reduced = 0.01;  // --secondary-node-eviction-rate, in a large zone that fails in part
  double unhealthy_part = 0.55;       // --unhealthy-zone-threshold
  std::size_t large_zone_nodes = 50;  // --large-cluster-size-threshold: smaller ones then stop
};

enum class ZoneState { kNormal, kPartialDisruption, kFullDisruption };

class ZoneEvictions {
 public:
  explicit ZoneEvictions(const EvictionRates& rates) : rates_(rates) {}

  // What is known of a node; `ready` is its condition. True when the state of a zone changed, so
  // that nodes which were told to wait should ask again.
  bool Put(const std::string& node, const std::string& zone, bool ready);
  bool Remove(const std::string& node);

  // How long the node has to wait: zero = it may be tainted now, which uses up the zone's turn;
  // nullopt = until Put or Remove says that a state changed.
  std::optional<std::chrono::nanoseconds> Ask(const std::string& node, MonotonicTime now);

  // No node is ready anywhere: it is the control plane that is cut off, and nobody is evicted.
  bool AllDisrupted() const;
  ZoneState StateOf(const std::string& zone) const;

 private:
  struct Member {
    std::string zone;
    bool ready = false;
  };
  struct Zone {
    std::size_t ready = 0;
    std::size_t not_ready = 0;
    std::optional<MonotonicTime> last;  // when a node was let through
    ZoneState state = ZoneState::kNormal;
  };
  bool Count(const Member& member, bool in) SUBLET_REQUIRES(mutex_);
  bool RemoveLocked(const std::string& node) SUBLET_REQUIRES(mutex_);
  bool AllDisruptedLocked() const SUBLET_REQUIRES(mutex_);

  const EvictionRates rates_;
  mutable Mutex mutex_;
  std::map<std::string, Member> nodes_ SUBLET_GUARDED_BY(mutex_);
  std::map<std::string, Zone> zones_ SUBLET_GUARDED_BY(mutex_);
  std::set<std::string> passed_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::controllers
