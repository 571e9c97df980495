#include "gpu/gpud/arbiter.h"

#include <algorithm>
#include <utility>

namespace sublet::gpu {

std::vector<std::int32_t> EffectiveShares(const std::vector<LeasePolicy>& policies) {
  std::vector<std::int32_t> shares(policies.size(), 0);
  std::vector<bool> fixed(policies.size(), false);
  // Each round fixes at least one slice at its request or limit, or ends.
  for (std::size_t round = 0; round <= policies.size(); ++round) {
    std::int64_t left = 1000;
    std::int64_t weight = 0;
    for (std::size_t i = 0; i < policies.size(); ++i) {
      left -= fixed[i] ? shares[i] : 0;
      weight += fixed[i] ? 0 : policies[i].weight;
    }
    left = std::max<std::int64_t>(left, 0);
    std::int64_t over = 0;   // what limits cut off
    std::int64_t under = 0;  // what requests lack
    for (std::size_t i = 0; i < policies.size(); ++i) {
      if (fixed[i]) {
        continue;
      }
      const auto share =
          static_cast<std::int32_t>(left * policies[i].weight / std::max<std::int64_t>(weight, 1));
      shares[i] = std::clamp(share, std::min(policies[i].request_milli, policies[i].limit_milli),
                             policies[i].limit_milli);
      (shares[i] < share ? over : under) += std::abs(share - shares[i]);
    }
    if (over == 0 && under == 0) {
      break;
    }
    // Fix the side that moves more; the others are divided again.
    for (std::size_t i = 0; i < policies.size(); ++i) {
      if (fixed[i]) {
        continue;
      }
      const auto share =
          static_cast<std::int32_t>(left * policies[i].weight / std::max<std::int64_t>(weight, 1));
      fixed[i] = over >= under ? shares[i] < share : shares[i] > share;
    }
  }
  return shares;
}

const Arbiter::Member* Arbiter::Find(int slice) const {
  for (const Member& member : members_) {
    if (member.slice == slice) {
      return &member;
    }
  }
  return nullptr;
}

Arbiter::Member* Arbiter::Find(int slice) {
  return const_cast<Member*>(std::as_const(*this).Find(slice));
}

const LeaseAccount* Arbiter::FindAccount(int slice) const {
  const Member* member = Find(slice);
  return member == nullptr ? nullptr : &member->account;
}

const LeaseWord* Arbiter::FindWord(int slice) const {
  const Member* member = Find(slice);
  return member == nullptr ? nullptr : &member->word;
}

void Arbiter::Add(int slice, const LeasePolicy& policy) {
  if (Find(slice) == nullptr) {
    Member member;
    member.slice = slice;
    member.policy = policy;
    members_.push_back(member);
  }
}

void Arbiter::Remove(int slice) {
  if (holder_ == slice) {
    holder_ = -1;
    mode_ = Mode::kFree;
  }
  std::erase_if(members_, [&](const Member& member) { return member.slice == slice; });
  if (ring_ >= members_.size()) {
    ring_ = 0;
  }
}

void Arbiter::Want(int slice) {
  if (Member* member = Find(slice)) {
    member->wants = true;
  }
}

void Arbiter::Idle(int slice) { said_idle_ = said_idle_ || slice == holder_; }

void Arbiter::Set(Member& member, const LeaseWord& word, const Publish& publish) {
  if (!(member.word == word)) {
    member.word = word;
    publish(member.slice, word);
  }
}

void Arbiter::Refill(Nanoseconds now) {
  const Nanoseconds passed = refilled_at_ == 0 ? 0 : now - refilled_at_;
  refilled_at_ = now;
  for (Member& member : members_) {
    if (member.policy.limit_milli < 1000) {
      member.bucket = std::min(member.bucket + passed / 1000 * member.policy.limit_milli,
                               kBurst / 1000 * member.policy.limit_milli);
    }
  }
}

bool Arbiter::MayRun(const Member& member) const {
  return member.policy.limit_milli >= 1000 || member.bucket >= kTurnMin;
}

// The time at which a limited slice that waits may run again, when nobody else does.
Nanoseconds Arbiter::NextRefill(Nanoseconds now) const {
  Nanoseconds next = 0;
  for (const Member& member : members_) {
    if (member.wants && !MayRun(member)) {
      const Nanoseconds at =
          now + (kTurnMin - member.bucket) * 1000 / member.policy.limit_milli + 1000;
      next = next == 0 ? at : std::min(next, at);
    }
  }
  return next;
}

// Deficit round robin: walks the ring, each visit adding the slice's part of a round, until one has
// at least a shortest turn saved. Returns the index, or -1 when nobody may run.
int Arbiter::PickNext() {
  // Only what a slice uses of its time brings the others theirs, not how often it was cut off.
  if (const Member* cut_off = Find(std::exchange(cut_off_, -1));
      cut_off != nullptr && cut_off->wants && MayRun(*cut_off) && cut_off->deficit >= kTurnMin) {
    return static_cast<int>(cut_off - members_.data());
  }
  std::vector<LeasePolicy> policies;
  std::vector<std::size_t> who;
  bool light = false;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].wants && MayRun(members_[i])) {
      policies.push_back(members_[i].policy);
      who.push_back(i);
      light = light || members_[i].ends_early;
    }
  }
  if (who.empty()) {
    return -1;
  }
  const std::vector<std::int32_t> shares = EffectiveShares(policies);
  const Nanoseconds round = light ? kRoundShort : kRoundLong;
  // First in the ring after the last turn.
  std::size_t start = 0;
  while (start < who.size() && who[start] < ring_) {
    ++start;
  }
  // The deepest debt bounds the walk: whole rounds that leave everyone below a turn are added at
  // once.
  Nanoseconds rounds = -1;
  for (std::size_t i = 0; i < who.size(); ++i) {
    const Nanoseconds part = std::max<Nanoseconds>(round / 1000 * shares[i], 1000);
    const Nanoseconds lacks = std::max<Nanoseconds>(kTurnMin - members_[who[i]].deficit - part, 0);
    const Nanoseconds needs = (lacks + part - 1) / part;
    rounds = rounds < 0 ? needs : std::min(rounds, needs);
  }
  for (std::size_t i = 0; i < who.size() && rounds > 0; ++i) {
    members_[who[i]].deficit += rounds * std::max<Nanoseconds>(round / 1000 * shares[i], 1000);
  }
  for (std::size_t step = 0; step < 2 * who.size(); ++step) {
    const std::size_t i = (start + step) % who.size();
    Member& member = members_[who[i]];
    member.deficit += std::max<Nanoseconds>(round / 1000 * shares[i], 1000);
    if (member.deficit >= kTurnMin) {
      return static_cast<int>(who[i]);
    }
  }
  return static_cast<int>(who[start % who.size()]);
}

