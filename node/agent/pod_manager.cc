#include "node/agent/pod_manager.h"

#include <pthread.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/object.h"

namespace sublet::node {
namespace {

client::InformerOptions PodsOf(const std::string& node_name) {
  client::InformerOptions options;
  options.resource = {"", "v1", "pods"};
  options.kind = "Pod";
  options.field_selector = "spec.nodeName=" + node_name;
  options.trim = [](kube::Json& pod) {
    if (pod.contains("metadata")) {
      pod["metadata"].erase("managedFields");
    }
  };
  return options;
}

client::InformerOptions NodeOf(const std::string& node_name) {
  client::InformerOptions options;
  options.resource = {"", "v1", "nodes"};
  options.kind = "Node";
  options.field_selector = "metadata.name=" + node_name;
  options.keep_bytes = false;
  options.make_record = [](const kube::Json& node) -> std::shared_ptr<const void> {
    return std::make_shared<const NodeOffer>(ReadNodeOffer(node));
  };
  return options;
}

bool HasFinished(const kube::Json& pod) {
  const auto phase = kube::FindString(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

}  // namespace

PodManager::PodManager(Options options, client::Client client, client::InformerFactory& informers,
                       client::EventRecorder& events, StatusManager& statuses,
                       VariablesOf variables)
    : options_(std::move(options)),
      client_(std::move(client)),
      events_(events),
      statuses_(statuses),
      variables_(std::move(variables)),
      pods_(informers.For(PodsOf(options_.node_name))),
      node_(informers.For(NodeOf(options_.node_name))) {}

PodManager::~PodManager() { Stop(); }

void PodManager::Connect(PodServices& services, ApiObjects& objects) {
  services_ = &services;
  objects_ = &objects;
}

void PodManager::Start(std::map<std::string, RecoveredPod> recovered) {
  std::map<std::string, std::shared_ptr<const PodPlan>> plans;
  for (const client::ObjectPtr& object : pods_.List()) {
    if (auto parsed = object->Parse(); parsed.ok()) {
      plans[object->uid] = ParsePod(std::make_shared<const kube::Json>(std::move(parsed).value()));
    }
  }
  // All addresses are taken note of before a new pod may get one.
  for (const auto& [uid, pod] : recovered) {
    if (pod.record.sandbox && !pod.record.sandbox->ip.empty()) {
      if (auto ip = ParseIpv4(pod.record.sandbox->ip); ip.ok()) {
        services_->network.Reserve(uid, *ip);
      }
    }
  }
  for (auto& [uid, pod] : recovered) {
    const auto it = plans.find(uid);
    if (it != plans.end()) {
      Add(uid, it->second, std::move(pod.record));
      plans.erase(it);
      continue;
    }
    log::Info("ending a pod that is gone from the API server",
              {{"namespace", pod.namespace_name}, {"name", pod.name}});
    auto plan = PlanForOrphan(uid, pod);
    PodRecord record = std::move(pod.record);
    record.removed_from_api = true;
    Add(uid, std::move(plan), std::move(record));
  }
  for (auto& [uid, plan] : plans) {
    Add(uid, std::move(plan), PodRecord{});
  }
  pods_.AddHandler([this](const client::ObjectPtr& before, const client::ObjectPtr& after) {
    {
      MutexLock lock(mutex_);
      if (before != nullptr && (after == nullptr || after->uid != before->uid)) {
        changes_[before->uid] = nullptr;
      }
      if (after != nullptr) {
        changes_[after->uid] = after;
      }
    }
    changed_.NotifyOne();
  });
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "pods");
    Run();
  });
}

void PodManager::Stop() {
  std::map<std::string, std::shared_ptr<PodWorker>> workers;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    workers = workers_;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
  for (const auto& [uid, worker] : workers) {
    worker->Stop();
  }
  workers.clear();
  MutexLock lock(mutex_);
  workers.swap(workers_);
}

