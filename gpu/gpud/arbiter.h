// Arbiter: which slice may use one device now. Time goes in, lease words come out; gpud's engine
// feeds it with what the usage pages show and writes the words into the control pages.
//
// One slice alone: its word is open for good, and nothing runs. Two or more: turns by deficit round
// robin. A round is 8–24 ms; each slice's turn is its part of the round by weight, raised to its
// request and cut at its limit. A turn ends at its end, or early when the slice has nothing to do;
// the next begins when the work under way is done, at the latest two turns later (the device then
// slices in time itself). What a slice really used, work after its end included, is taken from its
// deficit: overrun is debt. Unused time is lent to whoever waits (fair); a strict slice never gets
// more than its share and its unused time is still lent to fair ones.
//
// A slice of several devices has an arbiter on each. Its kernels may wait for their partners on the
// other devices, so while it has a turn on one of them it is given the next turn on the others where
// it wants one (GatherTurns): a turn of an ordinary slice there is cut short, and the gathered turn
// ends when the first one does. Each device keeps its own accounts: what was cut off is kept, what
// was had out of turn is debt, and who is a round in debt is not gathered any more.
//
// Invariants: at most one word is open while two slices want the device; a slice that waits gets a
// turn within (number of slices) rounds plus the others' drains, whatever they do.
// Pure: no clock, no I/O. Threads: one at a time (gpud's engine thread).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace sublet::gpu {

using Nanoseconds = std::int64_t;

struct LeasePolicy {
  std::int64_t weight = 1;
  std::int32_t request_milli = 0;   // guaranteed while contended
  std::int32_t limit_milli = 1000;  // never more; strict slices have their share here
  bool is_gang = false;             // has other devices as well: its turns are not cut for another
};

// What the pages say about a slice on this device. All of it is the tenant's word and is only ever
// believed against the tenant: it cannot shorten another's turn.
struct LeaseObservation {
  bool is_waiting = false;     // threads at the gate
  bool is_unfinished = false;  // counted launches are under way
  std::uint64_t launches = 0;  // changes while it launches
  Nanoseconds last_done = 0;   // when it was last known to be done
};

struct LeaseWord {
  bool is_open = false;
  bool is_contended = false;
  Nanoseconds end = 0;
  bool operator==(const LeaseWord&) const = default;
};

struct LeaseAccount {
  Nanoseconds used = 0;     // charged
  Nanoseconds overrun = 0;  // of it, after the end of a turn
  std::uint64_t turns = 0;
  std::uint64_t overruns = 0;  // turns that ended more than a quarter late
};

// Shares in thousandths of the slices that want the device: by weight, none below its request or
// above its limit; what limits leave over goes to the others. Adds up to at most 1000.
std::vector<std::int32_t> EffectiveShares(const std::vector<LeasePolicy>& policies);

class Arbiter {
 public:
  using Observe = std::function<LeaseObservation(int slice)>;
  using Publish = std::function<void(int slice, const LeaseWord& word)>;

  // `slice` is the caller's number. Its word starts closed.
  void Add(int slice, const LeasePolicy& policy);
  void Remove(int slice);

  // The slice has work and its word is closed.
  void Want(int slice);
  // The slice says it has nothing under way.
  void Idle(int slice);

  // Decides; publishes every word that changed. Returns when to come back, at the latest; 0 = only
  // when something happens (Want, Idle, Add, Remove).
  Nanoseconds Step(Nanoseconds now, const Observe& observe, const Publish& publish);

  // How long the turn is that this slice has now; 0 when it has none.
  Nanoseconds TurnLength(int slice) const;
  // The slice has a turn of `length` on another device: it is given the next turn here, as long as
  // that one, so that both launch equally far; a turn under way ends now, unless it is a gang's.
  // False, and nothing is changed, when it does not want this device, has its turn already, may not
  // run or is a round in debt. After true Step is due.
  bool Summon(int slice, Nanoseconds length);
  // Its launches run on after its turn, perhaps because they wait for partners.
  bool IsLagging(int slice) const;

  const LeaseAccount* FindAccount(int slice) const;
  // Its word as last published; nullptr: unknown slice.
  const LeaseWord* FindWord(int slice) const;

  static constexpr Nanoseconds kRoundLong = 24'000'000;
  static constexpr Nanoseconds kRoundShort = 8'000'000;
  static constexpr Nanoseconds kTurnMin = 1'000'000;
  static constexpr Nanoseconds kRescue = 200'000;  // a launch or two
  static constexpr Nanoseconds kTick = 500'000;    // how often a turn is looked at
  static constexpr Nanoseconds kIdleAfter =
      600'000;  // no launch, nothing under way: the turn is over
  static constexpr Nanoseconds kBurst = 100'000'000;  // how much a limited slice may save up

 private:
  struct Member {
    int slice = 0;
    LeasePolicy policy;
    bool wants = false;
    bool ends_early = false;  // its last turn ended by itself: it is a light one
    Nanoseconds deficit = 0;
    Nanoseconds lags_since =
        0;  // its work runs on beside the next turn; half of that time is charged
    Nanoseconds bucket = kBurst / 10;  // a limited slice's allowance
    LeaseWord word;
    LeaseAccount account;
  };
  enum class Mode : std::uint8_t { kFree, kSolo, kTurn, kDrain };

  Member* Find(int slice);
  const Member* Find(int slice) const;
  void Refill(Nanoseconds now);
  bool MayRun(const Member& member) const;
  int PickNext();
  // The index of the slice that is summoned, -1 when none is.
  int TakeSummoned();
  // `gathered`: the length of a gathered turn; 0: by the slice's deficit.
  void Begin(std::size_t at, Nanoseconds now, Nanoseconds gathered, const Observe& observe,
             const Publish& publish);
  void Close(Nanoseconds now, bool early, const Publish& publish);
  void Charge(Nanoseconds now, const LeaseObservation& seen);
  void ChargeLag(Member& member, Nanoseconds until);
  void Set(Member& member, const LeaseWord& word, const Publish& publish);
  Nanoseconds StepTurn(Nanoseconds now, const Observe& observe, const Publish& publish,
                       bool* again);
  Nanoseconds NextRefill(Nanoseconds now) const;

  std::vector<Member> members_;  // ring order = order of joining
  Mode mode_ = Mode::kFree;
  int holder_ = -1;  // slice
  std::size_t ring_ = 0;
  Nanoseconds turn_start_ = 0;
  Nanoseconds turn_end_ = 0;
  bool is_cut_ = false;  // the turn ends before its time, for a summoned slice
  int summoned_ = -1;    // slice; it is next
  Nanoseconds summoned_length_ = 0;
  int cut_off_ = -1;  // slice; goes on with what is left of its turn, before the ring turns
  Nanoseconds last_activity_ = 0;
  Nanoseconds drain_until_ = 0;
  Nanoseconds overlap_ = 0;  // of this turn, with work of others that ran on: half of it is theirs
  std::uint64_t seen_launches_ = 0;
  bool said_idle_ = false;
  bool closed_early_ = false;
  Nanoseconds refilled_at_ = 0;
};

// Brings the turns of a slice of several devices together: `arbiters` are those of its devices.
// Returns those that it was summoned to, as indexes: Step is due for them. Threads: as Arbiter.
std::vector<std::size_t> GatherTurns(const std::vector<Arbiter*>& arbiters, int slice);

}  // namespace sublet::gpu
