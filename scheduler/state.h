// State: the cluster as the engine sees it, kept up to date from events instead of being rebuilt,
// and the objects in it. The same objects are what a cycle works on: a Statement
// (scheduler/statement.h) changes them and can take every change back, so a trial and a real
// decision run the same code. Nodes, queues, jobs and tasks are numbered; numbers are reused and
// depend on the order of events, so nothing may be decided by comparing them: ties go by name, uid
// or age. Threads: one, the scheduler's.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "scheduler/resources.h"
#include "scheduler/shares.h"

namespace sublet::scheduler {

using TaskId = int;
using NodeId = int;
using JobId = int;
using QueueId = int;
constexpr int kNone = -1;

enum class Status : std::uint8_t {
  kPending,
  kGated,
  kAllocated,
  kPipelined,
  kBinding,
  kBound,
  kRunning,
  kReleasing,
  kSucceeded,
  kFailed,
  kUnknown,
};
const char* StatusName(Status status);
bool ActiveUsed(Status status);       // holds resources, now or promised
bool ActiveAllocated(Status status);  // the same without Releasing
bool Alive(Status status);
bool CountsForQuota(Status status);  // Allocated, Binding, Bound, Running

// Where a task is accounted. A victim that is re-placed has two: the node it leaves and the one it
// goes to.
struct Placement {
  NodeId node = kNone;
  Status status = Status::kPending;
  std::vector<int> groups;  // device ids (State::group_names)
};

struct Task {
  std::string uid, ns, name, sub_group, scheduler_name;
  const Shape* shape = nullptr;
  std::shared_ptr<const Labels> labels;
  std::vector<std::string> claims, devices;
  std::vector<std::pair<std::string, std::string>> attachments;  // PodSpec::attachments
  std::string nominated_node, unschedulable_reason, group_key;
  JobId job = kNone;
  int pod_set = 0;
  Status status = Status::kPending;
  bool tentative = false;  // the status is a promise of the statement in progress
  bool real = false;       // the API says the pod is on `node`
  bool legacy_mig = false;
  bool foreign = false;  // another scheduler's pod: occupies, is never moved
  bool dirty = false;
  bool never_preempts = false;
  NodeId node = kNone;
  std::vector<int> groups;
  std::vector<Placement> placements;
  Placement hidden;            // State::SetPresence
  std::int64_t dra = 0;        // GPUs through claims, thousandths, as charged where it is placed
  std::int64_t dra_quota = 0;  // what of them counts in quotas (State::count_dra)
  Quota accepted{};            // what it counts for where it is
  Quota counted{};             // what the queues' request holds of it
  std::optional<int> order_priority;
  int role_rank = 0;
  int priority = 0;
  Millis created = 0, deleted = 0;
  Millis retry_at = 0;  // not before: back-off after rejected binds
  int rejected = 0;
  Millis refused = 0;  // PodSpec::refused, the latest that was seen
};

// Order inside a gang: role, task priority, age, uid.
bool TaskBefore(const Task& left, const Task& right);

struct GpuGroup {
  int name = 0;
  std::int64_t active = 0, releasing = 0, pipelined = 0;  // MiB
  int users = 0;
  std::int64_t Used() const { return active + releasing + pipelined; }
  std::int64_t Allocated() const { return active + releasing; }
};

struct NodeScalar {
  int name = 0;
  std::int64_t allocatable = 0, idle = 0, releasing = 0;
};

// What the placement loop reads of every node, packed.
struct NodeHot {
  Fixed idle{};
  Fixed releasing{};
  std::int64_t cpu = 0, gpu = 0;  // allocatable
  int rank = 0;                   // by name
  bool present = false;
  bool usable = false;  // ready and schedulable
  bool has_groups = false;
  bool cpu_only = false;
};

struct Node {
  NodeSpec spec;
  std::vector<NodeScalar> scalars;
  std::vector<GpuGroup> groups;   // by group name
  std::vector<TaskId> tasks;      // one entry per placement
  std::int64_t gpu_count = -1;    // label nvidia.com/gpu.count; -1 = absent
  std::int64_t gpu_memory = 100;  // MiB of each device, floored to hundreds
  bool gpu_memory_synced = false;
  bool mig = false;
  bool mig_single = false, mig_mixed = false;
  int legacy_mig = 0;
  int placed_constraints = 0;  // placements with pod affinity terms or ports
  Quota counted{};             // its part of the cluster total
  const NodeScalar* FindScalar(int name) const;
  GpuGroup* FindGroup(int name);
};

struct PodSet {
  std::string name;
  int min_available = 1;
  std::optional<TopologyConstraint> topology;
  int parent = 0;             // index in Job::groups
  std::vector<TaskId> tasks;  // in task order
  int active_allocated = 0, active_used = 0, alive = 0, gated = 0, pending = 0;
};
struct SubGroup {
  std::string name;
  std::optional<TopologyConstraint> topology;
  std::optional<int> min_sub_group;
  int parent = kNone;
  std::vector<int> groups, pod_sets;
};

// Children that must be satisfied.
inline int LeastChildren(const SubGroup& group) {
  return group.min_sub_group.value_or(
      static_cast<int>(group.groups.size() + group.pod_sets.size()));
}

struct JobFailure {
  std::string reason;  // OverLimit, NonPreemptibleOverQuota, PodSchedulingErrors, ...
  std::string message;
  std::string detail;  // as in KAI's detailed form; "" = message
  QueueId queue = kNone;
  int resource = -1;
};

// When nothing of this changed since an attempt, another attempt ends the same way.
struct TriedMark {
  bool valid = false;
  std::uint64_t membership = 0, capacity = 0, usage = 0, shares = 0;
  int pending = 0, active = 0;
  bool operator==(const TriedMark&) const = default;
};

// Where the victim search of a job stopped for want of steps, good while its TriedMark holds.
// Stands for an attempt of a victim search: its pods and its victims, by two sums of hashes.
using SetPrint = std::pair<std::uint64_t, std::uint64_t>;

struct SearchMark {
  int action = 0;
  TriedMark at;
  std::size_t part = 0;                    // pods solved so far
  std::vector<std::vector<TaskId>> units;  // with these victims
  std::int64_t scenarios = 0;              // tried for the next pod
  std::set<NodeId> opened;                 // nodes that rejected scenarios made feasible
  // Profile::smart_search: how victims are grouped, and between which parts the search bisects.
  int grouping = 0;
  std::size_t low = 0, high = 0;
  bool last = false;
  std::size_t sets = 0;       // tried with the victims at hand; `scenarios` counts those before
  std::set<SetPrint> failed;  // that need not be tried again
};

struct Job {
  std::string key, ns, name, uid, queue_name, scheduler_name;
  bool from_spec = false;  // a PodGroup exists
  bool single = false;     // made for one pod that names no group
  int profile = 0;
  QueueId queue = kNone;
  int priority = 0;
  bool preemptible = true;
  std::string preemptibility;
  std::vector<SubGroup> groups;  // [0] = root
  std::vector<PodSet> pod_sets;
  Millis created = 0, last_start = 0, stale_since = 0, last_eviction = 0;
  std::optional<Millis> preemption_delay, staleness_grace;
  // How often others were moved for it in vain, since active_used was `moved_at_used`, and until
  // when nobody is moved again (RunConsolidation).
  int moved_in_vain = 0, moved_at_used = 0;
  Millis moves_again_at = 0;
  int scheduling_backoff = -1;
  bool gave_up =
      false;  // scheduling_backoff 1: one attempt failed, the next comes with a change of the group
  bool optional_groups = false;  // some sub group needs only a part of its children
  int total = 0, active_allocated = 0, pending = 0, succeeded = 0, active_used = 0;
  std::int64_t memory_requests = 0;
  Quota held{};                  // requests of the tasks that count for quota
  std::uint64_t version = 0;     // raised by every status change
  std::uint64_t membership = 0;  // raised when pods come, go or change, or the group itself does
  // What the last attempt found.
  std::vector<JobFailure> failures;
  std::map<TaskId, std::string> task_failures;
  std::string reported;  // the last verdict's text
  bool in_pending = false, in_active = false, in_stale = false;
  // By action: the state of things when it was last tried without success (Session::Unchanged).
  std::unique_ptr<std::array<TriedMark, 5>> tried;  // only of jobs that waited
  std::shared_ptr<SearchMark> search;               // where a victim search was cut off
  // Batch cache for `version`.
  mutable std::uint64_t batch_version = ~0ULL;
  mutable std::vector<TaskId> batch;
  mutable Quota batch_request{};
};

// What the profile of a job says of the job itself.
struct JobRules {
  bool member_trees = false;  // KAI from 0.15: sub groups and pod sets are taken as one tree
  // KAI from 0.16: what fits in a topology's domain is counted in exact amounts, shared devices as
  // the parts that are free.
  bool exact_capacity = false;
};

// True when the sub group has its minimum: as many children as it needs, by `full` of a pod set's
// index.
template <typename F>
bool TreeSatisfied(const Job& job, int group, const F& full) {
  const SubGroup& at = job.groups[static_cast<std::size_t>(group)];
  int have = 0;
  for (int set : at.pod_sets) {
    have += full(set) ? 1 : 0;
  }
  for (int child : at.groups) {
    have += TreeSatisfied(job, child, full) ? 1 : 0;
  }
  const int children = static_cast<int>(at.pod_sets.size() + at.groups.size());
  return have >= std::min(at.min_sub_group.value_or(children), children);
}

struct Queue {
  QueueSpec spec;
  bool present = false;
  QueueId parent = kNone;
  std::vector<QueueId> children;
  Quota allocated{}, allocated_np{}, request{};  // subtree
  QueueShare share;                              // the same as doubles, and the quotas
  std::uint64_t base_epoch = 0;                  // saved amounts of the solution in progress
  Quota base_allocated{}, base_allocated_np{};
  std::map<std::string, std::int64_t> by_model;  // thousandths of devices per GPU model
};

class State {
 public:
  State();
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // --- events; names identify, repeated calls replace ---
  void UpsertNode(const NodeSpec& spec);
  void DeleteNode(const std::string& name);
  void UpsertQueue(const QueueSpec& spec);
  void DeleteQueue(const std::string& name);
  void UpsertPodGroup(const PodGroupSpec& spec, int profile);
  void DeletePodGroup(const std::string& key);
  // `profile` kNone: another scheduler's pod.
  void UpsertPod(const PodSpec& spec, int profile);
  void DeletePod(const std::string& uid);
  void UpsertTopology(const TopologySpec& spec);
  void DeleteTopology(const std::string& name);
  void SetUsage(const std::map<std::string, std::array<double, 3>>& usage);
  void UpsertClaim(const ClaimSpec& spec);
  void DeleteClaim(const std::string& key);
  void UpsertSlice(const DeviceSlice& slice);
  void DeleteSlice(const std::string& name);
  void UpsertBudget(const DisruptionBudget& budget);
  void DeleteBudget(const std::string& key);
  void UpsertNamespace(const NamespaceSpec& space);
  void DeleteNamespace(const std::string& name);

