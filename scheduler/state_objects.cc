// Topologies, namespaces and disruption budgets in the state (scheduler/state.h).
#include "scheduler/state.h"

namespace sublet::scheduler {

void State::UpsertTopology(const TopologySpec& spec) {
  topologies[spec.name] = spec;
  ++capacity_generation;
  ++node_generation;
}
void State::DeleteTopology(const std::string& name) {
  topologies.erase(name);
  ++capacity_generation;
  ++node_generation;
}
void State::UpsertNamespace(const NamespaceSpec& space) {
  NamespaceSpec& known = namespaces[space.name];
  if (known.name.empty() || known.labels != space.labels) {
    ++capacity_generation;  // affinity terms may select its pods now, or no longer
  }
  known = space;
}
void State::DeleteNamespace(const std::string& name) {
  namespaces.erase(name);
  ++capacity_generation;
}
void State::UpsertBudget(const DisruptionBudget& budget) {
  budgets[budget.Key()] = budget;
  ++capacity_generation;
}
void State::DeleteBudget(const std::string& key) {
  budgets.erase(key);
  ++capacity_generation;
}

}  // namespace sublet::scheduler
