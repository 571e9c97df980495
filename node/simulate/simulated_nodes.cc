#include "node/simulate/simulated_nodes.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "kube/object.h"

namespace sublet::node {
namespace {

using client::Outcome;
using kube::Json;

client::Target Pod(const kube::ObjectKey& key, std::string subresource = "") {
  return {{"", "v1", "pods"}, key.namespace_name, key.name, std::move(subresource)};
}
client::Target NodeTarget(const std::string& name, std::string subresource = "") {
  return {{"", "v1", "nodes"}, "", name, std::move(subresource)};
}
client::Target Lease(const std::string& name) {
  return {{"coordination.k8s.io", "v1", "leases"}, "kube-node-lease", name, ""};
}

// Whether it was let in already.
bool HasRun(const SimulatedPod& pod) {
  return pod.phase == "Running" || pod.start_time.has_value();
}

}  // namespace

SimulatedNodes::SimulatedNodes(client::Client client, SimulateOptions options, const Clock& clock)
    : client_(std::move(client)),
      options_(std::move(options)),
      clock_(clock),
      informers_(client_),
      manager_(informers_, clock_, options_.writers),
      pods_(informers_.For({.resource = {"", "v1", "pods"},
                            .kind = "Pod",
                            .field_selector = "spec.nodeName!=",
                            .keep_bytes = false,
                            .make_record = [](const Json& pod) -> std::shared_ptr<const void> {
                              return std::make_shared<const SimulatedPod>(ReadSimulatedPod(pod));
                            }})),
      nodes_(informers_.For({.resource = {"", "v1", "nodes"},
                             .kind = "Node",
                             .label_selector = std::string(kSimulatedAnnotation) + "=true",
                             .make_record = [](const Json& node) -> std::shared_ptr<const void> {
                               return std::make_shared<const NodeOffer>(ReadNodeOffer(node));
                             }})),
      pod_queue_(manager_.Add(
          {.name = "simulated-pod",
           .reconcile = [this](const kube::ObjectKey& key) { return ReconcilePod(key); },
           .workers_max = options_.writers,
           .needs = {&pods_}})),
      node_queue_(manager_.Add(
          {.name = "simulated-node",
           .reconcile = [this](const kube::ObjectKey& key) { return ReconcileNode(key); },
           .workers_max = options_.writers,
           .needs = {&nodes_}})),
      lease_schedule_(std::max(1, options_.nodes), kLeaseInterval) {
  for (int i = 0; i < options_.nodes; ++i) {
    by_name_[NodeName(options_, i)].index = i;
  }
  pods_.AddHandler([this](const client::ObjectPtr& before, const client::ObjectPtr& after) {
    OnPod(before, after);
  });
  nodes_.AddHandler([this](const client::ObjectPtr& before, const client::ObjectPtr& after) {
    node_queue_.Add((after ? after : before)->key);
  });
}

SimulatedNodes::~SimulatedNodes() { Stop(); }

void SimulatedNodes::Start() {
  {
    MutexLock lock(mutex_);
    if (started_ || stopped_) {
      return;
    }
    started_ = true;
  }
  for (int i = 0; i < options_.nodes; ++i) {
    node_queue_.Add({"", NodeName(options_, i)});
  }
  manager_.Start();
  leases_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "sim-leases");
    RunLeases();
  });
}

bool SimulatedNodes::WaitRegistered(Deadline deadline) {
  MutexLock lock(mutex_);
  while (registered_ < options_.nodes && !stopped_) {
    if (!changed_.WaitUntil(mutex_, deadline)) {
      break;
    }
  }
  return registered_ >= options_.nodes;
}

void SimulatedNodes::Stop() {
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
    stopped_ = true;
  }
  changed_.NotifyAll();
  manager_.Stop();
  if (leases_.joinable()) {
    leases_.join();
  }
  if (options_.delete_nodes_at_stop) {
    for (int i = 0; i < options_.nodes; ++i) {
      static_cast<void>(client_.Delete(NodeTarget(NodeName(options_, i))).ok());
    }
  }
}

