#include "controllers/job_controller.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controllers/job_sync.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

bool IsTracked(const client::CachedObject& pod) {
  return std::find(pod.finalizers.begin(), pod.finalizers.end(), kJobFinalizer) !=
         pod.finalizers.end();
}

class JobController final : public Controller {
 public:
  explicit JobController(const Context& context)
      : clock_(context.clock),
        jobs_(context, kJobs),
        control_(context, "job-controller"),
        queue_(context.manager.Add(
            {.name = "job",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 4,
             .needs = {&jobs_.informer(), &control_.pods().informer()}})),
        orphans_(context.manager.Add(
            {.name = "job-orphan-pod",
             .reconcile = [this](const kube::ObjectKey& key) { return ReleaseOrphan(key); },
             .needs = {&jobs_.informer(), &control_.pods().informer()}})) {
    AddOwnerIndexes(control_.pods());
    RouteSelf(jobs_, queue_);
    RouteToOwners(control_.pods(), jobs_, SelectorOf, queue_);
    control_.pods().informer().AddHandler([this](const ObjectPtr&, const ObjectPtr& after) {
      if (after && IsTracked(*after) && !OwnerOf(*after)) {
        orphans_.Add(after->key);
      }
    });
    jobs_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (before && (!after || after->uid != before->uid)) {
        for (const ObjectPtr& pod :
             control_.pods().informer().ByIndex(client::kControllerIndex, before->uid)) {
          orphans_.Add(pod->key);
        }
      }
    });
  }

 private:
  // The Job that controls the pod, if it is still there.
  ObjectPtr OwnerOf(const client::CachedObject& pod) const {
    const kube::OwnerReference* owner = pod.controller();
    if (owner == nullptr || owner->kind != "Job") {
      return nullptr;
    }
    const ObjectPtr job = jobs_.Find({pod.key.namespace_name, owner->name});
    return job && job->uid == owner->uid ? job : nullptr;
  }

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = jobs_.Find(key);
    if (!cached) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json job, cached->Parse());
    if (const std::string_view manager = kube::FindString(job, {"spec", "managedBy"});
        !manager.empty() && manager != "kubernetes.io/job-controller") {
      return Outcome::Done();
    }
    SUBLET_TRY(const kube::LabelSelector selector, SelectorOf(job));
    SUBLET_TRY(std::vector<ObjectPtr> pods, Claim(control_.pods(), jobs_, job, selector));
    return JobSync({jobs_, control_, clock_}, std::move(job), std::move(pods)).Run();
  }

  // A pod whose Job is gone is counted by nobody: it must not wait for that.
  Result<Outcome> ReleaseOrphan(const kube::ObjectKey& key) {
    const ObjectPtr pod = control_.pods().Find(key);
    if (!pod || !IsTracked(*pod) || OwnerOf(*pod)) {
      return Outcome::Done();
    }
    if (const kube::OwnerReference* owner = pod->controller();
        owner != nullptr && owner->kind == "Job") {
      // The cache of Jobs may lag behind that of pods: ask.
      const auto live = jobs_.GetLive({key.namespace_name, owner->name});
      if (live.ok() && kube::UidOf(*live) == owner->uid) {
        return Outcome::Done();
      }
      if (!live.ok() && !live.error().Is(Reason::kNotFound)) {
        return live.error();
      }
    } else {
      // An orphan that the selector of a Job matches is about to be adopted.
      for (const ObjectPtr& job : jobs_.informer().ListNamespace(key.namespace_name)) {
        SUBLET_TRY(const Json value, job->Parse());
        if (const auto selector = SelectorOf(value);
            selector.ok() && !job->deleting() && selector->Matches(pod->labels)) {
          return Outcome::Done();
        }
      }
    }
    Json rest = Json::array();
    for (const std::string& finalizer : pod->finalizers) {
      if (finalizer != kJobFinalizer) {
        rest.push_back(finalizer);
      }
    }
    const auto patched = control_.pods().Patch(key, client::PatchType::kMerge,
                                               {{"metadata",
                                                 {{"uid", pod->uid},
                                                  {"resourceVersion", pod->resource_version},
                                                  {"finalizers", std::move(rest)}}}});
    if (!patched.ok() && !patched.error().Is(Reason::kNotFound)) {
      return patched.error();
    }
    return Outcome::Done();
  }

  const Clock& clock_;
  const Collection jobs_;
  const PodControl control_;
  client::WorkQueue& queue_;
  client::WorkQueue& orphans_;
};

class TtlAfterFinishedController final : public Controller {
 public:
  explicit TtlAfterFinishedController(const Context& context)
      : clock_(context.clock),
        jobs_(context, kJobs),
        queue_(context.manager.Add(
            {.name = "ttl-after-finished",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .needs = {&jobs_.informer()}})) {
    RouteSelf(jobs_, queue_);
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = jobs_.Find(key);
    if (!cached || cached->deleting()) {
      return Outcome::Done();
    }
    SUBLET_TRY(const Json job, cached->Parse());
    const Json* ttl = kube::Find(job, {"spec", "ttlSecondsAfterFinished"});
    const std::string_view type = FinishedCondition(job);
    if (ttl == nullptr || !ttl->is_number_integer() || type.empty()) {
      return Outcome::Done();
    }
    const auto finished =
        kube::FindTime(kube::FindString(*kube::FindCondition(job, type), {"lastTransitionTime"}));
    const auto left = finished.value_or(clock_.Now()) +
                      std::chrono::seconds(ttl->get<std::int64_t>()) - clock_.Now();
    if (left.count() > 0) {
      return Outcome::After(left);
    }
    SUBLET_RETURN_IF_ERROR(jobs_.Delete(key, cached->uid, {.propagation_policy = "Foreground"}));
    return Outcome::Done();
  }

  const Clock& clock_;
  const Collection jobs_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeJobController(const Context& context) {
  return std::make_unique<JobController>(context);
}
std::unique_ptr<Controller> MakeTtlAfterFinishedController(const Context& context) {
  return std::make_unique<TtlAfterFinishedController>(context);
}

}  // namespace sublet::controllers
