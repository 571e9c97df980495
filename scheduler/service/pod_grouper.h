// PodGrouper: gives every pod of a KAI-like scheduler its PodGroup. Finds the top owner, decides by
// kind how pods are grouped (table in pod_grouper_kinds.cc), applies the PodGroup and writes the
// link into the pod, with KAI's names (`pg-<owner>-<uid>`, annotation pod-group-name). Source:
// reference facts on KAI's pod-grouper (section 4). Profiles up to kai-0.13 group Jobs pod by pod,
// as KAI before 0.15 did. Threads: the manager's workers, one per pod.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "base/mutex.h"
#include "client/events.h"
#include "client/manager.h"
#include "scheduler/service/feed.h"

namespace sublet::scheduler {

// One sub group of a plan; a leaf has a minimum of pods, a parent one of children.
struct PlannedGroup {
  std::string name;
  std::int64_t min_member = 0;
  std::string parent;  // "" = the root
  std::optional<std::int64_t> min_sub_group;
  kube::Json topology = nullptr;  // a PodGroup's topologyConstraint; null = none
};

// What one pod's group looks like.
struct GroupPlan {
  std::string problem;  // "" or why there is no plan (KAI's event PodGrouperWarning)
  std::string name;     // of the PodGroup
  kube::Json owner;     // ownerReference of the PodGroup
  std::int64_t min_member = 1;
  std::string default_class;      // train, inference, build
  std::string priority;           // "" or the class that the kind itself names
  kube::Json topology = nullptr;  // of the root, where the kind itself says it
  std::vector<PlannedGroup> sub_groups;
  std::string sub_group;  // the pod's own
  // Of the root; the PodGroup then has no minMember.
  std::optional<std::int64_t> min_sub_group;
  // The group may stand already with a smaller minimum, which this pod raises.
  bool raises_minimum = false;
};

// Prepares owners (nearest first) for PlanGroup: kinds that only wrap others (an Argo Workflow, a
// TrainJob, ...) are taken off the top, and their labels and annotations go to what is below them;
// a Knative pod's top is its Revision. Pure.
void SettleOwners(kube::Json* pod, std::vector<kube::Json>* owners);
// A Grove pod is grouped by its PodGang, which owns nothing. The gang's name, or "".
std::string PodGangOf(const kube::Json& pod, const std::vector<kube::Json>& owners);
// Puts the gang on top, with the labels and annotations of what was there. Pure.
void AddPodGang(kube::Json gang, std::vector<kube::Json>* owners);

// Decides the group of `pod` from its owners, top owner last (empty: a bare pod), as SettleOwners
// left them. Pure.
// `jobs_per_pod`: as KAI before 0.15, one group per pod of a Job, and of a JobSet one flat group, or
// one per replicated job when they start in order. Later KAI makes a tree of a JobSet: a group per
// replicated job, below it one per Job.
GroupPlan PlanGroup(const kube::Json& pod, const std::vector<kube::Json>& owners,
                    bool jobs_per_pod);

// The PodGroup of a plan: queue, priority class, preemptibility and topology as the labels and
// annotations of pod and owners say. `class_exists`: a priority class that is named and is not
// there is passed over; without it every class is believed. Pure but for that.
kube::Json MakePodGroup(const kube::Json& pod, const std::vector<kube::Json>& owners,
                        const GroupPlan& plan,
                        const std::function<bool(const std::string&)>& class_exists = nullptr);

class PodGrouper {
 public:
  // `is_ours` says whether a scheduler name belongs to a profile with pod groups. Registers its
  // reconciler; before the manager starts.
  PodGrouper(client::Client client, client::InformerFactory& informers, client::Manager& manager,
             client::EventRecorder& recorder, std::function<bool(const std::string&)> is_ours,
             std::function<bool(const std::string&)> jobs_per_pod);

 private:
  Result<client::Outcome> Reconcile(const kube::ObjectKey& key);
  // From the pod's controller up to the top. Errors: the API's, but an owner that is gone ends the
  // chain.
  Result<std::vector<kube::Json>> Owners(const kube::Json& pod);
  Result<void> ApplyGroup(const kube::Json& group, bool raises_minimum);
  bool ClassExists(const std::string& name);

  const client::Client client_;
  client::Informer& pods_;
  client::EventRecorder& recorder_;
  const std::function<bool(const std::string&)> is_ours_;
  const std::function<bool(const std::string&)> jobs_per_pod_;
  Mutex mutex_;
  std::set<std::string> applied_ SUBLET_GUARDED_BY(mutex_);  // namespace/name; at most kAppliedMax
  std::set<std::string> classes_ SUBLET_GUARDED_BY(mutex_);  // priority classes that were seen
};

}  // namespace sublet::scheduler