Result<Outcome> SimulatedNodes::ReconcileNode(const kube::ObjectKey& key) {
  int index = 0;
  {
    MutexLock lock(mutex_);
    const auto found = by_name_.find(key.name);
    if (found == by_name_.end()) {
      return Outcome::Done();  // another simulator's
    }
    index = found->second.index;
  }
  const client::ObjectPtr cached = nodes_.Get(key);
  Json node;
  if (!cached) {
    auto created = client_.Create(NodeTarget(key.name), NodeObject(options_, index, clock_.Now()));
    if (created.ok()) {
      node = std::move(*created);
    } else if (created.error().Is(Reason::kAlreadyExists)) {
      // From an earlier run, or somebody's own node of this name: taken over as it is.
      SUBLET_TRY(node, client_.Get(NodeTarget(key.name)));
    } else {
      return std::move(created).error();
    }
  } else {
    SUBLET_TRY(node, cached->Parse());
  }
  if (!kube::IsConditionTrue(node, "Ready")) {
    const Json wanted = NodeObject(options_, index, clock_.Now());
    SUBLET_TRY(node,
               client_.Patch(NodeTarget(key.name, "status"), client::PatchType::kStrategicMerge,
                             {{"status", wanted["status"]}}));
  } else if (const Json patch = AllocatablePatch(node); !patch.is_null()) {
    SUBLET_TRY(node,
               client_.Patch(NodeTarget(key.name, "status"), client::PatchType::kMerge, patch));
  }
  const std::string uid(kube::UidOf(node));
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = by_name_[key.name].uid != uid;
  }
  if (first) {
    RenewLease(key.name, uid);  // a node without a lease looks dead
  }
  {
    MutexLock lock(mutex_);
    Node& state = by_name_[key.name];
    state.uid = uid;
    if (first) {
      lease_schedule_.Written(index, std::chrono::steady_clock::now());
    }
    if (!state.registered) {
      state.registered = true;
      ++registered_;
    }
  }
  changed_.NotifyAll();
  return Outcome::Done();
}

void SimulatedNodes::OnPod(const client::ObjectPtr& before, const client::ObjectPtr& after) {
  const client::CachedObject& object = after ? *after : *before;
  const auto& facts = object.As<SimulatedPod>();
  {
    MutexLock lock(mutex_);
    if (!by_name_.contains(facts.node)) {
      return;
    }
  }
  if (!after) {
    Release(facts.node, object.uid);
    return;
  }
  if (before && before->uid != after->uid) {
    Release(before->As<SimulatedPod>().node, before->uid);
  }
  if (facts.Finished()) {
    Release(facts.node, object.uid);
  }
  pod_queue_.Add(object.key);
}

void SimulatedNodes::Release(const std::string& node, const std::string& uid) {
  MutexLock lock(mutex_);
  const auto found = by_name_.find(node);
  if (found == by_name_.end()) {
    return;
  }
  found->second.admission.Release(uid);
  std::erase_if(found->second.slots, [&](const auto& entry) { return entry.second == uid; });
}

bool SimulatedNodes::IsImageMissing(const SimulatedPod& pod) const {
  return std::any_of(pod.containers.begin(), pod.containers.end(), [&](const auto& container) {
    return std::any_of(
        options_.missing_images.begin(), options_.missing_images.end(),
        [&](const std::string& part) { return container.image.find(part) != std::string::npos; });
  });
}

void SimulatedNodes::AdoptRunning() {
  if (std::exchange(adopted_, true)) {
    return;
  }
  // All are in the cache: no pod is looked at before. One that goes from now on is released after.
  for (const client::ObjectPtr& object : pods_.List()) {
    const auto& pod = object->As<SimulatedPod>();
    const auto found = by_name_.find(pod.node);
    if (found == by_name_.end() || pod.Finished() || !HasRun(pod)) {
      continue;
    }
    Node& node = found->second;
    node.admission.Admit(object->uid, pod.demand, NodeOffer(), true);
    if (const int slot = SlotOf(options_, node.index, pod.pod_ip); slot >= 0) {
      node.slots[slot] = object->uid;
    }
  }
}

PodPlace SimulatedNodes::Place(const client::CachedObject& object, const SimulatedPod& pod,
                               const NodeOffer& offer) {
  PodPlace out;
  out.image_missing = IsImageMissing(pod);
  MutexLock lock(mutex_);
  AdoptRunning();
  Node& node = by_name_[pod.node];
  out.host_ip = NodeIp(node.index);
  out.rejection = node.admission.Admit(object.uid, pod.demand, offer, HasRun(pod));
  if (!pod.pod_ip.empty()) {
    out.pod_ip = pod.pod_ip;
    // Held from an earlier run of this program.
    if (const int slot = SlotOf(options_, node.index, pod.pod_ip); slot >= 0) {
      node.slots[slot] = object.uid;
    }
    return out;
  }
  for (const auto& [slot, uid] : node.slots) {
    if (uid == object.uid) {  // given before, its status is not back yet
      out.pod_ip = PodIp(options_, node.index, slot);
      return out;
    }
  }
  for (int i = 0; i < kSlotsPerNode; ++i) {
    const int slot = (node.next_slot + i) % kSlotsPerNode;
    if (node.slots.try_emplace(slot, object.uid).second) {
      node.next_slot = slot + 1;
      out.pod_ip = PodIp(options_, node.index, slot);
      break;
    }
  }
  return out;
}

