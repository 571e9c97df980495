// DeploymentSync: one reconcile of one Deployment, from what the cache shows to the writes that
// bring it a step further. Private to the deployment controller.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "controllers/deployment_math.h"
#include "controllers/pod_control.h"

namespace sublet::controllers {

class DeploymentSync {
 public:
  struct Parts {
    const Collection& deployments;
    const Collection& sets;
    const Collection& pods;
    const client::EventRecorder::Source& events;
    const Clock& clock;
  };
  DeploymentSync(const Parts& parts, kube::Json deployment, std::vector<SetView> sets);

  Result<client::Outcome> Run();

 private:
  // Finds the new set and the old ones and keeps revisions right; makes the new set when `create`.
  Result<void> SortSets(bool create);
  Result<void> CreateNewSet(std::int64_t revision);
  Result<void> UpdateNewSet(std::int64_t revision);
  bool PutSetAnnotations(kube::Json* set, std::int64_t revision, bool exists) const;
  bool PutReplicaAnnotations(kube::Json* set) const;
  std::vector<SetView*> All();
  std::vector<SetView*> Active(const std::vector<SetView*>& sets) const;

  bool IsScalingEvent();
  Result<void> Scale();
  // Writes the size when it differs; Event ScalingReplicaSet. Returns whether it changed.
  Result<bool> ScaleSet(SetView* set, std::int64_t replicas);
  Result<bool> RollingStep();
  Result<bool> RecreateStep();
  bool OldPodsRunning() const;
  Result<void> CleanUp();

  kube::Json CountStatus();
  bool IsComplete(const kube::Json& status) const;
  bool HasDeadline() const;
  std::optional<kube::Json> PausedCondition() const;
  void PutProgress(kube::Json* status);
  void PutFailure(kube::Json* status);
  bool TimedOut(const kube::Json& status) const;
  Result<client::Outcome> WriteStatus(kube::Json status);
  client::Outcome NextCheck() const;
  kube::Json ConditionNow(std::string_view type, std::string_view status, std::string_view reason,
                          const std::string& message) const;

  Parts parts_;
  kube::Json deployment_;
  RolloutLimits limits_;
  std::vector<SetView> sets_;
  SetView* new_set_ = nullptr;
  std::vector<SetView*> old_sets_;
  std::string now_;
  // Conditions that a step wants in the next status, and a template hash collision.
  std::vector<kube::Json> extra_conditions_;
  std::optional<std::int64_t> collision_count_;
};

// The condition of `type` in a status, or nullptr; and replacing or adding one (lastTransitionTime
// stays when the status text stays).
const kube::Json* FindIn(const kube::Json& status, std::string_view type);
void PutIn(kube::Json* status, kube::Json condition);
void DropFrom(kube::Json* status, std::string_view type);

}  // namespace sublet::controllers