  // --- accounting, for Statement and events ---
  void SetStatus(TaskId task, Status status);
  // Adds the task to the node with `status`, sets what it counts for. Returns the placement's
  // index.
  void Place(TaskId task, NodeId node, Status status, const std::vector<int>& groups);
  void Unplace(TaskId task, std::size_t placement);
  // Changes the status of one placement.
  void Reaccount(TaskId task, std::size_t placement, Status status);
  // Sets Task::devices to free UUIDs of its node, where the node has UUIDs.
  void ChooseDevices(TaskId task);
  // Takes a promise, or an assumed bind, back: the task is pending again.
  void DropPromise(TaskId task);
  // Hides a task from its node's accounting, or shows it again; for trials only.
  void SetPresence(TaskId task, bool present);
  // Charges the task from now on for what its claims ask; only while it is placed nowhere.
  void SetDra(Task& task);
  void ChargeQueues(TaskId task, int sign);
  Quota AcceptedOn(const Task& task, const Node& node) const;

  // --- reading ---
  NodeId FindNode(const std::string& name) const;
  QueueId FindQueue(const std::string& name) const;
  JobId FindJob(const std::string& key) const;
  TaskId FindTask(const std::string& uid) const;
  bool IsLeaf(QueueId queue) const {
    return queues[static_cast<std::size_t>(queue)].children.empty();
  }
  Task& task(TaskId id) { return *tasks[static_cast<std::size_t>(id)]; }
  const Task& task(TaskId id) const { return *tasks[static_cast<std::size_t>(id)]; }
  Job& job(JobId id) { return *jobs[static_cast<std::size_t>(id)]; }
  const Job& job(JobId id) const { return *jobs[static_cast<std::size_t>(id)]; }
  // Of the profile that schedules the job; the default ones when none does.
  JobRules RulesOf(JobId id) const {
    const auto at = static_cast<std::size_t>(job(id).profile);  // -1: beyond every index
    return at < rules.size() ? rules[at] : JobRules{};
  }
  Queue& queue(QueueId id) { return queues[static_cast<std::size_t>(id)]; }
  const Queue& queue(QueueId id) const { return queues[static_cast<std::size_t>(id)]; }
  // Nodes by name; recomputed when nodes came or went.
  const std::vector<NodeId>& NodesByName();
  // Brings queue links, requests and fair shares up to date; `k` of the profile.
  void RefreshShares(double k);
  // The chain of queues from `queue` to its root, as far as it exists.
  template <typename F>
  void EachQueueUp(QueueId at, F f) {
    while (at != kNone) {
      Queue& q = queues[static_cast<std::size_t>(at)];
      f(at, q);
      at = q.parent;
    }
  }
  // GPUs through claims of these tasks together, thousandths: a claim that several of them share
  // counts once, one that a pod elsewhere is charged for not at all.
  std::int64_t ClaimGpus(const std::vector<TaskId>& tasks) const;
  // The same for one task: what placing it takes, or what it is charged where it is placed.
  std::int64_t Dra(const Task& task) const {
    return task.claims.empty() ? 0 : task.placements.empty() ? LiveDra(task) : task.dra;
  }
  // To be called after a change of `claims`.
  void TouchClaims() { ++claim_generation; }
  // Smallest and largest device memory of the nodes, 100 when no node has more than that.
  std::int64_t MinGpuMemory() const;
  std::int64_t MaxGpuMemory() const;
  // A gpu-memory request on devices of `device` MiB, rounded up: what asks for memory asks for
  // something.
  static std::int64_t MemoryAsDevices(const Request& request, std::int64_t device);
  // The `index`-th UUID of the node that nobody is on; "" when there are not so many.
  std::string FreeDevice(const Node& node, int index);
  // An id for a newly shared device: its UUID, or where nodes have none, one made from the pod's
  // uid.
  std::string NewGroupName(const Node& node, const Task& task, int index);

