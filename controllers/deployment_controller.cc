#include "controllers/deployment_controller.h"

#include <nlohmann/json.hpp>

#include "controllers/deployment_sync.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

class DeploymentController final : public Controller {
 public:
  explicit DeploymentController(const Context& context)
      : clock_(context.clock),
        deployments_(context, kDeployments),
        sets_(context, kReplicaSets),
        pods_(context, kPods),
        events_(context.events.As("deployment-controller")),
        queue_(context.manager.Add(
            {.name = "deployment",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 4,
             .needs = {&deployments_.informer(), &sets_.informer(), &pods_.informer()}})) {
    AddOwnerIndexes(sets_);
    AddOwnerIndexes(pods_);
    RouteSelf(deployments_, queue_);
    RouteToOwners(sets_, deployments_, SelectorOf, queue_);
    // With strategy Recreate the last old pod's end starts the new set.
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (!after && before->controller() != nullptr && before->controller()->kind == "ReplicaSet") {
        const ObjectPtr set = sets_.Find({before->key.namespace_name, before->controller()->name});
        if (set && set->controller() != nullptr) {
          queue_.Add({set->key.namespace_name, set->controller()->name});
        }
      }
    });
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = deployments_.Find(key);
    if (!cached) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json deployment, cached->Parse());
    SUBLET_TRY(const kube::LabelSelector selector, SelectorOf(deployment));
    if (selector.empty()) {
      events_.Event(client::EventTargetOf(deployment), "Warning", "SelectingAll",
                    "This deployment is selecting all pods. A non-empty selector is required.");
      return Outcome::Done();
    }
    SUBLET_TRY(const std::vector<ObjectPtr> claimed,
               Claim(sets_, deployments_, deployment, selector));
    std::vector<SetView> sets;
    for (const ObjectPtr& object : claimed) {
      SUBLET_TRY(Json value, object->Parse());
      sets.push_back({std::move(value)});
    }
    return DeploymentSync({deployments_, sets_, pods_, events_, clock_}, std::move(deployment),
                          std::move(sets))
        .Run();
  }

  const Clock& clock_;
  const Collection deployments_;
  const Collection sets_;
  const Collection pods_;
  const client::EventRecorder::Source events_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeDeploymentController(const Context& context) {
  return std::make_unique<DeploymentController>(context);
}

}  // namespace sublet::controllers
