#include "controllers/disruption_controller.h"

#include <map>
#include <nlohmann/json.hpp>

#include "controllers/pod_control.h"
#include "kube/int_or_string.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

// An eviction that has not led to a deletion by then did not happen.
constexpr std::chrono::minutes kEvictionTime{2};

class DisruptionController final : public Controller {
 public:
  explicit DisruptionController(const Context& context)
      : clock_(context.clock),
        budgets_(context, kBudgets),
        pods_(context, kPods),
        sets_(context, kReplicaSets),
        deployments_(context, kDeployments),
        stateful_(context, kStatefulSets),
        replication_(context, kReplicationControllers),
        queue_(context.manager.Add(
            {.name = "disruption",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .needs = {&budgets_.informer(), &pods_.informer(), &sets_.informer(),
                       &deployments_.informer(), &stateful_.informer(),
                       &replication_.informer()}})) {
    RouteSelf(budgets_, queue_);
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      const auto name_space = (after ? after : before)->key.namespace_name;
      for (const ObjectPtr& budget : budgets_.informer().ListNamespace(name_space)) {
        queue_.AddAfter(budget->key, std::chrono::milliseconds(5));
      }
    });
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = budgets_.Find(key);
    if (!cached || cached->deleting()) {
      return Outcome::Done();
    }
    SUBLET_TRY(const Json budget, cached->Parse());
    SUBLET_TRY(const kube::LabelSelector selector, SelectorOf(budget));
    std::vector<ObjectPtr> pods;
    for (const ObjectPtr& pod : pods_.informer().ListNamespace(key.namespace_name)) {
      if (selector.Matches(pod->labels) && !PodOf(pod).Finished()) {
        pods.push_back(pod);
      }
    }
    std::int64_t expected = 0;
    std::int64_t desired = 0;
    SUBLET_RETURN_IF_ERROR(Want(budget, pods, &expected, &desired));
    std::chrono::nanoseconds wait{0};
    const Json disrupted = Disrupted(budget, pods, &wait);
    std::int64_t healthy = 0;
    for (const ObjectPtr& pod : pods) {
      healthy += !pod->deleting() && PodOf(pod).ready && !disrupted.contains(pod->key.name) ? 1 : 0;
    }
    SUBLET_RETURN_IF_ERROR(Write(budget, expected, desired, healthy, disrupted));
    return Outcome::After(wait);
  }

  Result<void> Want(const Json& budget, const std::vector<ObjectPtr>& pods, std::int64_t* expected,
                    std::int64_t* desired) const {
    const auto most = kube::IntOrString::FromJson(kube::Find(budget, {"spec", "maxUnavailable"}));
    const auto least = kube::IntOrString::FromJson(kube::Find(budget, {"spec", "minAvailable"}));
    *expected = static_cast<std::int64_t>(pods.size());
    if (most || (least && least->is_string)) {
      *expected = ScaleOf(pods);
    }
    if (most) {
      SUBLET_TRY(const std::int64_t share, most->Scaled(*expected, true));
      *desired = std::max<std::int64_t>(0, *expected - share);
    } else if (least) {
      SUBLET_TRY(*desired, least->Scaled(*expected, true));
    }
    return Ok();
  }

  // What the controllers of the pods want in all; a pod without one counts for itself.
  std::int64_t ScaleOf(const std::vector<ObjectPtr>& pods) const {
    std::map<std::string, std::int64_t> by_owner;
    for (const ObjectPtr& pod : pods) {
      const kube::OwnerReference* owner = pod->controller();
      if (owner == nullptr) {
        by_owner[pod->uid] = 1;
        continue;
      }
      const Collection* collection = owner->kind == "ReplicaSet"              ? &sets_
                                     : owner->kind == "StatefulSet"           ? &stateful_
                                     : owner->kind == "ReplicationController" ? &replication_
                                                                              : nullptr;
      ObjectPtr object = collection != nullptr
                             ? collection->Find({pod->key.namespace_name, owner->name})
                             : nullptr;
      if (object && object->controller() != nullptr && object->controller()->kind == "Deployment") {
        if (const ObjectPtr parent =
                deployments_.Find({pod->key.namespace_name, object->controller()->name})) {
          object = parent;
        }
      }
      const auto value = object ? object->Parse() : Result<Json>(Json());
      by_owner[object ? object->uid : pod->uid] =
          value.ok() ? kube::FindInt(*value, {"spec", "replicas"}, 1) : 1;
    }
    std::int64_t sum = 0;
    for (const auto& [uid, replicas] : by_owner) {
      sum += replicas;
    }
    return sum;
  }

  Json Disrupted(const Json& budget, const std::vector<ObjectPtr>& pods,
                 std::chrono::nanoseconds* wait) const {
    Json out = Json::object();
    const Json* listed = kube::Find(budget, {"status", "disruptedPods"});
    for (const ObjectPtr& pod : pods) {
      if (listed == nullptr || !listed->contains(pod->key.name) || pod->deleting()) {
        continue;
      }
      const auto since = kube::FindTime(kube::FindString(*listed, {pod->key.name}));
      const auto left = since.value_or(WallTime()) + kEvictionTime - clock_.Now();
      if (left.count() > 0) {
        out[pod->key.name] = (*listed)[pod->key.name];
        *wait = wait->count() == 0 ? std::chrono::nanoseconds(left)
                                   : std::min<std::chrono::nanoseconds>(*wait, left);
      }
    }
    return out;
  }

  Result<void> Write(const Json& budget, std::int64_t expected, std::int64_t desired,
                     std::int64_t healthy, const Json& disrupted) {
    Json updated = budget;
    const std::int64_t allowed = expected > 0 ? std::max<std::int64_t>(0, healthy - desired) : 0;
    kube::SetCondition(&updated,
                       {.type = "DisruptionAllowed",
                        .status = allowed > 0 ? "True" : "False",
                        .reason = allowed > 0 ? "SufficientPods" : "InsufficientPods",
                        .observed_generation = kube::GenerationOf(budget)},
                       kube::FormatTime(clock_.Now()));
    Json& status = updated["status"];
    status["expectedPods"] = expected;
    status["desiredHealthy"] = desired;
    status["currentHealthy"] = healthy;
    status["disruptionsAllowed"] = allowed;
    status["observedGeneration"] = kube::GenerationOf(budget);
    if (disrupted.empty()) {
      status.erase("disruptedPods");
    } else {
      status["disruptedPods"] = disrupted;
    }
    if (updated == budget) {
      return Ok();
    }
    auto written = budgets_.UpdateStatus(updated);
    if (!written.ok() && !written.error().Is(Reason::kNotFound)) {
      return std::move(written).error();
    }
    return Ok();
  }

  const Clock& clock_;
  const Collection budgets_;
  const Collection pods_;
  const Collection sets_;
  const Collection deployments_;
  const Collection stateful_;
  const Collection replication_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeDisruptionController(const Context& context) {
  return std::make_unique<DisruptionController>(context);
}

}  // namespace sublet::controllers
