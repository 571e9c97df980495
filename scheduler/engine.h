// Engine: the scheduler as a value. Events go in, Run decides, decisions and reasons come out, and
// what became of the decisions is told back. No I/O, no clock, no threads: `now` is an argument, so
// the same history gives the same decisions (explain, what-if, replay and the property tests rest
// on that).
//
//   engine.Apply(node); engine.Apply(pod); ...            // from watch events, any order
//   CycleResult result = engine.Run(now);                 // decide
//   for (const Decision& d : result.decisions) ...        // bind / evict / nominate, by the caller
//   engine.BindFailed(uid, ...)                           // or the pod's own events: Running, deleted
//   wait until an event or result.earliest, then Run again (at once when result.more)
//
// A decision is assumed to hold until an event or a Failed call says otherwise, so a slow API does
// not make the engine decide twice. Promises (Decision::kPipeline) last one cycle and are made
// again. Threads: one, the scheduler's. Lifetime: strings and structs are copied in and out.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/model.h"
#include "scheduler/profile.h"
#include "scheduler/session.h"
#include "scheduler/topology.h"

namespace sublet::scheduler {

// Why a pod group was not placed in this cycle.
struct GroupVerdict {
  std::string group;  // PodGroup key, or "pod:<uid>" for a pod without one
  std::string ns, name;
  std::vector<JobFailure> failures;  // KAI's UnschedulableExplanations
  std::string message;               // KAI's detailed text of all of them
  struct Pod {
    std::string uid, ns, name, message;
  };
  std::vector<Pod> pods;  // of the batch that was tried
};

// What an action did in one cycle, for metrics. The time is 0 without a stopwatch.
struct ActionStats {
  std::int64_t micros = 0;
  std::int64_t considered = 0, scheduled = 0;  // pod groups
  std::int64_t simulated = 0, filtered = 0;    // scenarios of the victim search
  std::int64_t exhausted = 0;                  // searches cut off for want of steps
};

struct CycleResult {
  std::vector<Decision> decisions;  // in the order in which they were made
  std::vector<GroupVerdict> verdicts;
  std::vector<std::string>
      started;  // groups whose first pods were bound now (last-start-timestamp)
  std::vector<std::string> stale, fresh;  // groups that became stale, or whole again
  Millis earliest = kNever;               // when time alone may change the answer
  bool more = false;                      // the victim search ran out of steps: Run again soon
  std::int64_t steps = 0;                 // of the victim search, for metrics
  std::array<ActionStats, kActions> actions{};  // by Action, over all profiles
  std::int64_t open_micros = 0, shares_micros = 0, close_micros = 0;
};

struct QueueView {
  std::string name, parent;
  int depth = 0;
  QueueShare share;
  std::vector<std::string> children;
};

// Everything known about one pod's wait, for `explain` and conditions.
struct Explanation {
  std::string pod, group, queue, status, node;
  std::string dominant;  // the one reason that matters most
  std::vector<JobFailure> failures;
  struct NodeRow {
    std::string node, reason;  // "" = would fit
    Fixed idle{}, releasing{};
  };
  std::vector<NodeRow> nodes;
  struct Holder {  // a pod that holds devices, on a node that does not fit
    std::string node, ns, name, queue;
    std::int64_t gpu_milli = 0;
    int priority = 0;
    bool preemptible = false;
  };
  std::vector<Holder> holders;  // by node; at most kHoldersMax
  static constexpr std::size_t kHoldersMax = 200;
  std::vector<QueueView> queues;      // leaf to root
  std::vector<AttemptNote> attempts;  // reclaim, preempt, consolidation of the last cycle
  Quota request{};
  Millis earliest = kNever;
};

// All objects of an engine, enough to build an equal one.
struct Snapshot {
  std::vector<NodeSpec> nodes;
  std::vector<QueueSpec> queues;
  std::vector<PodGroupSpec> groups;
  std::vector<PodSpec> pods;
  std::vector<TopologySpec> topologies;
  std::vector<ClaimSpec> claims;
  std::vector<DeviceSlice> slices;
  std::vector<DisruptionBudget> budgets;
  std::vector<NamespaceSpec> namespaces;
};

class Engine {
 public:
  // At least one profile; a scheduler name belongs to the first profile that lists it.
  explicit Engine(std::vector<Profile> profiles);
  ~Engine();

