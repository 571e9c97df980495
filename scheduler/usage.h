// UsageHistory: what every queue held over time, as a share of what the cluster had, older use
// counting less: half of it after one half-life. It is the `usage` of the fair-share division
// (shares.h), where KAI asks a Prometheus server; here the scheduler remembers by itself.
//   usage = integral of allocated x 0.5^(age / half-life) / the same integral of the cluster's
//   amounts
// Threads: one, the scheduler's. Bound: one row per queue; rows of queues that are gone fade out.
#pragma once

#include <array>
#include <map>
#include <string>

#include "scheduler/engine.h"

namespace sublet::scheduler {

class UsageHistory {
 public:
  using Row = std::array<double, 3>;  // cpu, memory, gpu

  // `half_life` > 0.
  explicit UsageHistory(Millis half_life) : half_life_(half_life) {}

  // Counts what was held since the last call, then takes `queues` and `total` as held from `now`
  // on. A clock that went back counts nothing.
  void Advance(Millis now, const std::vector<QueueView>& queues, const Row& total);
  // Shares of the cluster, 0 to 1, by queue.
  std::map<std::string, Row> Shares() const;

  // The history as text, and back. Decode returns false, and changes nothing, when it is not such a
  // text. What was held while nobody looked (a restart) is not counted; it ages.
  std::string Encode() const;
  bool Decode(const std::string& text);

 private:
  struct Track {
    Row held{};  // now
    Row sum{};   // amount x milliseconds, aged
  };
  Millis half_life_;
  Millis at_ = 0;  // 0 = never
  Track total_;
  std::map<std::string, Track> queues_;
};

}  // namespace sublet::scheduler
