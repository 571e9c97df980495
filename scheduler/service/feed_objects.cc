// The kinds that become one value each (scheduler/service/feed.h): KAI's, budgets and namespaces.
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "scheduler/service/feed.h"

namespace sublet::scheduler {

using client::ObjectPtr;
using kube::Json;

void Feed::WatchKai(client::InformerFactory& informers) {
  auto classes = InformerOf("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass");
  classes.make_record = [](const Json& object) {
    return std::make_shared<const int>(static_cast<int>(kube::FindInt(object, {"value"})));
  };
  priority_classes_ = &informers.For(classes);

  auto queues = InformerOf("scheduling.run.ai", "v2", "queues", "Queue");
  queues.make_record = [](const Json& object) {
    return std::make_shared<const QueueSpec>(QueueFromJson(object));
  };
  queues_ = &informers.For(queues);
  queues_->AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string name = (after != nullptr ? after : before)->key.name;
    if (after == nullptr) {
      Put(kQueue, name, [name](Engine& engine) { engine.DeleteQueue(name); });
    } else {
      Put(kQueue, name, [after](Engine& engine) { engine.Apply(after->As<QueueSpec>()); });
    }
  });

  auto groups = InformerOf("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup");
  groups.make_record = [this](const Json& object) {
    return std::make_shared<const PodGroupSpec>(
        PodGroupFromJson(object, [this](const std::string& name) -> std::optional<int> {
          const ObjectPtr found = priority_classes_->Get({"", name});
          return found == nullptr ? std::nullopt : std::optional(found->As<int>());
        }));
  };
  groups_ = &informers.For(groups);
  groups_->AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string key = (after != nullptr ? after : before)->key.Text();
    if (after == nullptr) {
      Put(kGroup, key, [key](Engine& engine) { engine.DeletePodGroup(key); });
    } else {
      Put(kGroup, key, [after](Engine& engine) { engine.Apply(after->As<PodGroupSpec>()); });
    }
  });

  auto topologies = InformerOf("kai.scheduler", "v1alpha1", "topologies", "Topology");
  topologies.make_record = [](const Json& object) {
    return std::make_shared<const TopologySpec>(TopologyFromJson(object));
  };
  informers.For(topologies).AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string name = (after != nullptr ? after : before)->key.name;
    if (after == nullptr) {
      Put(kTopology, name, [name](Engine& engine) { engine.DeleteTopology(name); });
    } else {
      Put(kTopology, name, [after](Engine& engine) { engine.Apply(after->As<TopologySpec>()); });
    }
  });
}

void Feed::WatchBudgets(client::InformerFactory& informers) {
  auto options = InformerOf("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget");
  options.make_record = [](const Json& object) {
    return std::make_shared<const DisruptionBudget>(BudgetFromJson(object));
  };
  informers.For(options).AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string key = (after != nullptr ? after : before)->key.Text();
    if (after == nullptr) {
      Put(kBudget, key, [key](Engine& engine) { engine.DeleteBudget(key); });
    } else {
      Put(kBudget, key, [after](Engine& engine) { engine.Apply(after->As<DisruptionBudget>()); });
    }
  });
}

void Feed::WatchNamespaces(client::InformerFactory& informers) {
  auto options = InformerOf("", "v1", "namespaces", "Namespace");
  options.make_record = [](const Json& object) {
    return std::make_shared<const NamespaceSpec>(NamespaceFromJson(object));
  };
  informers.For(options).AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string name = (after != nullptr ? after : before)->key.name;
    if (after == nullptr) {
      Put(kNamespace, name, [name](Engine& engine) { engine.DeleteNamespace(name); });
    } else {
      Put(kNamespace, name, [after](Engine& engine) { engine.Apply(after->As<NamespaceSpec>()); });
    }
  });
}

}  // namespace sublet::scheduler
