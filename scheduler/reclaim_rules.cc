// Order of queues and the rules of reclaim (scheduler/shares.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "scheduler/shares.h"

namespace sublet::scheduler {

namespace {

// -1 when only `left` holds, 1 when only `right` does.
int Prefer(bool left, bool right) { return left == right ? 0 : left ? -1 : 1; }

bool UsesWithoutShare(const Amounts& allocatable, const Amounts& with_job) {
  for (int i = 0; i < kShareDims; ++i) {
    if (allocatable[i] == 0 && with_job[i] > 0) {
      return true;
    }
  }
  return false;
}

int CompareShare(double left, double right) { return left < right ? -1 : left > right ? 1 : 0; }

}  // namespace

int CompareQueues(const QueueSide& left, const QueueSide& right, const Amounts& total) {
  const QueueShare& l = *left.queue;
  const QueueShare& r = *right.queue;
  const Amounts l_allocated = l.Allocated();
  const Amounts r_allocated = r.Allocated();
  if (int c = Prefer(!StrictlyLess(l.FairShare(), l_allocated),
                     !StrictlyLess(r.FairShare(), r_allocated))) {
    return c;
  }
  const Amounts l_with = Plus(l_allocated, left.job);
  const Amounts r_with = Plus(r_allocated, right.job);
  if (int c = Prefer(LessEqual(l_with, l.Deserved()), LessEqual(r_with, r.Deserved()))) {
    return c;
  }
  if (l.priority != r.priority) {
    return l.priority > r.priority ? -1 : 1;
  }
  const Amounts l_allocatable = l.Allocatable();
  const Amounts r_allocatable = r.Allocatable();
  if (int c = Prefer(!UsesWithoutShare(l_allocatable, l_with),
                     !UsesWithoutShare(r_allocatable, r_with))) {
    return c;
  }
  if (int c = CompareShare(DominantShare(l, Minus(l_with, left.victims), total),
                           DominantShare(r, Minus(r_with, right.victims), total))) {
    return c;
  }
  if (int c = CompareShare(DominantShare(l, l_allocated, total),
                           DominantShare(r, r_allocated, total))) {
    return c;
  }
  const bool l_below = LessEqual(l_allocatable, r_allocatable);
  const bool r_below = LessEqual(r_allocatable, l_allocatable);
  if (int c = Prefer(l_below, r_below)) {
    return c;
  }
  if (l.created != r.created) {
    return l.created < r.created ? -1 : 1;
  }
  return l.name.compare(r.name);
}

bool MaintainFairShare(const QueueShare& victim, const Amounts& remaining) {
  return !LessEqual(remaining, victim.Allocatable());
}

bool GuaranteeDeservedQuota(const QueueShare& reclaimer, const Amounts& request,
                            const QueueShare& victim, const Amounts& remaining) {
  return LessEqual(Plus(reclaimer.Allocated(), request), reclaimer.Deserved()) &&
         !LessEqual(remaining, victim.Deserved());
}

namespace {

int FirstOver(const Amounts& amount, const Amounts& bound) {
  for (int i = 0; i < kShareDims; ++i) {
    if (CompareAmount(amount[i], bound[i]) > 0) {
      return i;
    }
  }
  return -1;
}

void Refuse(ReclaimRefusal* why, const char* rule, int queue, int resource) {
  if (why != nullptr) {
    *why = {rule, queue, resource};
  }
}

std::vector<int> PathTo(const std::vector<QueueShare*>& queues, int queue) {
  std::vector<int> path;
  for (int at = queue; at >= 0; at = queues[static_cast<std::size_t>(at)]->parent) {
    path.push_back(at);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

double Saturation(double allocated, double fair) {
  if (fair == 0) {
    return allocated > 0 ? std::numeric_limits<double>::infinity() : 0;
  }
  return fair == kUnlimited ? 0 : allocated / fair;
}

struct Involved {
  Amounts remaining{};
  std::array<bool, kShareDims> uses{};
};

void MarkUsed(const Amounts& amounts, std::array<bool, kShareDims>* uses) {
  for (int i = 0; i < kShareDims; ++i) {
    (*uses)[i] = (*uses)[i] || amounts[i] > 0;
  }
}

// The two siblings just under the lowest queue that is above both.
std::pair<int, int> LeveledPair(const std::vector<QueueShare*>& queues, int left, int right) {
  const std::vector<int> from = PathTo(queues, left);
  const std::vector<int> to = PathTo(queues, right);
  std::size_t at = 0;
  while (at + 1 < std::min(from.size(), to.size()) && from[at] == to[at]) {
    ++at;
  }
  return {from[at], to[at]};
}

// Takes the victims out unit by unit. Returns false when a unit may not leave.
bool TakeUnits(const std::vector<QueueShare*>& queues, const Reclaimer& reclaimer,
               const VictimUnits& victim, std::map<int, Involved>* touched, ReclaimRefusal* why) {
  const auto entry = [&](int queue) -> Involved& {
    auto [it, added] = touched->try_emplace(queue);
    if (added) {
      it->second.remaining = queues[static_cast<std::size_t>(queue)]->Allocated();
    }
    return it->second;
  };
  const auto [mine, theirs] = LeveledPair(queues, reclaimer.queue, victim.queue);
  std::array<bool, kShareDims> uses{};
  for (const Amounts& unit : victim.units) {
    MarkUsed(unit, &uses);
  }
  entry(victim.queue).uses = uses;
  for (const Amounts& unit : victim.units) {
    const Amounts remaining = entry(theirs).remaining;
    const QueueShare& other = *queues[static_cast<std::size_t>(theirs)];
    const bool fair = MaintainFairShare(other, remaining);
    const bool quota = GuaranteeDeservedQuota(*queues[static_cast<std::size_t>(mine)],
                                              reclaimer.request, other, remaining);
    if (!fair && !quota) {
      Refuse(why, "victim queue is within its fair share", theirs,
             FirstOver(remaining, other.Allocatable()));
      return false;
    }
    for (int at = victim.queue; at >= 0; at = queues[static_cast<std::size_t>(at)]->parent) {
      Involved& level = entry(at);
      level.remaining = Minus(level.remaining, unit);
      for (int i = 0; i < kShareDims; ++i) {
        level.uses[i] = level.uses[i] || uses[i];
      }
    }
  }
  return true;
}

// Compares one level of the reclaimer with its siblings there.
bool WithinBounds(const std::vector<QueueShare*>& queues, int level, const Amounts& after,
                  const Reclaimer& reclaimer, const std::map<int, Involved>& touched,
                  double multiplier, bool strict, ReclaimRefusal* why) {
  const QueueShare& mine = *queues[static_cast<std::size_t>(level)];
  std::array<bool, kShareDims> asked{};
  MarkUsed(reclaimer.request, &asked);
  for (const auto& [sibling, state] : touched) {
    const QueueShare& other = *queues[static_cast<std::size_t>(sibling)];
    if (other.parent != mine.parent || sibling == level) {
      continue;
    }
    for (int i = 0; i < kShareDims; ++i) {
      const double my_fair = mine.r[i].fair_share;
      const double their_fair = other.r[i].fair_share;
      if ((!asked[i] && !state.uses[i]) || (my_fair == kUnlimited && their_fair == kUnlimited)) {
        continue;
      }
      const double my_ratio = Saturation(after[i], my_fair);
      const double their_ratio = Saturation(state.remaining[i], their_fair);
      const bool worse = their_fair > 0 && my_ratio * multiplier >= their_ratio;
      // Differs by profile: before KAI 0.8 nothing may go above its fair share by reclaiming.
      if (my_ratio > 1 && (worse || strict)) {
        Refuse(why, "reclaimer would be more saturated than its sibling", sibling, i);
        return false;
      }
    }
  }
  return true;
}

}  // namespace

bool MayBeVictim(const std::vector<QueueShare*>& queues, const Reclaimer& reclaimer, int victim) {
  const auto [mine, theirs] = LeveledPair(queues, reclaimer.queue, victim);
  const QueueShare& own = *queues[static_cast<std::size_t>(mine)];
  const QueueShare& other = *queues[static_cast<std::size_t>(theirs)];
  if (!LessEqual(Plus(own.Allocated(), reclaimer.request), own.Deserved())) {
    return MaintainFairShare(other, other.Allocated());
  }
  bool under = false;
  for (int i = 0; i < kShareDims; ++i) {
    const ResourceShare& share = other.r[i];
    if (reclaimer.request[i] <= 0 || share.deserved == kUnlimited) {
      continue;
    }
    if (share.allocated > share.deserved) {
      return true;
    }
    under = under || share.allocated < share.deserved;
  }
  return !under;
}

bool CanReclaim(const QueueShare& queue, const Reclaimer& reclaimer, ReclaimRefusal* why) {
  const Amounts after = Plus(queue.Allocated(), reclaimer.request);
  if (const int over = FirstOver(after, queue.FairShare()); over >= 0) {
    Refuse(why, "queue would exceed its fair share", reclaimer.queue, over);
    return false;
  }
  if (reclaimer.preemptible) {
    return true;
  }
  const Amounts fixed = Plus(queue.AllocatedNonPreemptible(), reclaimer.request);
  if (const int over = FirstOver(fixed, queue.Deserved()); over >= 0) {
    Refuse(why, "non-preemptible pods would exceed the quota", reclaimer.queue, over);
    return false;
  }
  return true;
}

bool Reclaimable(const std::vector<QueueShare*>& queues, const Reclaimer& reclaimer,
                 const std::vector<VictimUnits>& victims, double multiplier, bool strict,
                 ReclaimRefusal* why) {
  std::map<int, Involved> touched;
  for (const VictimUnits& victim : victims) {
    if (!TakeUnits(queues, reclaimer, victim, &touched, why)) {
      return false;
    }
  }
  for (int level = reclaimer.queue; level >= 0;
       level = queues[static_cast<std::size_t>(level)]->parent) {
    const QueueShare& queue = *queues[static_cast<std::size_t>(level)];
    const auto it = touched.find(level);
    const Amounts after =
        Plus(it != touched.end() ? it->second.remaining : queue.Allocated(), reclaimer.request);
    if (!WithinBounds(queues, level, after, reclaimer, touched, multiplier, strict, why)) {
      return false;
    }
    if (reclaimer.preemptible) {
      continue;
    }
    const Amounts fixed = Plus(queue.AllocatedNonPreemptible(), reclaimer.request);
    if (const int over = FirstOver(fixed, queue.Deserved()); over >= 0) {
      Refuse(why, "non-preemptible pods would exceed the quota", level, over);
      return false;
    }
  }
  return true;
}

}  // namespace sublet::scheduler
