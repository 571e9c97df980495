#include "controllers/cluster_role_aggregation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controllers/pod_control.h"
#include "kube/label_selector.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

class ClusterRoleAggregation final : public Controller {
 public:
  explicit ClusterRoleAggregation(const Context& context)
      : roles_(context, kClusterRoles),
        queue_(context.manager.Add(
            {.name = "clusterrole-aggregation",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .needs = {&roles_.informer()}})) {
    roles_.informer().AddIndex(kAggregates, [](const client::CachedObject& role) {
      const auto value = role.Parse();
      return value.ok() && kube::Find(*value, {"aggregationRule"}) != nullptr
                 ? std::vector<std::string>{"1"}
                 : std::vector<std::string>();
    });
    roles_.informer().AddHandler([this](const ObjectPtr&, const ObjectPtr&) {
      for (const ObjectPtr& role : roles_.informer().ByIndex(kAggregates, "1")) {
        queue_.AddAfter(role->key, std::chrono::milliseconds(5));
      }
    });
  }

 private:
  static constexpr std::string_view kAggregates = "aggregates";

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = roles_.Find(key);
    if (!cached || cached->deleting()) {
      return Outcome::Done();
    }
    SUBLET_TRY(const Json role, cached->Parse());
    const Json* selectors = kube::Find(role, {"aggregationRule", "clusterRoleSelectors"});
    if (selectors == nullptr || !selectors->is_array()) {
      return Outcome::Done();
    }
    Json rules = Json::array();
    for (const Json& selector_json : *selectors) {
      SUBLET_TRY(const kube::LabelSelector selector, kube::LabelSelector::FromJson(&selector_json));
      for (const ObjectPtr& other : roles_.informer().List()) {  // in order of names
        if (other->key == key || !selector.Matches(other->labels)) {
          continue;
        }
        SUBLET_TRY(const Json source, other->Parse());
        const Json* more = kube::Find(source, {"rules"});
        for (const Json& rule : more != nullptr && more->is_array() ? *more : Json::array()) {
          if (std::find(rules.begin(), rules.end(), rule) == rules.end()) {
            rules.push_back(rule);
          }
        }
      }
    }
    const Json* have = kube::Find(role, {"rules"});
    if (rules == (have != nullptr && have->is_array() ? *have : Json::array())) {
      return Outcome::Done();
    }
    Json updated = role;
    updated["rules"] = std::move(rules);
    auto written = roles_.Update(updated);
    if (!written.ok() && !written.error().Is(Reason::kNotFound)) {
      return std::move(written).error();
    }
    return Outcome::Done();
  }

  const Collection roles_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeClusterRoleAggregation(const Context& context) {
  return std::make_unique<ClusterRoleAggregation>(context);
}

}  // namespace sublet::controllers