Nanoseconds Arbiter::TurnLength(int slice) const {
  return mode_ == Mode::kTurn && holder_ == slice ? turn_end_ - turn_start_ : 0;
}

bool Arbiter::Summon(int slice, Nanoseconds length) {
  const Member* member = Find(slice);
  if (member == nullptr || !member->wants || slice == holder_ || summoned_ >= 0 ||
      !MayRun(*member) || member->deficit <= -kRoundLong) {
    return false;
  }
  summoned_ = slice;
  summoned_length_ = length;
  const Member* holder = Find(holder_);
  if (mode_ == Mode::kTurn && holder != nullptr && !holder->policy.is_gang) {
    is_cut_ = true;
    cut_off_ = holder_;
  }
  return true;
}

bool Arbiter::IsLagging(int slice) const {
  const Member* member = Find(slice);
  return member != nullptr &&
         (member->lags_since != 0 || (mode_ == Mode::kDrain && holder_ == slice));
}

int Arbiter::TakeSummoned() {
  const Member* member = Find(std::exchange(summoned_, -1));
  return member == nullptr ? -1 : static_cast<int>(member - members_.data());
}

void Arbiter::Begin(std::size_t at, Nanoseconds now, Nanoseconds gathered, const Observe& observe,
                    const Publish& publish) {
  Member& member = members_[at];
  ChargeLag(member, now);
  Nanoseconds length = gathered != 0 ? gathered : std::max(member.deficit, kTurnMin);
  if (member.policy.limit_milli < 1000) {
    length = std::min(length, std::max(member.bucket, kTurnMin));
  }
  holder_ = member.slice;
  if (gathered == 0) {
    ring_ = at + 1 < members_.size() ? at + 1 : 0;  // a gathered turn is out of the order
  }
  is_cut_ = false;
  mode_ = Mode::kTurn;
  turn_start_ = now;
  turn_end_ = now + length;
  last_activity_ = now;
  seen_launches_ = observe(member.slice).launches;
  overlap_ = 0;
  said_idle_ = false;
  member.wants = false;
  ++member.account.turns;
  Set(member, {.is_open = true, .is_contended = true, .end = turn_end_}, publish);
}

