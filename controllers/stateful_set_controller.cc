#include "controllers/stateful_set_controller.h"

#include <nlohmann/json.hpp>

#include "controllers/stateful_set_sync.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

class StatefulSetController final : public Controller {
 public:
  explicit StatefulSetController(const Context& context)
      : clock_(context.clock),
        sets_(context, kStatefulSets),
        claims_(context, kClaims),
        control_(context, "statefulset-controller"),
        history_(context),
        queue_(context.manager.Add(
            {.name = "statefulset",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 4,
             .needs = {&sets_.informer(), &claims_.informer(), &control_.pods().informer(),
                       &history_.revisions().informer()}})) {
    AddOwnerIndexes(control_.pods());
    RouteSelf(sets_, queue_);
    RouteToOwners(control_.pods(), sets_, SelectorOf, queue_);
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = sets_.Find(key);
    if (!cached) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json set, cached->Parse());
    SUBLET_TRY(const kube::LabelSelector selector, SelectorOf(set));
    if (selector.empty()) {
      return Outcome::Done();
    }
    SUBLET_TRY(std::vector<ObjectPtr> pods,
               Claim(control_.pods(), sets_, set, selector, [&](const client::CachedObject& pod) {
                 return OrdinalOf(key.name, pod.key.name).has_value();
               }));
    return StatefulSetSync({sets_, claims_, control_, history_, clock_}, std::move(set),
                           std::move(pods))
        .Run(selector);
  }

  const Clock& clock_;
  const Collection sets_;
  const Collection claims_;
  const PodControl control_;
  const RevisionHistory history_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeStatefulSetController(const Context& context) {
  return std::make_unique<StatefulSetController>(context);
}

}  // namespace sublet::controllers
