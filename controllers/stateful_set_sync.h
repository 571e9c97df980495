// StatefulSetSync: one reconcile of one StatefulSet. Private to the stateful set controller.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controllers/pod_control.h"
#include "controllers/revision_history.h"
#include "controllers/stateful_pods.h"

namespace sublet::controllers {

class StatefulSetSync {
 public:
  struct Parts {
    const Collection& sets;
    const Collection& claims;
    const PodControl& control;
    const RevisionHistory& history;
    const Clock& clock;
  };
  StatefulSetSync(const Parts& parts, kube::Json set, std::vector<client::ObjectPtr> pods);

  Result<client::Outcome> Run(const kube::LabelSelector& selector);

 private:
  // What to do after a step: go on with the next pod, or leave the rest for the next event.
  enum class Step { kNext, kStop };

  Result<void> Revisions(const kube::LabelSelector& selector);
  void SortPods();
  Result<void> MovePods();
  Result<Step> ProcessReplica(std::int64_t ordinal);
  Result<Step> CreateReplica(std::int64_t ordinal);
  Result<Step> ProcessCondemned();
  Result<void> UpdatePods();
  Result<void> EnsureClaims(std::int64_t ordinal, const client::ObjectPtr& pod);
  Result<void> PutClaimOwner(std::int64_t ordinal, const client::ObjectPtr& pod);
  const kube::Json& TemplateFor(std::int64_t ordinal, std::string* revision) const;
  bool Healthy(const client::ObjectPtr& pod);
  bool Available(const client::ObjectPtr& pod);
  Result<void> DeletePod(const client::ObjectPtr& pod);
  Result<void> WriteStatus();
  kube::Json CountStatus();

  Parts parts_;
  kube::Json set_;
  std::vector<client::ObjectPtr> pods_;
  std::int64_t start_ = 0;
  std::int64_t replicas_ = 1;
  bool parallel_ = false;
  std::vector<client::ObjectPtr> in_range_;   // by ordinal - start_, null = missing
  std::vector<client::ObjectPtr> condemned_;  // highest ordinal first
  std::vector<Revision> revisions_;
  std::string current_revision_;
  std::string update_revision_;
  kube::Json current_template_;
  std::int64_t collision_count_ = 0;
  std::chrono::nanoseconds wait_{0};
};

}  // namespace sublet::controllers