void PodManager::Run() {
  for (;;) {
    std::map<std::string, client::ObjectPtr> changes;
    std::vector<std::shared_ptr<PodWorker>> ended;
    {
      MutexLock lock(mutex_);
      while (!stopped_ && changes_.empty() && done_.empty()) {
        changed_.Wait(mutex_);
      }
      if (stopped_) {
        return;
      }
      changes.swap(changes_);
      for (const std::string& uid : done_) {
        if (const auto it = workers_.find(uid); it != workers_.end()) {
          ended.push_back(std::move(it->second));
          workers_.erase(it);
        }
      }
      done_.clear();
    }
    for (const auto& worker : ended) {
      objects_->Unregister(worker->Snapshot()->plan->uid);
      LetGo(worker->Snapshot()->plan->uid);
      worker->Stop();
    }
    for (const auto& [uid, object] : changes) {
      Apply(uid, object);
    }
  }
}

void PodManager::Apply(const std::string& uid, const client::ObjectPtr& object) {
  std::shared_ptr<PodWorker> worker;
  {
    MutexLock lock(mutex_);
    if (const auto it = workers_.find(uid); it != workers_.end()) {
      worker = it->second;
    }
  }
  if (object == nullptr) {
    if (worker != nullptr) {
      worker->NoteRemovedFromApi();
    }
    return;
  }
  auto parsed = object->Parse();
  if (!parsed.ok()) {
    log::Error("a pod of this node cannot be read",
               {{"name", object->key.Text()}, {"error", parsed.error()}});
    return;
  }
  auto plan = ParsePod(std::make_shared<const kube::Json>(std::move(parsed).value()));
  if (HasFinished(*plan->object)) {
    LetGo(uid);
  }
  if (worker == nullptr) {
    // Also a late word about a pod whose worker has finished it: a second one finds nothing to do
    // and asks for the object's removal again.
    Add(uid, std::move(plan), PodRecord{});
    return;
  }
  objects_->Register(*plan);
  worker->Update(std::move(plan));
}

void PodManager::Add(const std::string& uid, std::shared_ptr<const PodPlan> plan,
                     PodRecord record) {
  if (!record.removed_from_api) {
    Admit(*plan, &record);
    objects_->Register(*plan);
  }
  auto worker = std::make_shared<PodWorker>(*services_, std::move(plan), std::move(record));
  {
    MutexLock lock(mutex_);
    workers_[uid] = worker;
  }
  worker->Start();
}

std::optional<Rejection> PodManager::TryAdmit(const std::string& uid, const PodDemand& demand,
                                              const NodeOffer& node, bool runs_already) {
  MutexLock lock(admission_mutex_);
  return admission_.Admit(uid, demand, node, runs_already);
}

void PodManager::LetGo(const std::string& uid) {
  MutexLock lock(admission_mutex_);
  admission_.Release(uid);
}

// Counts the pod, or makes it end before anything of it starts. A pod that an earlier agent
// admitted is counted in any case.
void PodManager::Admit(const PodPlan& plan, PodRecord* record) {
  const kube::Json& pod = *plan.object;
  const bool runs = record->sandbox.has_value() || !record->containers.empty();
  if (HasFinished(pod) || (plan.deleting && !runs)) {
    return;
  }
  const bool admitted = runs || !kube::FindString(pod, {"status", "startTime"}).empty();
  const PodDemand demand = ReadPodDemand(pod);
  const client::ObjectPtr known = node_.Get({"", options_.node_name});
  auto rejection =
      TryAdmit(plan.uid, demand, known ? known->As<NodeOffer>() : NodeOffer(), admitted);
  if (rejection) {
    // Our view of the node may be older than that of the scheduler.
    client::Target target;
    target.resource = {"", "v1", "nodes"};
    target.name = options_.node_name;
    if (const auto node = client_.Get(target); node.ok()) {
      rejection = TryAdmit(plan.uid, demand, ReadNodeOffer(*node), admitted);
    }
  }
  if (rejection) {
    Emit(plan, "", true, rejection->reason, rejection->message);
    record->verdict = Failure{rejection->reason, "Pod was rejected: " + rejection->message};
    record->is_rejected = true;
  }
}