  std::vector<std::unique_ptr<Task>> tasks;
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<NodeHot> hot;
  std::vector<Node> nodes;
  std::vector<Queue> queues;
  std::vector<QueueShare*> shares;  // parallel to queues
  std::set<JobId> pending_jobs;
  std::set<JobId> active_jobs;  // with at least one ActiveAllocated task
  std::set<TaskId> pipelined;
  std::set<TaskId> withdrawn;    // promises that a later decision of the cycle took back
  std::set<JobId> stale_jobs;    // some pod set below its minimum while others hold resources
  std::set<JobId> marked_stale;  // those for which the grace runs
  std::map<std::string, TopologySpec> topologies;
  std::map<std::string, ClaimSpec> claims;
  std::map<std::string, DeviceSlice> slices;
  std::map<std::string, DisruptionBudget> budgets;
  std::map<std::string, NamespaceSpec> namespaces;
  NameTable names;                        // scalar resources
  NameTable group_names;                  // shared devices
  Quota total{};                          // of ready nodes, less other schedulers' pods
  std::uint64_t capacity_generation = 1;  // raised when something may now fit that did not
  std::uint64_t usage_generation = 1;     // raised when queues or nodes hold something else
  std::uint64_t share_generation = 1;     // raised when fair shares changed
  std::uint64_t node_generation = 1;      // raised when nodes or topologies changed
  std::uint64_t claim_generation = 1;     // raised when claims changed
  std::uint64_t slice_generation = 1;     // raised when device slices changed
  mutable std::shared_ptr<struct DeviceIndex> device_index;  // scheduler/claims.cc
  std::uint64_t solution_epoch = 0;                          // see Queue::base_epoch
  bool pinned_min_memory = true;  // KAI before 0.16.2: the smallest device counts as 100 MiB
  std::vector<JobRules> rules;    // by profile
  bool count_dra = true;          // claims count as GPUs in quotas
  bool model_limits = false;      // some queue limits a GPU model
  int constrained_tasks = 0;      // placed tasks with affinity terms or ports

