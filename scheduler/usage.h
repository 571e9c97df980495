// UsageHistory: what every queue held over time, as a share of what the cluster had, over a window
// (usage_window.h) and with older use counting less: half of it after one half-life. It is the
// `usage` of the fair-share division (shares.h), where KAI asks a Prometheus server; here the
// scheduler remembers by itself.
//   usage = integral of allocated x 0.5^(age / half-life) / the same integral of the cluster's
//   amounts, both since the window began
// A sliding window is kept in pieces; the piece at its edge counts in proportion. Threads: one, the
// scheduler's. Bound: one row per queue and piece; rows of queues that are gone fade out.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <string>

#include "scheduler/engine.h"
#include "scheduler/usage_window.h"

namespace sublet::scheduler {

class UsageHistory {
 public:
  using Row = std::array<double, 3>;  // cpu, memory, gpu
  static constexpr int kPieces = 24;  // of a sliding window
  // The text is kept in a ConfigMap. A longer history is written as one piece.
  static constexpr std::size_t kTextMax = 900'000;

  // `params` has been checked.
  explicit UsageHistory(const UsageParams& params);

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
  // Amount x milliseconds, as they count at `end`.
  struct Piece {
    Millis begin = 0, end = 0;
    Row total{};
    std::map<std::string, Row> queues;  // those that held something
  };
  double Kept(Millis age) const;
  Millis WindowStart(Millis now) const;
  void Count(Millis from, Millis to);
  double Weight(const Piece& piece) const;
  Piece Merged() const;

  UsageParams params_;
  CronTimes cron_;
  Millis width_;      // of a piece; 0 = one piece for the whole window
  Millis at_ = 0;     // 0 = never
  Row total_held_{};  // since at_
  std::map<std::string, Row> held_;
  std::deque<Piece> pieces_;
};

}  // namespace sublet::scheduler