void PodManager::NoteObjectsChanged(const std::string& pod_uid) {
  std::shared_ptr<PodWorker> worker;
  {
    MutexLock lock(mutex_);
    if (const auto it = workers_.find(pod_uid); it != workers_.end()) {
      worker = it->second;
    }
  }
  if (worker != nullptr) {
    worker->NoteObjectsChanged();
  }
}

std::shared_ptr<const PodSnapshot> PodManager::Find(const std::string& namespace_name,
                                                    const std::string& name) const {
  std::shared_ptr<const PodSnapshot> found;
  MutexLock lock(mutex_);
  for (const auto& [uid, worker] : workers_) {
    const auto snapshot = worker->Snapshot();
    if (snapshot->plan->name == name && snapshot->plan->namespace_name == namespace_name) {
      // Of two with one name the one that is not ending counts.
      if (found == nullptr || !snapshot->record.removed_from_api) {
        found = snapshot;
      }
    }
  }
  return found;
}

std::vector<std::shared_ptr<const PodSnapshot>> PodManager::List() const {
  std::vector<std::shared_ptr<const PodSnapshot>> list;
  MutexLock lock(mutex_);
  for (const auto& [uid, worker] : workers_) {
    list.push_back(worker->Snapshot());
  }
  return list;
}

void PodManager::Emit(const PodPlan& plan, const std::string& container, bool warning,
                      const std::string& reason, const std::string& message) {
  client::EventTarget target = client::EventTargetOf(*plan.object, "v1", "Pod");
  if (!container.empty()) {
    const ContainerPlan* found = plan.Find(container);
    const char* list = found == nullptr || found->role == ContainerRole::kMain ? "containers"
                       : found->role == ContainerRole::kEphemeral ? "ephemeralContainers"
                                                                  : "initContainers";
    target.field_path = std::string("spec.") + list + "{" + container + "}";
  }
  events_.Event(target, warning ? "Warning" : "Normal", reason, message.substr(0, 1024));
}

void PodManager::PublishStatus(std::shared_ptr<const PodPlan> plan, kube::Json status) {
  if (const auto phase = kube::FindString(status, {"phase"});
      phase == "Succeeded" || phase == "Failed") {
    LetGo(plan->uid);
  }
  statuses_.Put(std::move(plan), std::move(status));
}

void PodManager::Finalize(std::shared_ptr<const PodPlan> plan) {
  LetGo(plan->uid);
  statuses_.Finalize(std::move(plan));
}

Environment PodManager::ServiceVariables(const std::string& namespace_name, bool all) {
  return variables_(namespace_name, all);
}

Result<std::string> PodManager::FindRuntime(const std::string& runtime_class) {
  client::Target target;
  target.resource = {"node.k8s.io", "v1", "runtimeclasses"};
  target.name = runtime_class;
  auto found = client_.Get(target);
  if (!found.ok()) {
    if (found.error().Is(Reason::kNotFound)) {
      return Status(Reason::kNotFound, "failed to get sandbox runtime: RuntimeClass \"" +
                                           runtime_class + "\" not found");
    }
    return std::move(found).error();
  }
  const std::string handler(kube::FindString(*found, {"handler"}));
  SUBLET_TRY(const auto runtimes, services_->engine.ListRuntimes());
  if (std::find(runtimes.begin(), runtimes.end(), handler) == runtimes.end()) {
    return Status(Reason::kNotFound, "failed to get sandbox runtime: no runtime for \"" + handler +
                                         "\" is configured");
  }
  return handler;
}

void PodManager::WorkerDone(const std::string& pod_uid) {
  {
    MutexLock lock(mutex_);
    done_.push_back(pod_uid);
  }
  changed_.NotifyOne();
}

}  // namespace sublet::node
