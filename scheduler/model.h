// What the scheduler's engine takes in and gives out, as plain values: no JSON, no Kubernetes
// client, no clock. scheduler/convert.h makes these from API objects; scheduler/cases.h makes them
// from case files. Everything here is copied into the engine; nothing is kept by reference. Units:
// cpu in millicores, memory in bytes, GPU memory in MiB, times in milliseconds since the epoch.
// Threads: values, any.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet::scheduler {

using Millis = std::int64_t;
constexpr Millis kNever = INT64_MAX;
constexpr double kUnlimited = -1;  // quota and limit

// Sorted by key; keys are unique.
using Labels = std::vector<std::pair<std::string, std::string>>;
// Returns the value of `key`, or nullptr. Sorted input.
const std::string* FindLabel(const Labels& labels, const std::string& key);

enum class SelectorOperator : std::uint8_t { kIn, kNotIn, kExists, kDoesNotExist, kGt, kLt };
struct SelectorRequirement {
  std::string key;
  SelectorOperator op = SelectorOperator::kIn;
  std::vector<std::string> values;
  auto operator<=>(const SelectorRequirement&) const = default;
};
// All requirements must hold; no requirement matches everything.
using Selector = std::vector<SelectorRequirement>;
bool Matches(const Selector& selector, const Labels& labels);

// One node selector term: labels and fields (only metadata.name) must hold.
struct NodeTerm {
  Selector labels;
  Selector fields;
  auto operator<=>(const NodeTerm&) const = default;
};
struct PreferredNodeTerm {
  int weight = 0;
  NodeTerm term;
  auto operator<=>(const PreferredNodeTerm&) const = default;
};

struct Toleration {
  std::string key;      // "" with exists = every taint
  bool exists = false;  // operator Exists; else Equal
  std::string value;
  std::string effect;  // "" = every effect
  auto operator<=>(const Toleration&) const = default;
};
struct Taint {
  std::string key, value, effect;
  auto operator<=>(const Taint&) const = default;
};

struct PodAffinityTerm {
  std::string topology_key;
  Selector selector;
  bool selects_nothing = false;         // labelSelector absent: the term matches no pod
  std::vector<std::string> namespaces;  // by name
  bool all_namespaces = false;
  bool selects_namespaces = false;  // also those whose labels match `namespace_selector`
  Selector namespace_selector;
  int weight = 0;  // preferred terms only
  auto operator<=>(const PodAffinityTerm&) const = default;
};

struct SpreadConstraint {
  std::string topology_key;
  int max_skew = 1;
  int min_domains = 1;
  bool hard = true;  // DoNotSchedule
  Selector selector;
  bool honor_affinity = true;  // nodeAffinityPolicy
  bool honor_taints = false;   // nodeTaintsPolicy
  auto operator<=>(const SpreadConstraint&) const = default;
};

struct HostPort {
  std::string ip, protocol;
  int port = 0;
  auto operator<=>(const HostPort&) const = default;
};

enum class GpuKind : std::uint8_t {
  kWhole,     // count devices; also "none" with count 0
  kFraction,  // count devices, `portion` of each
  kMemory,    // count devices, `memory_mib` of each
  kMig,       // profiles are in Request::scalars
};

struct Request {
  std::int64_t cpu = 0;
  std::int64_t memory = 0;
  GpuKind gpu = GpuKind::kWhole;
  std::int64_t gpu_count = 0;
  double portion = 0;
  std::int64_t gpu_memory_mib = 0;
  // MIG profiles ("nvidia.com/mig-1g.5gb"), extended resources, ephemeral-storage; sorted by name.
  std::vector<std::pair<std::string, std::int64_t>> scalars;
  auto operator<=>(const Request&) const = default;
};

// What restricts the nodes of a pod, beyond its request. Equal for the pods of one template.
struct Constraints {
  Labels node_selector;
  bool has_affinity =
      false;  // required terms are present, even if the list is empty (matches none)
  std::vector<NodeTerm> required;
  std::vector<PreferredNodeTerm> preferred;
  std::vector<Toleration> tolerations;
  std::vector<HostPort> ports;
  std::vector<PodAffinityTerm> affinity, anti_affinity;
  std::vector<PodAffinityTerm> preferred_affinity, preferred_anti_affinity;
  std::vector<SpreadConstraint> spread;
  // One entry per bound volume: the node terms of its PersistentVolume (any must match).
  std::vector<std::vector<NodeTerm>> volumes;
  std::vector<std::string> gpu_models;  // nvidia.com/gpu.product values a quota per model counts
  auto operator<=>(const Constraints&) const = default;
};

