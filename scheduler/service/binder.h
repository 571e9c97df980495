// Binder: carries out the engine's decisions. Binds go in units: the pods of one group decided in
// one cycle. Where devices are granted by slices, all slices of a unit are asked for first and
// nobody is bound before all are granted; one denial gives the others back and the whole unit
// waits. What became of every decision is told back through `on_result`. Differs: KAI's scheduler
// writes a BindRequest for its binder to carry out. Here one process does both, so a bind is one
// request to pods/binding and no BindRequest is made; nobody else would read it (e2e/scheduler/run.sh). Threads: Submit on
// the scheduler's thread; work on the pool "bind-N"; answers of the broker on its informers'
// thread. Bound: kWorkMax waiting steps; a decision beyond that fails at once and comes back by the
// engine's back-off.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/mutex.h"
#include "client/client.h"
#include "client/events.h"
#include "scheduler/engine.h"
#include "scheduler/service/feed.h"
#include "scheduler/service/slices.h"

namespace sublet::scheduler {

struct BindResult {
  std::string pod_uid;
  Decision::Kind kind = Decision::Kind::kBind;
  bool done = false;
  std::string message;      // of a failure
  std::int64_t micros = 0;  // of a binding that was done
};

struct BinderOptions {
  client::Client client;
  int threads = 4;
  bool enforce = true;  // slices are enforced on the device; false reproduces KAI
  // The bound pod is itself the one that runs (the host's own scheduler): the binding names its
  // slice for the node agent. A tenant's pods get that from the syncer.
  bool names_slice = false;
};

class Binder {
 public:
  // feed, broker (null: no slices anywhere) and recorder outlive the binder.
  Binder(BinderOptions options, const Feed& feed, client::EventRecorder& recorder,
         std::function<void(BindResult)> on_result);
  ~Binder();

  void UseSlices(SliceBroker* broker) { broker_ = broker; }
  void Start();
  void Stop();  // idempotent; joins

  // Takes the decisions of one cycle.
  void Submit(std::vector<Decision> decisions, const Engine& engine);
  void SliceAnswered(const SliceAnswer& answer) SUBLET_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kWorkMax = 65536;

  struct Member {
    Decision decision;
    bool needs_slice = false;
    bool granted = false;
  };
  struct Unit {
    std::vector<Member> members;
    std::size_t waiting = 0;  // slices without an answer
    bool failed = false;
    MonotonicTime deadline;
  };
  using UnitPtr = std::shared_ptr<Unit>;

  void Push(std::function<void()> work, const std::vector<Decision>& decisions);
  void AskSlices(const UnitPtr& unit);
  void FailUnit(const UnitPtr& unit, const std::string& message);
  void BindUnit(const UnitPtr& unit);
  void Bind(const Decision& decision);
  // binder_claims.cc: writes what the engine allocated into the claims' status and adds the pod to
  // those it is reserved for; an error leaves nothing reserved. Blocks for two or three requests a
  // claim. Errors: Conflict (the claim was replaced, or allocated otherwise), the API server's.
  Result<void> ReserveClaims(const Decision& decision);
  Result<void> ReserveClaim(const Decision& decision, const ClaimSpec& claim);
  // Takes the pod off its claims; those that nobody else uses lose their allocation.
  void UnreserveClaims(const Decision& decision, std::size_t count);
  void Evict(const Decision& decision);
  Result<gpu::GpuSliceSpec> SpecOf(const Decision& decision) const;
  void ExpireUnits() SUBLET_EXCLUDES(mutex_);

  const BinderOptions options_;
  const Feed& feed_;
  client::EventRecorder& recorder_;
  const std::function<void(BindResult)> on_result_;
  SliceBroker* broker_ = nullptr;
  BoundedQueue<std::function<void()>> work_;
  std::vector<std::thread> threads_;
  Mutex mutex_;
  std::map<std::string, UnitPtr> units_
      SUBLET_GUARDED_BY(mutex_);  // by the uid of each waiting pod
};

}  // namespace sublet::scheduler
