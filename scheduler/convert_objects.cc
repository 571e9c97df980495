// Everything but pods (scheduler/convert.h).
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "scheduler/convert.h"
#include "scheduler/convert_internal.h"

namespace sublet::scheduler {

using kube::Find;
using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;
using namespace internal;

NamespaceSpec NamespaceFromJson(const Json& space) {
  return {std::string(kube::NameOf(space)), LabelMap(kube::LabelsOf(space))};
}

NodeSpec NodeFromJson(const Json& node) {
  NodeSpec out;
  out.name = std::string(kube::NameOf(node));
  out.labels = LabelMap(kube::LabelsOf(node));
  out.unschedulable = FindBool(node, {"spec", "unschedulable"});
  for (const Json& taint : Array(node, {"spec", "taints"})) {
    out.taints.push_back({Text(taint, {"key"}), Text(taint, {"value"}), Text(taint, {"effect"})});
  }
  if (const Json* ready = kube::FindCondition(node, "Ready")) {
    out.ready = FindString(*ready, {"status"}) == "True";
  }
  const Json* allocatable = Find(node, {"status", "allocatable"});
  if (allocatable == nullptr || !allocatable->is_object()) {
    out.pods = 0;
    return out;
  }
  for (const auto& [name, value] : allocatable->items()) {
    const kube::Quantity amount = Amount(value);
    if (name == "cpu") {
      out.cpu = amount.MilliValue();
    } else if (name == "memory") {
      out.memory = amount.Value();
    } else if (name == "pods") {
      out.pods = amount.Value();
    } else if (name == "nvidia.com/gpu" || name == "amd.com/gpu") {
      out.gpus += amount.Value();
    } else {
      out.scalars.emplace_back(name, amount.Value());
    }
  }
  return out;
}

QueueSpec QueueFromJson(const Json& queue) {
  QueueSpec out;
  out.name = std::string(kube::NameOf(queue));
  out.parent = Text(queue, {"spec", "parentQueue"});
  out.priority = static_cast<int>(FindInt(queue, {"spec", "priority"}, 100));
  out.created = TimeOf(FindString(queue, {"metadata", "creationTimestamp"}));
  out.preempt_min_runtime = DurationOf(FindString(queue, {"spec", "preemptMinRuntime"}));
  out.reclaim_min_runtime = DurationOf(FindString(queue, {"spec", "reclaimMinRuntime"}));
  const auto read = [&](const char* name, double unit, QueueQuota* quota) {
    const auto number = [&](const char* key) {
      const Json* value = Find(queue, {"spec", "resources", name, key});
      return value != nullptr && value->is_number() ? value->get<double>() : 0.0;
    };
    // Memory is given in millions of bytes; -1 stays "unlimited".
    const auto scaled = [&](const char* key) {
      return number(key) < 0 ? kUnlimited : number(key) * unit;
    };
    *quota = {scaled("quota"), scaled("limit"), number("overQuotaWeight")};
  };
  read("cpu", 1, &out.cpu);
  read("memory", 1e6, &out.memory);
  read("gpu", 1, &out.gpu);
  // Beyond KAI: limits per GPU model, "MODEL=AMOUNT,...".
  std::string_view models = kube::AnnotationOf(queue, "sublet.dev/gpu-model-limits");
  while (!models.empty()) {
    const std::size_t comma = models.find(',');
    const std::string_view one = models.substr(0, comma);
    const std::size_t equals = one.find('=');
    if (equals != std::string_view::npos) {
      out.model_limits.emplace_back(std::string(one.substr(0, equals)),
                                    kube::Quantity::ParseOrZero(one.substr(equals + 1)).AsDouble());
    }
    models = comma == std::string_view::npos ? std::string_view() : models.substr(comma + 1);
  }
  return out;
}

namespace {

std::optional<TopologyConstraint> ConstraintOf(const Json& object) {
  const Json* constraint = Find(object, {"topologyConstraint"});
  if (constraint == nullptr || !constraint->is_object() ||
      FindString(*constraint, {"topology"}).empty()) {
    return std::nullopt;
  }
  return TopologyConstraint{Text(*constraint, {"topology"}),
                            Text(*constraint, {"requiredTopologyLevel"}),
                            Text(*constraint, {"preferredTopologyLevel"})};
}

// `depth` bounds a cycle of parents, which the webhook refuses but a broken object may have.
void AddChildren(const std::multimap<std::string, const Json*>& by_parent,
                 const std::string& parent, int depth, SubGroupSpec* into) {
  const auto [from, to] = by_parent.equal_range(parent);
  for (auto it = from; it != to && depth < 32; ++it) {
    const Json& child = *it->second;
    const std::string name = Text(child, {"name"});
    if (by_parent.count(name) == 0) {
      into->pod_sets.push_back(
          {name, static_cast<int>(FindInt(child, {"minMember"}, 1)), ConstraintOf(child)});
      continue;
    }
    SubGroupSpec group;
    group.name = name;
    group.topology = ConstraintOf(child);
    if (const Json* least = Find(child, {"minSubGroup"});
        least != nullptr && least->is_number_integer()) {
      group.min_sub_group = least->get<int>();
    }
    AddChildren(by_parent, name, depth + 1, &group);
    into->groups.push_back(std::move(group));
  }
}

}  // namespace

PodGroupSpec PodGroupFromJson(
    const Json& group, const std::function<std::optional<int>(const std::string&)>& priority) {
  constexpr int kTrain = 50;
  PodGroupSpec out;
  out.ns = std::string(kube::NamespaceOf(group));
  out.name = std::string(kube::NameOf(group));
  out.uid = std::string(kube::UidOf(group));
  out.queue = Text(group, {"spec", "queue"});
  out.scheduler_name = kube::AnnotationOf(group, "sublet.dev/scheduler-name");
  out.priority =
      priority ? priority(Text(group, {"spec", "priorityClassName"})).value_or(kTrain) : kTrain;
  out.preemptibility = Text(group, {"spec", "preemptibility"});
  out.created = TimeOf(FindString(group, {"metadata", "creationTimestamp"}));
  out.last_start = TimeOf(kube::AnnotationOf(group, "kai.scheduler/last-start-timestamp"));
  out.stale_since = TimeOf(kube::AnnotationOf(group, "kai.scheduler/stale-podgroup-timestamp"));
  out.last_eviction = TimeOf(kube::AnnotationOf(group, "kai.scheduler/last-eviction-timestamp"));
  out.preemption_delay = DurationOf(FindString(group, {"spec", "preemptionDelay"}));
  out.staleness_grace = DurationOf(FindString(group, {"spec", "stalenessGracePeriod"}));
  out.scheduling_backoff = static_cast<int>(FindInt(group, {"spec", "schedulingBackoff"}, -1));
  if (const Json* spec = Find(group, {"spec"})) {
    out.root.topology = ConstraintOf(*spec);
  }
  if (const Json* least = Find(group, {"spec", "minSubGroup"});
      least != nullptr && least->is_number_integer()) {
    out.root.min_sub_group = least->get<int>();
  }
  std::multimap<std::string, const Json*> by_parent;
  for (const Json& child : Array(group, {"spec", "subGroups"})) {
    by_parent.emplace(Text(child, {"parent"}), &child);
  }
  AddChildren(by_parent, "", 0, &out.root);
  if (out.root.pod_sets.empty() && out.root.groups.empty()) {
    out.root.pod_sets.push_back(
        {"default",
         static_cast<int>(std::max<std::int64_t>(FindInt(group, {"spec", "minMember"}, 1), 1)),
         std::nullopt});
  }
  return out;
}

TopologySpec TopologyFromJson(const Json& topology) {
  TopologySpec out;
  out.name = std::string(kube::NameOf(topology));
  for (const Json& level : Array(topology, {"spec", "levels"})) {
    out.levels.push_back(Text(level, {"nodeLabel"}));
    out.aliases.push_back(Text(level, {"alias"}));
  }
  return out;
}

DisruptionBudget BudgetFromJson(const Json& budget) {
  DisruptionBudget out;
  out.ns = std::string(kube::NamespaceOf(budget));
  out.name = std::string(kube::NameOf(budget));
  bool nothing = false;
  out.selector = SelectorFromJson(Find(budget, {"spec", "selector"}), &nothing);
  if (nothing) {
    out.selector.push_back({"", SelectorOperator::kIn, {}});  // matches no pod
  }
  out.disruptions_allowed = static_cast<int>(FindInt(budget, {"status", "disruptionsAllowed"}));
  return out;
}

}  // namespace sublet::scheduler
