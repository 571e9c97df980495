#include "controllers/pod_garbage_collector.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controllers/pod_control.h"
#include "kube/node_fit.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr std::string_view kOutOfService = "node.kubernetes.io/out-of-service";
constexpr std::string_view kFinishedIndex = "finished";

class PodGarbageCollector final : public Controller {
 public:
  explicit PodGarbageCollector(const Context& context)
      : clock_(context.clock),
        finished_max_(static_cast<std::size_t>(std::max(0, context.settings.terminated_pods_max))),
        orphan_wait_(context.settings.orphan_wait),
        nodes_(context, kNodes),
        pods_(context, kPods),
        queue_(context.manager.Add(
            {.name = "pod-garbage-collector",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 2,
             .needs = {&nodes_.informer(), &pods_.informer()}})) {
    pods_.informer().AddIndex(kNodeIndex, IndexByNode);
    pods_.informer().AddIndex(kFinishedIndex, [](const client::CachedObject& pod) {
      return pod.As<PodRecord>().Finished() ? std::vector<std::string>{"1"}
                                            : std::vector<std::string>();
    });
    nodes_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (!after) {
        for (const ObjectPtr& pod : pods_.informer().ByIndex(kNodeIndex, before->key.name)) {
          queue_.AddAfter(pod->key, orphan_wait_);
        }
      } else if (IsOutOfService(*after)) {
        for (const ObjectPtr& pod : pods_.informer().ByIndex(kNodeIndex, after->key.name)) {
          queue_.Add(pod->key);
        }
      }
    });
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (!after) {
        return;
      }
      if (PodOf(after).Finished() && (!before || !PodOf(before).Finished())) {
        queue_.Add(kFinishedKey);
      }
      if (after->deleting() && (!before || !before->deleting())) {
        queue_.Add(after->key);
      }
      const std::string& node = PodOf(after).node;
      if (!node.empty() && (!before || PodOf(before).node.empty()) && !nodes_.Find({"", node})) {
        queue_.AddAfter(after->key, orphan_wait_);
      }
    });
  }

 private:
  // Stands for "count the finished ones"; no pod has this name.
  const kube::ObjectKey kFinishedKey{"", ""};

  static bool IsOutOfService(const client::CachedObject& node) {
    const auto value = node.Parse();
    if (!value.ok() || kube::IsConditionTrue(*value, "Ready")) {
      return false;
    }
    const auto taints = kube::TaintsOf(*value);
    return std::any_of(taints.begin(), taints.end(),
                       [](const kube::Taint& taint) { return taint.key == kOutOfService; });
  }

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    if (key == kFinishedKey) {
      return DropFinished();
    }
    const ObjectPtr pod = pods_.Find(key);
    if (!pod) {
      return Outcome::Done();
    }
    const std::string& node = PodOf(pod).node;
    if (node.empty()) {
      return pod->deleting() ? Remove(*pod, "", "") : Outcome::Done();
    }
    const ObjectPtr there = nodes_.Find({"", node});
    if (there) {
      if (pod->deleting() && IsOutOfService(*there)) {
        return Remove(*pod, "DeletionByPodGC", "PodGC: node is out of service");
      }
      return Outcome::Done();
    }
    // A pod may be seen before its node: the server decides, after a while.
    if (const auto live = nodes_.GetLive({"", node});
        live.ok() || !live.error().Is(Reason::kNotFound)) {
      return live.ok() ? Result<Outcome>(Outcome::Done()) : Result<Outcome>(live.error());
    }
    return Remove(*pod, "DeletionByPodGC", "PodGC: node no longer exists");
  }

  // The oldest go first. Source: podgc gcTerminated.
  Result<Outcome> DropFinished() {
    auto finished = pods_.informer().ByIndex(kFinishedIndex, "1");
    if (finished_max_ == 0 || finished.size() <= finished_max_) {
      return Outcome::Done();
    }
    std::sort(finished.begin(), finished.end(), [](const ObjectPtr& a, const ObjectPtr& b) {
      return std::tie(a->creation_timestamp, a->key) < std::tie(b->creation_timestamp, b->key);
    });
    finished.resize(finished.size() - finished_max_);
    for (const ObjectPtr& pod : finished) {
      SUBLET_RETURN_IF_ERROR(pods_.Delete(pod->key, pod->uid, {.grace_period_seconds = 0}));
    }
    return Outcome::Done();
  }

  // Marks (unless `reason` is empty) and deletes without grace.
  Result<Outcome> Remove(const client::CachedObject& pod, const char* reason, const char* message) {
    if (*reason != '\0') {
      const char* phase = pod.As<PodRecord>().Finished() ? "" : "Failed";
      const auto marked = MarkDisrupted(pods_, pod, reason, message, phase, clock_.Now());
      if (!marked.ok()) {
        return marked.error();
      }
    }
    SUBLET_RETURN_IF_ERROR(pods_.Delete(pod.key, pod.uid, {.grace_period_seconds = 0}));
    return Outcome::Done();
  }

  const Clock& clock_;
  const std::size_t finished_max_;
  const std::chrono::seconds orphan_wait_;
  const Collection nodes_;
  const Collection pods_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakePodGarbageCollector(const Context& context) {
  return std::make_unique<PodGarbageCollector>(context);
}

}  // namespace sublet::controllers