  void Apply(const NodeSpec& node);
  void Apply(const QueueSpec& queue);
  void Apply(const PodGroupSpec& group);
  void Apply(const PodSpec& pod);
  void Apply(const TopologySpec& topology);
  void Apply(const ClaimSpec& claim);
  void Apply(const DeviceSlice& slice);
  void Apply(const DisruptionBudget& budget);
  void Apply(const NamespaceSpec& space);
  void Apply(const Snapshot& snapshot);
  void DeleteNode(const std::string& name);
  void DeleteQueue(const std::string& name);
  void DeletePodGroup(const std::string& key);
  void DeletePod(const std::string& uid);
  void DeleteTopology(const std::string& name);
  void DeleteClaim(const std::string& key);
  void DeleteSlice(const std::string& name);
  void DeleteBudget(const std::string& key);
  void DeleteNamespace(const std::string& name);

  // A monotonic clock in microseconds, for CycleResult's times only: nothing is decided by it.
  void MeasureWith(std::function<std::int64_t()> stopwatch) { stopwatch_ = std::move(stopwatch); }

  // Runs all actions of all profiles.
  CycleResult Run(Millis now);
  // Runs only `actions` of the first profile; for case files.
  CycleResult RunOnly(Millis now, const std::vector<Action>& actions);

  // The bind of a decision did not happen: a conflict, a denied slice, a rejecting webhook. The pod
  // is pending again and is not tried before a back-off of 1 s, doubled each time up to 5 min, so
  // that a pod that is always rejected does not win every cycle. `now` starts the back-off; a node
  // that has room for the pod and had none before ends it.
  void BindFailed(const std::string& uid, Millis now);
  // The eviction did not happen; the pod runs on.
  void EvictFailed(const std::string& uid);

  // What the queues used over time, as shares of the cluster (cpu, memory, gpu); queues that are
  // not named keep theirs. Counts in the division while kValue is above 0 (UsageHistory makes it).
  void SetUsage(const std::map<std::string, std::array<double, 3>>& usage) {
    state_.SetUsage(usage);
  }

  std::optional<Explanation> Explain(const std::string& uid, Millis now);
  // Queues in tree order, with shares as of the last cycle.
  std::vector<QueueView> Queues();
  Snapshot Export() const;
  // One pod of it; nullopt when there is none.
  std::optional<PodSpec> ExportPod(const std::string& uid) const;
  // An engine with the same profiles and objects, to try something on.
  std::unique_ptr<Engine> Clone() const;

  const State& state() const { return state_; }
  const std::vector<Profile>& profiles() const { return profiles_; }
  // The profile for a scheduler name, or kNone.
  int ProfileFor(const std::string& scheduler_name) const;

 private:
  void ApplyGroup(const PodGroupSpec& group, int profile);
  void JoinOpenGroup(const std::string& key, int profile);
  void BeginCycle(Millis now);
  std::int64_t Stopwatch() const { return stopwatch_ ? stopwatch_() : 0; }
  void RunMeasured(Action action, Session& session, ActionStats* stats);
  void RunProfile(int index, const std::vector<Action>& actions, Millis now, CycleResult* result);
  void CollectVerdicts(Session& session, CycleResult* result);
  QueueView ViewOf(QueueId id) const;

  std::vector<Profile> profiles_;
  std::function<std::int64_t()> stopwatch_;
  State state_;
  std::unique_ptr<TopologyCache> topologies_;
  std::vector<AttemptNote> notes_;
  Millis earliest_ = kNever;                     // of the last cycle
  std::map<std::string, std::string> promises_;  // of the last cycle: pod -> node
  // Groups that do not say which scheduler they belong to, and whose they are by their pods.
  struct OpenGroup {
    PodGroupSpec spec;
    int profile = kNone;
  };
  std::map<std::string, OpenGroup> open_groups_;
  std::set<std::string>
      backing_off_;  // uids of pods that wait after a refusal, or did; cleaned by node events
};

}  // namespace sublet::scheduler
