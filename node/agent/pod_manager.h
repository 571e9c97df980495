// PodManager: one PodWorker per pod that the API server has bound to this node, and for every pod
// that only the engine still knows (it is ended). Stands between the API server (informer,
// statuses, Events) and the workers, and answers who runs what for the kubelet API. Threads: "pods"
// makes, tells and joins workers; AgentPort calls come from the workers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "client/events.h"
#include "client/informer.h"
#include "node/agent/object_source.h"
#include "node/agent/status_manager.h"
#include "node/pod/recover.h"
#include "node/pod/worker.h"
#include "node/pod_admission.h"

namespace sublet::node {

class PodManager final : public AgentPort {
 public:
  struct Options {
    std::string node_name;
  };
  // Variables of Services in a namespace; from net/service_variables.h.
  using VariablesOf = std::function<Environment(const std::string& namespace_name, bool all)>;

  PodManager(Options options, client::Client client, client::InformerFactory& informers,
             client::EventRecorder& events, StatusManager& statuses, VariablesOf variables);
  ~PodManager() override;

  // `services` and `objects` are made after this object, since they refer to it.
  void Connect(PodServices& services, ApiObjects& objects);

  // Takes over what runs, then follows the API server. `recovered` is from RecoverPods.
  // Call once WaitSynced has said yes.
  void Start(std::map<std::string, RecoveredPod> recovered);
  void Stop();  // leaves all containers as they are; idempotent; joins

  // False when the pods or the node itself have not been read by `deadline`.
  bool WaitSynced(Deadline deadline) {
    return pods_.WaitSynced(deadline) && node_.WaitSynced(deadline);
  }
  void NoteObjectsChanged(const std::string& pod_uid);

  // Running or ended pods of this node. Threads: any.
  std::shared_ptr<const PodSnapshot> Find(const std::string& namespace_name,
                                          const std::string& name) const;
  std::vector<std::shared_ptr<const PodSnapshot>> List() const;

  // AgentPort
  void Emit(const PodPlan& plan, const std::string& container, bool warning,
            const std::string& reason, const std::string& message) override;
  void PublishStatus(std::shared_ptr<const PodPlan> plan, kube::Json status) override;
  void Finalize(std::shared_ptr<const PodPlan> plan) override;
  Environment ServiceVariables(const std::string& namespace_name, bool all) override;
  Result<std::string> FindRuntime(const std::string& runtime_class) override;
  void WorkerDone(const std::string& pod_uid) override;

 private:
  void Run();
  void Apply(const std::string& uid, const client::ObjectPtr& object);
  void Add(const std::string& uid, std::shared_ptr<const PodPlan> plan, PodRecord record);
  void Admit(const PodPlan& plan, PodRecord* record);
  std::optional<Rejection> TryAdmit(const std::string& uid, const PodDemand& demand,
                                    const NodeOffer& node, bool runs_already);
  void LetGo(const std::string& uid);

  const Options options_;
  const client::Client client_;
  client::EventRecorder& events_;
  StatusManager& statuses_;
  const VariablesOf variables_;
  client::Informer& pods_;
  client::Informer& node_;
  PodServices* services_ = nullptr;
  ApiObjects* objects_ = nullptr;

  // What counts on this node. A pod is let go before the API server hears that it is gone or has
  // ended: the next one may be bound the moment it does.
  Mutex admission_mutex_;
  PodAdmission admission_ SUBLET_GUARDED_BY(admission_mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  // Newest state of pods that changed; nullptr = gone from the API.
  std::map<std::string, client::ObjectPtr> changes_ SUBLET_GUARDED_BY(mutex_);
  std::vector<std::string> done_ SUBLET_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<PodWorker>> workers_ SUBLET_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sublet::node
