// PodBench: the pod runtime without an API server: pods come as JSON, statuses and Events are kept
// for assertions. Used by tests against a real engine (node/pod/pod_integration_test.cc).
// Threads: the test's; AgentPort calls come from the workers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "node/engine/image_archive.h"
#include "node/pod/worker.h"

namespace sublet::node {

class PodBench final : public AgentPort, public VolumeSource {
 public:
  explicit PodBench(const std::string& root);
  ~PodBench() override;

  // Runs the pod; `yaml` is its manifest without status and uid. Returns the uid.
  std::string Run(const std::string& yaml);
  void Delete(const std::string& uid, int grace_seconds);
  // Stops all workers and starts new ones from what the engine shows.
  void RestartAgent();

  kube::Json StatusOf(const std::string& uid) const;
  std::vector<std::string> Events(const std::string& uid) const;  // "Reason: message"
  // Waits until `check` holds for the pod's status. False after `timeout`.
  bool Await(const std::string& uid, const std::function<bool(const kube::Json&)>& check,
             std::chrono::seconds timeout = std::chrono::seconds(30)) const;
  bool AwaitEvent(const std::string& uid, const std::string& part,
                  std::chrono::seconds timeout = std::chrono::seconds(30)) const;
  bool AwaitGone(const std::string& uid) const;
  std::shared_ptr<const PodSnapshot> Snapshot(const std::string& uid) const;
  // The output of a command in a container.
  std::string Exec(const std::string& uid, const std::string& container,
                   const std::vector<std::string>& argv);
  std::string Log(const std::string& uid, const std::string& container, bool previous = false);

  void SetConfigMap(const std::string& name, const std::map<std::string, std::string>& data);
  void SetSecret(const std::string& name, const std::map<std::string, std::string>& data);

  ContainerEngine& engine() { return *engine_; }
  PodServices& services() { return *services_; }

  void Emit(const PodPlan& plan, const std::string& container, bool warning,
            const std::string& reason, const std::string& message) override;
  void PublishStatus(std::shared_ptr<const PodPlan> plan, kube::Json status) override;
  void Finalize(std::shared_ptr<const PodPlan> plan) override;
  Environment ServiceVariables(const std::string& namespace_name, bool all) override;
  Result<std::string> FindRuntime(const std::string& runtime_class) override;
  void WorkerDone(const std::string& pod_uid) override;
  Result<std::shared_ptr<const kube::Json>> GetConfigMap(const std::string& namespace_name,
                                                         const std::string& name) override;
  Result<std::shared_ptr<const kube::Json>> GetSecret(const std::string& namespace_name,
                                                      const std::string& name) override;
  Result<Token> RequestToken(const TokenRequest& request) override;
  Result<kube::Json> GetClaim(const std::string& namespace_name, const std::string& name) override;
  Result<kube::Json> GetPersistentVolume(const std::string& name) override;
  Result<kube::Json> GetClusterTrustBundle(const std::string& name) override;

 private:
  struct State;
  void StartWorkers(bool recover);
  void StopWorkers();

  const std::string root_;
  std::unique_ptr<ContainerEngine> engine_;
  std::unique_ptr<PodNetwork> network_;
  std::unique_ptr<Volumes> volumes_;
  std::unique_ptr<Images> images_;
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<ExitWatcher> exits_;
  std::unique_ptr<PodServices> services_;
  std::map<std::string, std::unique_ptr<PodWorker>> workers_;
  std::unique_ptr<State> state_;
};

// The image of busybox that all these tests run.
inline constexpr const char* kTestImage = "sublet.test/busybox:1";
ImageRecipe BusyboxRecipe();

}  // namespace sublet::node