Result<Outcome> SimulatedNodes::ReconcilePod(const kube::ObjectKey& key) {
  const client::ObjectPtr object = pods_.Get(key);
  if (!object) {
    return Outcome::Done();
  }
  const auto& pod = object->As<SimulatedPod>();
  if (object->deleting()) {
    return FinishDeletion(*object, pod);
  }
  if (pod.Finished()) {
    return Outcome::Done();
  }
  const WallTime now = clock_.Now();
  const client::ObjectPtr known = nodes_.Get({"", pod.node});
  PodPlace place = Place(*object, pod, known ? known->As<NodeOffer>() : NodeOffer());
  if (place.rejection) {
    // Our view of the node may be older than that of the scheduler.
    SUBLET_TRY(const Json node, client_.Get(NodeTarget(pod.node)));
    place = Place(*object, pod, ReadNodeOffer(node));
  }
  const PodStep step = NextStep(pod, place, now);
  if (step.patch) {
    // The uid keeps a late write from a successor of the same name.
    Json patch = *step.patch;
    patch["metadata"]["uid"] = object->uid;
    const auto written = client_.Patch(Pod(key, "status"), client::PatchType::kStrategicMerge,
                                       patch, {.reads_answer = false});
    if (!written.ok() && !written.error().Is(Reason::kNotFound) &&
        !written.error().Is(Reason::kConflict)) {
      return written.error();
    }
    return Outcome::Done();  // the written status comes back as an event
  }
  if (step.next) {
    return Outcome::After(
        std::max<std::chrono::nanoseconds>(*step.next - now, std::chrono::milliseconds(1)));
  }
  return Outcome::Done();
}

Result<Outcome> SimulatedNodes::FinishDeletion(const client::CachedObject& object,
                                               const SimulatedPod& pod) {
  if (pod.stopping_since && options_.stop_milliseconds > 0) {
    const auto end = *pod.stopping_since + std::chrono::milliseconds(options_.stop_milliseconds);
    if (const auto left = end - clock_.Now(); left.count() > 0) {
      return Outcome::After(left);
    }
  }
  // Whoever holds a finalizer (a Job counting its pods) must see how the pod ended.
  if (object.finalizers.size() > 0 && !pod.Finished()) {
    Json patch = StoppedStatus(pod, clock_.Now());
    patch["metadata"]["uid"] = object.uid;
    const auto written =
        client_.Patch(Pod(object.key, "status"), client::PatchType::kStrategicMerge, patch);
    if (!written.ok() && !written.error().Is(Reason::kNotFound)) {
      return written.error();
    }
  }
  const auto deleted =
      client_.Delete(Pod(object.key), {.grace_period_seconds = 0, .uid = object.uid});
  if (!deleted.ok() && !deleted.error().Is(Reason::kNotFound) &&
      !deleted.error().Is(Reason::kConflict)) {
    return deleted.error();
  }
  return Outcome::Done();
}

void SimulatedNodes::RenewLease(const std::string& name, const std::string& uid) {
  const Json lease = LeaseObject(name, uid, clock_.Now());
  const Json patch = {{"spec", lease["spec"]}};
  auto written =
      client_.Patch(Lease(name), client::PatchType::kMerge, patch, {.reads_answer = false});
  if (!written.ok() && written.error().Is(Reason::kNotFound)) {
    written = client_.Create(Lease(name), lease);
  }
  if (!written.ok()) {
    log::Debug("lease not renewed", {{"node", name}, {"error", written.error()}});
  }
}

void SimulatedNodes::RunLeases() {
  for (;;) {
    std::string name;
    std::string uid;
    {
      MutexLock lock(mutex_);
      std::optional<int> index;
      while (!stopped_ && !(index = lease_schedule_.Take(std::chrono::steady_clock::now()))) {
        if (const auto next = lease_schedule_.NextAt()) {
          changed_.WaitUntil(mutex_, *next);
        } else {
          changed_.Wait(mutex_);
        }
      }
      if (stopped_) {
        return;
      }
      name = NodeName(options_, *index);
      uid = by_name_[name].uid;
    }
    RenewLease(name, uid);
  }
}

int RunSimulatedNodes(const SimulateOptions& options, const client::Client& client) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread, which inherits it
  SimulatedNodes nodes(client, options);
  nodes.Start();
  log::Info("simulating nodes", {{"nodes", options.nodes}});
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  nodes.Stop();
  return 0;
}

}  // namespace sublet::node