 private:
  const Shape* InternShape(const Request& request, const Constraints& constraints);
  void ReleaseShape(const Shape* shape);
  JobId AddJob(std::unique_ptr<Job> job);
  void DropJobIfEmpty(JobId id);
  JobId JobFor(const PodSpec& spec, int profile);
  void AttachTask(TaskId id, JobId job);
  void DetachTask(TaskId id);
  TaskId NewTask(const std::string& uid);
  // Puts a task that has its job on the node its status says, or lets it wait for that node.
  void Settle(TaskId id, const std::string& node_name, NodeId node, const std::vector<int>& groups);
  void ClearTask(TaskId id);  // off its node, queues and job
  void RebuildTree(Job& job, const SubGroupSpec& root);
  void Account(NodeId node, const Placement& placement, const Task& task, int sign);
  void AccountGroups(NodeId node, const Placement& placement, const Task& task, int sign);
  void ReindexJobSets(JobId id);
  void MarkDirty(TaskId id);
  void CountRequest(Task& task, int sign);
  void RefreshRequest(TaskId id);
  void RelinkQueues();
  void CountNode(NodeId id);
  void FillNode(NodeId id, const NodeSpec& spec);
  void ReadNodeLabels(Node& node);
  void RecountAll();
  void MoveToQueue(Job& job);
  std::int64_t LiveDra(const Task& task) const;
  std::int64_t RequestedDra(const Task& task) const;
  // Chooses again who is charged for the claim and puts that into the accounts.
  void ShareClaim(const std::string& key);
  void Recharge(TaskId id);
  // The task goes, or is about to be read anew. What only we reserved for it is free again unless
  // `keep` (it still is, or is to be, on a node) or the API showed the pod on a node before.
  void LeaveClaims(TaskId id, bool keep);
  Status StatusFor(const PodSpec& spec) const;

  struct ShapeEntry {
    std::unique_ptr<Shape> shape;
    int users = 0;
  };
  std::map<std::pair<Request, Constraints>, ShapeEntry> shapes_;
  int next_shape_ = 1;
  std::unordered_map<std::string, TaskId> task_index_;
  std::unordered_map<std::string, JobId> job_index_;
  std::unordered_map<std::string, NodeId> node_index_;
  std::map<std::string, QueueId> queue_index_;
  std::map<std::string, std::set<TaskId>> waiting_node_;  // tasks on a node that is not known yet
  std::map<std::string, std::set<TaskId>> claim_users_;   // by claim key
  std::vector<int> free_tasks_, free_jobs_, free_nodes_, free_queues_;
  std::vector<NodeId> by_name_;
  bool by_name_dirty_ = true;
  std::vector<TaskId> dirty_tasks_;
  bool queues_dirty_ = true;
  bool shares_dirty_ = true;
  double last_k_ = -1;
};

}  // namespace sublet::scheduler