void Arbiter::Close(Nanoseconds now, bool early, const Publish& publish) {
  mode_ = Mode::kDrain;
  closed_early_ = early;
  drain_until_ = std::max(now, turn_end_) + 2 * (turn_end_ - turn_start_);
  if (Member* member = Find(holder_)) {
    member->ends_early = early;
    Set(*member, LeaseWord{}, publish);
  }
}

void Arbiter::Charge(Nanoseconds now, const LeaseObservation& seen) {
  Member* member = Find(holder_);
  if (member == nullptr) {
    return;
  }
  // A turn given back early costs what was used of it; otherwise until the work was done.
  Nanoseconds until = now;
  if (seen.is_unfinished) {
    member->lags_since = now;
  } else {
    until = std::clamp(seen.last_done, turn_start_, now);
    if (!closed_early_) {
      until = std::max(until, std::min(turn_end_, now));
    }
  }
  Nanoseconds overlap = overlap_;
  for (const Member& other : members_) {
    if (other.lags_since != 0 && other.slice != holder_) {
      overlap += std::max<Nanoseconds>(until - std::max(other.lags_since, turn_start_), 0);
    }
  }
  const Nanoseconds used = std::max<Nanoseconds>(until - turn_start_ - overlap / 2, 0);
  member->account.used += used;
  if (until > turn_end_) {
    member->account.overrun += until - turn_end_;
    member->account.overruns += until - turn_end_ > (turn_end_ - turn_start_) / 4 ? 1 : 0;
  }
  member->deficit -= used;
  member->bucket -= member->policy.limit_milli < 1000 ? used : 0;
  if (closed_early_ && member->deficit > 0) {
    member->deficit = 0;  // what it did not use is lent, not saved
  }
}

void Arbiter::ChargeLag(Member& member, Nanoseconds until) {
  if (member.lags_since == 0) {
    return;
  }
  const Nanoseconds used = std::max<Nanoseconds>(until - member.lags_since, 0) / 2;
  if (mode_ != Mode::kFree) {
    overlap_ += std::max<Nanoseconds>(until - std::max(member.lags_since, turn_start_), 0);
  }
  member.lags_since = 0;
  member.deficit -= used;
  member.account.used += used;
  member.account.overrun += used;
  member.bucket -= member.policy.limit_milli < 1000 ? used : 0;
}