// kPromised: an earlier cycle promised the node; nothing is bound.
enum class Phase : std::uint8_t {
  kPending,
  kPromised,
  kGated,
  kBinding,
  kBound,
  kRunning,
  kReleasing,
  kSucceeded,
  kFailed,
  kUnknown
};

struct PodSpec {
  std::string uid;  // identity; unique among pods
  std::string ns;
  std::string name;
  std::string scheduler_name;
  std::string
      group;  // PodGroup key "<namespace>/<name>"; "" = the pod is a group of its own where the profile allows it
  std::string sub_group;  // "" = default
  Phase phase = Phase::kPending;
  std::string node;  // node it occupies; "" when none
  std::string nominated_node;
  std::vector<std::string> gpu_groups;  // of a pod with a shared device: the device ids on its node
  std::vector<std::string> gpu_devices;  // of a pod with whole devices: their UUIDs, when known
  Request request;
  Constraints constraints;
  Labels labels;
  std::vector<std::string> claims;  // DRA claim names in `ns`
  // CSI volumes that a node must attach for it: driver and what tells volumes apart. Sorted, unique.
  std::vector<std::pair<std::string, std::string>> attachments;
  std::optional<int> task_priority;  // label kai.scheduler/task-priority
  int role_rank = 0;                 // 0 master, launcher, head; 1 others. Lower first
  int priority = 0;                  // pod priority; `default` profile
  bool never_preempts = false;       // preemptionPolicy: Never
  bool legacy_mig = false;
  std::string unschedulable_reason;  // "" or why no node can take it now (missing PVC, ConfigMap)
  Millis created = 0;
  Millis deleted = 0;  // deletionTimestamp, 0 = none
  // A node refused the pod after it was bound, and the binding was taken back
  // (apiserver/handlers/binding.cc): when, in whole seconds, and how often by now. 0 = never, or
  // something else was said of the pod since.
  Millis refused = 0;
  int refusals = 0;
};

struct GpuDevice {
  std::string uuid;
  std::string model;
  std::int64_t memory_bytes = 0;
  std::int64_t free_bytes = 0;  // what others leave; equals memory_bytes when nobody else is on it
  bool healthy = true;
};

struct NodeSpec {
  std::string name;
  Labels labels;
  std::vector<Taint> taints;
  bool unschedulable = false;
  bool ready = true;
  std::int64_t cpu = 0, memory = 0, pods = 110;
  std::int64_t gpus = 0;  // whole devices that can be handed out, DRA devices included
  std::int64_t dra_gpus = 0;
  std::vector<std::pair<std::string, std::int64_t>> scalars;
  std::vector<GpuDevice> devices;  // from GpuNode; empty = devices are counted only
  std::map<std::string, std::int64_t> volume_limits;  // by CSI driver, from CSINode
};

struct QueueQuota {  // of one resource
  double quota = 0, limit = kUnlimited, weight = 1;
};
struct QueueSpec {
  std::string name;
  std::string parent;  // "" = root
  int priority = 100;
  Millis created = 0;
  QueueQuota cpu, memory, gpu;  // millicores, bytes, devices
  double usage[3] = {0, 0, 0};  // share of the cluster used over time: cpu, memory, gpu
  std::optional<Millis> preempt_min_runtime, reclaim_min_runtime;
  // Beyond KAI: quota and limit per GPU model (label nvidia.com/gpu.product).
  std::vector<std::pair<std::string, double>> model_limits;
};

struct TopologyConstraint {
  std::string topology, required, preferred;
  bool operator==(const TopologyConstraint&) const = default;
};
struct PodSetSpec {
  std::string name;
  int min_available = 1;
  std::optional<TopologyConstraint> topology;
};
struct SubGroupSpec {
  std::string name;  // "" = root
  std::optional<TopologyConstraint> topology;
  std::optional<int> min_sub_group;  // children that must be satisfied; absent = all
  std::vector<PodSetSpec> pod_sets;
  std::vector<SubGroupSpec> groups;
};

struct PodGroupSpec {
  std::string ns, name, uid;
  std::string queue;
  std::string scheduler_name;  // "" = that of its pods; kai-scheduler while there are none
  int priority = 0;
  std::string preemptibility;  // "", preemptible, non-preemptible
  SubGroupSpec root;
  Millis created = 0;
  Millis last_start = 0;   // annotation; 0 = never started
  Millis stale_since = 0;  // annotation; 0 = not stale
  Millis last_eviction = 0;
  std::optional<Millis> preemption_delay;
  std::optional<Millis> staleness_grace;
  int scheduling_backoff = -1;  // 1 = one attempt, then wait for a change
  std::string Key() const { return ns + "/" + name; }
};

struct TopologySpec {
  std::string name;
  std::vector<std::string> levels;   // node label keys, coarse to fine
  std::vector<std::string> aliases;  // of the levels, "" = none; shorter = none for the rest
};

