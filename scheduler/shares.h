// The arithmetic of queues, as pure functions over records: division of a cluster into fair shares,
// the order of two queues, who may reclaim from whom, and quota and limit checks. The engine calls
// them with its own records, the unit tables of the case files with theirs, so both test one code.
// Amounts are doubles because KAI's are: fair shares come from divisions and their rounding is part
// of the result. Order of resources everywhere: cpu, memory, gpu.
// Source: reference facts on KAI 3.2, 3.3, 3.5. Threads: pure, any.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "scheduler/resources.h"

namespace sublet::scheduler {

using Amounts = std::array<double, kShareDims>;

struct ResourceShare {
  double deserved = 0, limit = 0, weight = 0;
  double request = 0, allocated = 0, allocated_np = 0;  // np: of non-preemptible jobs
  double fair_share = 0, usage = 0;
};

struct QueueShare {
  std::string name;
  int parent = -1;  // index among the queues given along; -1 = root
  int priority = 100;
  Millis created = 0;
  std::array<ResourceShare, kShareDims> r;

  Amounts Deserved() const;
  Amounts FairShare() const;
  Amounts Allocated() const;
  Amounts AllocatedNonPreemptible() const;
  // What a queue may have: by quota, fair share and limit. -1 = unlimited.
  Amounts Allocatable() const;
};

Amounts Plus(const Amounts& a, const Amounts& b);
Amounts Minus(const Amounts& a, const Amounts& b);
// -1 counts as infinity. Returns -1, 0, 1.
int CompareAmount(double left, double right);
bool LessEqual(const Amounts& left, const Amounts& right);
bool StrictlyLess(const Amounts& left,
                  const Amounts& right);  // in every resource; -1 is a plain number here

double Requestable(const ResourceShare& share);
double AllocatableShare(const ResourceShare& share);
// Largest allocated/allocatable over the resources; `total` stands in for unlimited.
double DominantShare(const QueueShare& queue, const Amounts& allocated, const Amounts& total);

// Divides `total` among `queues` for one resource and adds to fair_share. Returns what is left
// over.
double Divide(double total, double k, int resource, const std::vector<QueueShare*>& queues);
// The second and third phase of Divide alone.
double DivideOverQuota(double total, double k, int resource,
                       const std::vector<QueueShare*>& queues);
// Sets fair_share of every queue of the tree, roots first: roots share `total`, children their
// parent's share.
void DivideTree(const Amounts& total, double k, const std::vector<QueueShare*>& queues,
                const std::vector<std::vector<int>>& children, const std::vector<int>& roots);

// One side of a queue comparison.
struct QueueSide {
  const QueueShare* queue = nullptr;
  Amounts job{};      // what the queue's next job asks for
  Amounts victims{};  // what victims popped so far held
};
// Negative: left first, positive: right first; 0 only when nothing but age and name is left.
int CompareQueues(const QueueSide& left, const QueueSide& right, const Amounts& total);

struct Reclaimer {
  int queue = -1;
  bool preemptible = true;
  Amounts request{};
};
struct VictimUnits {
  int queue = -1;
  std::vector<Amounts> units;  // in the order in which they leave
};
// Why a reclaim is refused, for people.
struct ReclaimRefusal {
  std::string rule;  // "" = allowed
  int queue = -1;    // the victim-side queue or sibling that decided
  int resource = -1;
};

bool MaintainFairShare(const QueueShare& victim, const Amounts& remaining);
bool GuaranteeDeservedQuota(const QueueShare& reclaimer, const Amounts& request,
                            const QueueShare& victim, const Amounts& remaining);
// From KAI 0.16 on: may a job of `victim` be among the victims at all? Not when neither rule could
// let any pod of it go.
bool MayBeVictim(const std::vector<QueueShare*>& queues, const Reclaimer& reclaimer, int victim);
bool CanReclaim(const QueueShare& queue, const Reclaimer& reclaimer, ReclaimRefusal* why);
// `allocated` of `queues` is the state before anything was evicted.
bool Reclaimable(const std::vector<QueueShare*>& queues, const Reclaimer& reclaimer,
                 const std::vector<VictimUnits>& victims, double multiplier, bool strict,
                 ReclaimRefusal* why);

// Returns the first resource over the limit (or quota of non-preemptible pods), -1 when none.
int OverLimit(const QueueShare& queue, const Amounts& request);
int NonPreemptibleOverQuota(const QueueShare& queue, const Amounts& request);

}  // namespace sublet::scheduler