// Looks at a turn under way. *again: a decision follows at once.
Nanoseconds Arbiter::StepTurn(Nanoseconds now, const Observe& observe, const Publish& publish,
                              bool* again) {
  const LeaseObservation seen = observe(holder_);
  if (mode_ == Mode::kTurn) {
    if (seen.launches != seen_launches_ || seen.is_unfinished || seen.is_waiting) {
      last_activity_ = now;
      seen_launches_ = seen.launches;
      said_idle_ = said_idle_ && !seen.is_unfinished && !seen.is_waiting;
    }
    const bool idle = !seen.is_unfinished && !seen.is_waiting &&
                      (said_idle_ || now - last_activity_ >= kIdleAfter);
    if (now < turn_end_ && !idle && !is_cut_) {
      return std::min(turn_end_, now + kTick);
    }
    Close(now, now < turn_end_ && idle, publish);
  }
  if (seen.is_unfinished && now < drain_until_) {
    return std::min(drain_until_, now + kTick / 2);
  }
  Charge(now, seen);
  holder_ = -1;
  mode_ = Mode::kFree;
  *again = true;
  return 0;
}

Nanoseconds Arbiter::Step(Nanoseconds now, const Observe& observe, const Publish& publish) {
  Refill(now);
  for (;;) {
    int wanting = 0;
    bool may_run = false;
    for (Member& member : members_) {
      if (!member.word.is_open || member.slice != holder_) {
        const LeaseObservation seen = observe(member.slice);
        member.wants = member.wants || seen.is_waiting;
        if (member.lags_since != 0 && !seen.is_unfinished) {
          ChargeLag(member, std::clamp(seen.last_done, member.lags_since, now));
        }
      }
      wanting += member.wants ? 1 : 0;
      may_run = may_run || (member.wants && MayRun(member));
      // An idle slice keeps its debt but saves nothing.
      if (!member.wants && member.slice != holder_ && member.deficit > 0) {
        member.deficit = 0;
      }
    }
    if (mode_ == Mode::kSolo) {
      if (wanting == 0) {
        return 0;
      }
      // Somebody joined: the one that was alone gets a turn like everybody. Idle ones lose it soon.
      Member* member = Find(holder_);
      const std::size_t at = static_cast<std::size_t>(member - members_.data());
      member->deficit = kRoundShort / 2;
      Begin(at, now, 0, observe, publish);
    }
    if (mode_ == Mode::kTurn || mode_ == Mode::kDrain) {
      bool again = false;
      const Nanoseconds next = StepTurn(now, observe, publish, &again);
      if (!again) {
        return next;
      }
      continue;
    }
    if (wanting == 0) {
      return 0;
    }
    if (!may_run) {
      return NextRefill(now);
    }
    if (const int gathered = TakeSummoned(); gathered >= 0) {
      Begin(static_cast<std::size_t>(gathered), now, summoned_length_, observe, publish);
      continue;
    }
    const int at = PickNext();
    Member& member = members_[static_cast<std::size_t>(at)];
    if (wanting == 1 && member.policy.limit_milli >= 1000) {
      member.wants = false;
      member.deficit = 0;
      holder_ = member.slice;
      mode_ = Mode::kSolo;
      Set(member, {.is_open = true}, publish);
      return 0;
    }
    Begin(static_cast<std::size_t>(at), now, 0, observe, publish);
  }
}

std::vector<std::size_t> GatherTurns(const std::vector<Arbiter*>& arbiters, int slice) {
  Nanoseconds length = 0;
  for (const Arbiter* arbiter : arbiters) {
    length = std::max(length, arbiter->TurnLength(slice));
  }
  const bool is_lagging =
      std::any_of(arbiters.begin(), arbiters.end(),
                  [&](const Arbiter* arbiter) { return arbiter->IsLagging(slice); });
  length = length == 0 && is_lagging ? Arbiter::kRescue : length;
  std::vector<std::size_t> summoned;
  for (std::size_t i = 0; i < arbiters.size(); ++i) {
    if (length != 0 && arbiters[i]->Summon(slice, length)) {
      summoned.push_back(i);
    }
  }
  return summoned;
}

}  // namespace sublet::gpu