struct NamespaceSpec {
  std::string name;
  Labels labels;
};

struct DeviceAttribute {
  enum class Kind : std::uint8_t { kText, kNumber, kBool, kVersion };
  Kind kind = Kind::kText;
  std::string text;         // kText, kVersion
  std::int64_t number = 0;  // kNumber, kBool
};
// An amount of a device that may be shared, in thousandths, and how a request for a part is rounded.
struct DevicePart {
  std::int64_t value = 0;
  bool ruled = false;                    // without a rule a request that names no part takes all
  std::optional<std::int64_t> fallback;  // what a request that says nothing takes
  std::vector<std::int64_t> values;      // the only amounts there are; sorted
  std::optional<std::int64_t> least, most, step;
};
struct CounterUse {
  std::string set;
  std::map<std::string, std::int64_t> amounts;  // thousandths, by counter
};
struct SliceDevice {
  std::string name;
  std::map<std::string, DeviceAttribute> attributes;  // by "domain/name"
  std::map<std::string, std::string> capacity;        // quantities, by "domain/name"
  bool usable = true;                       // false: it waits for conditions that nobody here sets
  std::vector<Taint> taints;                // that keep claims off
  bool shared = false;                      // several claims may each take a part of it
  std::map<std::string, DevicePart> parts;  // `capacity` as numbers
  std::vector<CounterUse> uses;             // of its pool's counters
  // Where it can be reached, in a slice that says so for each device.
  std::string node;             // "" = `nodes`
  std::vector<NodeTerm> nodes;  // any of them; empty = every node
  bool binds_to_node = false;   // allocated on a node it stays with that node
};
struct DeviceSlice {
  std::string name, driver, pool;
  std::string node;             // "" = `nodes`
  std::vector<NodeTerm> nodes;  // any of them; empty = every node
  std::vector<SliceDevice> devices;
  std::int64_t generation = 0;  // only the newest of a pool counts
  std::int64_t pool_slices =
      0;  // how many slices the pool has; 0 = not said. Fewer: not usable yet
  bool each_device_says = false;  // perDeviceNodeSelection
  // What partitions of one device share: thousandths by set and counter. Pool-wide.
  std::map<std::string, std::map<std::string, std::int64_t>> counters;
};
struct ClaimDevice {
  std::string driver, pool, device;
  auto operator<=>(const ClaimDevice&) const = default;
};
// How an allocated device is held.
struct DeviceHold {
  bool admin = false;                         // looks on; does not keep others off
  bool shared = false;                        // holds `parts` of it only
  std::map<std::string, std::int64_t> parts;  // thousandths by "domain/name"
};
class DeviceSelector;
struct ClaimRequest {
  std::string name;  // of an alternative: "request/alternative"
  std::string device_class;
  std::int64_t count = 1;
  bool all = false;  // AllocationMode All
  // The class's and the request's own; all must hold.
  std::vector<std::shared_ptr<const DeviceSelector>> selectors;
  bool admin = false;
  std::vector<Toleration> tolerations;
  std::vector<std::pair<std::string, std::int64_t>> capacity;  // thousandths, by name
  // firstAvailable: one of these, the earliest that can be had; nothing else of the request counts.
  std::vector<ClaimRequest> alternatives;
};
struct DeviceConstraint {
  std::string attribute;              // "domain/name"
  bool distinct = false;              // all values differ, else all are equal
  std::vector<std::string> requests;  // empty = all
};
struct ClaimSpec {
  std::string ns, name, uid;
  std::string queue_label;
  std::vector<ClaimRequest> requests;
  std::vector<DeviceConstraint> constraints;
  std::string problem;  // "" or why it cannot be allocated at all
  bool deleting = false;
  bool from_template = false;
  std::string owner_uid;  // of the pod that it was made for
  std::vector<ClaimDevice> allocated;
  std::vector<std::string> allocated_for;  // the request of each allocated device
  std::vector<DeviceHold> holds;           // of each allocated device; shorter = held whole
  // Where what is allocated can be reached, empty = everywhere; absent: where the slices say.
  std::optional<std::vector<NodeTerm>> allocated_on;
  std::vector<std::string> reserved_for;  // pod uids
  int reserved_for_others = 0;
  // The engine's: uid of the pod that is charged for a claim which several pods may share.
  std::string payer;
  std::string Key() const { return ns + "/" + name; }
};
// KAI counts the devices of a class as GPUs when its name says so.
bool NamesGpu(const std::string& device_class);

struct DisruptionBudget {
  std::string ns, name;
  Selector selector;
  int disruptions_allowed = 0;
  std::string Key() const { return ns + "/" + name; }
};

}  // namespace sublet::scheduler
