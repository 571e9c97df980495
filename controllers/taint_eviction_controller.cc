#include "controllers/taint_eviction_controller.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/mutex.h"
#include "controllers/pod_control.h"
#include "kube/node_fit.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

struct ActiveTaint {
  kube::Taint taint;
  WallTime since;
};

class TaintEvictionController final : public Controller {
 public:
  explicit TaintEvictionController(const Context& context)
      : clock_(context.clock),
        nodes_(context, kNodes),
        pods_(context, kPods),
        events_(context.events.As("taint-eviction-controller")),
        queue_(context.manager.Add(
            {.name = "taint-eviction",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 4,
             .needs = {&nodes_.informer(), &pods_.informer()}})) {
    pods_.informer().AddIndex(kNodeIndex, IndexByNode);
    nodes_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      OnNode((after ? after : before)->key.name, after);
    });
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      const bool moved = after && (!before || PodOf(before).node != PodOf(after).node ||
                                   before->generation != after->generation);
      if (moved && !TaintsOn(PodOf(after).node).empty()) {
        queue_.Add(after->key);
      }
    });
  }

 private:
  void OnNode(const std::string& name, const ObjectPtr& node) {
    std::vector<ActiveTaint> taints;
    if (node) {
      const auto value = node->Parse();
      for (kube::Taint& taint : value.ok() ? kube::TaintsOf(*value) : std::vector<kube::Taint>()) {
        if (taint.effect == "NoExecute") {
          const auto since = kube::FindTime(taint.time_added);
          taints.push_back({std::move(taint), since.value_or(clock_.Now())});
        }
      }
    }
    {
      const MutexLock lock(mutex_);
      const auto found = tainted_.find(name);
      if (found == tainted_.end() && taints.empty()) {
        return;
      }
      if (taints.empty()) {
        tainted_.erase(found);
      } else {
        tainted_[name] = std::move(taints);
      }
    }
    for (const ObjectPtr& pod : pods_.informer().ByIndex(kNodeIndex, name)) {
      queue_.Add(pod->key);
    }
  }

  std::vector<ActiveTaint> TaintsOn(const std::string& node) const {
    const MutexLock lock(mutex_);
    const auto found = tainted_.find(node);
    return found != tainted_.end() ? found->second : std::vector<ActiveTaint>();
  }

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr pod = pods_.Find(key);
    if (!pod || !IsActive(*pod)) {
      return Outcome::Done();
    }
    std::optional<WallTime> end;
    for (const ActiveTaint& active : TaintsOn(PodOf(pod).node)) {
      const auto by = TimeOfEviction(*pod, active);
      if (by && (!end || *by < *end)) {
        end = by;
      }
    }
    if (!end) {
      return Outcome::Done();
    }
    const auto left = *end - clock_.Now();
    if (left.count() > 0) {
      return Outcome::After(left);
    }
    return Evict(*pod);
  }

  // When the pod must go because of this taint: at once when nothing tolerates it, never (nullopt)
  // when something does without an end.
  static std::optional<WallTime> TimeOfEviction(const client::CachedObject& pod,
                                                const ActiveTaint& active) {
    std::optional<std::int64_t> seconds = 0;
    bool tolerated = false;
    for (const std::string& text : pod.As<PodRecord>().toleration_json) {
      const auto toleration = kube::ParseJson(text);
      if (!toleration.ok() || !kube::Tolerates(*toleration, active.taint)) {
        continue;
      }
      const Json* lasts = kube::Find(*toleration, {"tolerationSeconds"});
      const auto here =
          lasts != nullptr && lasts->is_number_integer()
              ? std::optional<std::int64_t>(std::max<std::int64_t>(0, lasts->get<std::int64_t>()))
              : std::nullopt;
      if (!tolerated) {
        seconds = here;
      } else if (here && (!seconds || *here < *seconds)) {
        seconds = here;
      }
      tolerated = true;
    }
    if (!seconds) {
      return std::nullopt;
    }
    return active.since + std::chrono::seconds(*seconds);
  }

  Result<Outcome> Evict(const client::CachedObject& pod) {
    events_.Event(
        {"v1", "Pod", pod.key.namespace_name, pod.key.name, pod.uid, pod.resource_version, ""},
        "Normal", "TaintManagerEviction", "Marking for deletion Pod " + pod.key.Text());
    const auto marked =
        MarkDisrupted(pods_, pod, "DeletionByTaintManager",
                      "Taint manager: deleting due to NoExecute taint", "", clock_.Now());
    if (!marked.ok()) {
      return marked.error();
    }
    SUBLET_RETURN_IF_ERROR(pods_.Delete(pod.key, pod.uid));
    return Outcome::Done();
  }

  const Clock& clock_;
  const Collection nodes_;
  const Collection pods_;
  const client::EventRecorder::Source events_;
  client::WorkQueue& queue_;
  mutable Mutex mutex_;
  // Only nodes that have such a taint.
  std::unordered_map<std::string, std::vector<ActiveTaint>> tainted_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Controller> MakeTaintEvictionController(const Context& context) {
  return std::make_unique<TaintEvictionController>(context);
}

}  // namespace sublet::controllers
