#include "kube/quota_usage.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/field_error.h"
#include "kube/object.h"

namespace sublet::kube {
namespace {

using kube::Quantity;

bool IsCompute(std::string_view name) {
  return name == "cpu" || name == "memory" || name == "ephemeral-storage";
}

bool IsTerminal(const Json& pod) {
  const auto phase = kube::FindString(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

ResourceAmounts PodUsage(const Json& pod) {
  ResourceAmounts usage;
  usage["count/pods"] = Quantity::FromInt(1);
  if (IsTerminal(pod)) {
    return usage;
  }
  usage["pods"] = Quantity::FromInt(1);
  for (const auto& [name, amount] : PodAmounts(pod, "requests")) {
    if (IsCompute(name)) {
      usage[name] = amount;
    }
    usage["requests." + name] = amount;
    if (name.starts_with("hugepages-")) {
      usage[name] = amount;
    }
  }
  for (const auto& [name, amount] : PodAmounts(pod, "limits")) {
    if (IsCompute(name)) {
      usage["limits." + name] = amount;
    }
  }
  return usage;
}

ResourceAmounts ServiceUsage(const Json& service) {
  ResourceAmounts usage;
  usage["services"] = Quantity::FromInt(1);
  const auto type = kube::FindString(service, {"spec", "type"});
  std::int64_t ports = 0;
  if (const Json* list = kube::Find(service, {"spec", "ports"});
      list != nullptr && list->is_array()) {
    ports = static_cast<std::int64_t>(list->size());
  }
  if (type == "NodePort") {
    usage["services.nodeports"] = Quantity::FromInt(ports);
  } else if (type == "LoadBalancer") {
    const bool allocates = kube::FindBool(service, {"spec", "allocateLoadBalancerNodePorts"}, true);
    usage["services.loadbalancers"] = Quantity::FromInt(1);
    usage["services.nodeports"] = Quantity::FromInt(allocates ? ports : 0);
  }
  return usage;
}

ResourceAmounts ClaimUsage(const Json& claim) {
  ResourceAmounts usage;
  usage["persistentvolumeclaims"] = Quantity::FromInt(1);
  const auto storage_class = kube::FindString(claim, {"spec", "storageClassName"});
  const std::string suffix = ".storageclass.storage.k8s.io/";
  if (!storage_class.empty()) {
    usage[std::string(storage_class) + suffix + "persistentvolumeclaims"] = Quantity::FromInt(1);
  }
  const auto size = kube::FindString(claim, {"spec", "resources", "requests", "storage"});
  if (!size.empty()) {
    usage["requests.storage"] = Quantity::ParseOrZero(size);
    if (!storage_class.empty()) {
      usage[std::string(storage_class) + suffix + "requests.storage"] = Quantity::ParseOrZero(size);
    }
  }
  return usage;
}

bool IsBestEffort(const Json& pod) {
  const auto count = [&](std::string_view which) {
    const auto amounts = PodAmounts(pod, which);
    return std::any_of(amounts.begin(), amounts.end(), [](const auto& entry) {
      return (entry.first == "cpu" || entry.first == "memory") && !entry.second.IsZero();
    });
  };
  return !count("requests") && !count("limits");
}

bool HasScope(std::string_view scope, const Json& pod) {
  if (scope == "Terminating" || scope == "NotTerminating") {
    const Json* seconds = kube::Find(pod, {"spec", "activeDeadlineSeconds"});
    const bool terminating =
        seconds != nullptr && seconds->is_number_integer() && seconds->get<std::int64_t>() >= 0;
    return terminating == (scope == "Terminating");
  }
  if (scope == "BestEffort" || scope == "NotBestEffort") {
    return IsBestEffort(pod) == (scope == "BestEffort");
  }
  if (scope == "PriorityClass") {
    return !kube::FindString(pod, {"spec", "priorityClassName"}).empty();
  }
  if (scope == "CrossNamespacePodAffinity") {
    bool crosses = false;
    for (const char* kind : {"podAffinity", "podAntiAffinity"}) {
      const Json* affinity = kube::Find(pod, {"spec", "affinity", kind});
      if (affinity == nullptr) {
        continue;
      }
      const std::string text = kube::Dump(*affinity);
      crosses = crosses || text.find("\"namespaces\":[\"") != std::string::npos ||
                text.find("\"namespaceSelector\":") != std::string::npos;
    }
    return crosses;
  }
  return false;
}

std::string ScopeValue(std::string_view scope, const Json& object) {
  if (scope == "PriorityClass") {
    return std::string(kube::FindString(object, {"spec", "priorityClassName"}));
  }
  if (scope == "VolumeAttributesClass") {
    return std::string(kube::FindString(object, {"spec", "volumeAttributesClassName"}));
  }
  return "";
}

bool MatchesExpression(const Json& expression, const Json& object) {
  const auto scope = kube::FindString(expression, {"scopeName"});
  const auto op = kube::FindString(expression, {"operator"});
  const std::string value = ScopeValue(scope, object);
  const bool valued = scope == "PriorityClass" || scope == "VolumeAttributesClass";
  if (!valued) {
    return HasScope(scope, object);
  }
  if (op == "Exists") {
    return !value.empty();
  }
  if (op == "DoesNotExist") {
    return value.empty();
  }
  const Json* values = kube::Find(expression, {"values"});
  const bool in = values != nullptr && values->is_array() &&
                  std::find(values->begin(), values->end(), Json(value)) != values->end();
  return op == "In" ? in : !in;
}

}  // namespace

ResourceAmounts QuotaUsage(std::string_view group, std::string_view plural, const Json& object) {
  ResourceAmounts usage;
  if (group.empty() && plural == "pods") {
    return PodUsage(object);
  }
  if (group.empty() && plural == "services") {
    usage = ServiceUsage(object);
  } else if (group.empty() && plural == "persistentvolumeclaims") {
    usage = ClaimUsage(object);
  } else if (group.empty() && (plural == "secrets" || plural == "configmaps" ||
                               plural == "replicationcontrollers" || plural == "resourcequotas")) {
    usage[std::string(plural)] = Quantity::FromInt(1);
  }
  usage["count/" + std::string(plural) + (group.empty() ? "" : "." + std::string(group))] =
      Quantity::FromInt(1);
  return usage;
}

bool MatchesScopes(const Json& quota, std::string_view plural, const Json& object) {
  const Json* scopes = kube::Find(quota, {"spec", "scopes"});
  const Json* expressions = kube::Find(quota, {"spec", "scopeSelector", "matchExpressions"});
  const bool has_scopes = scopes != nullptr && scopes->is_array() && !scopes->empty();
  const bool has_expressions =
      expressions != nullptr && expressions->is_array() && !expressions->empty();
  if (!has_scopes && !has_expressions) {
    return true;
  }
  if (plural != "pods" && plural != "persistentvolumeclaims") {
    return false;
  }
  const bool by_scope =
      !has_scopes || std::all_of(scopes->begin(), scopes->end(), [&](const Json& scope) {
        return scope.is_string() && HasScope(scope.get_ref<const std::string&>(), object);
      });
  return by_scope &&
         (!has_expressions ||
          std::all_of(expressions->begin(), expressions->end(), [&](const Json& expression) {
            return MatchesExpression(expression, object);
          }));
}

std::string MissingResources(const Json& pod, const ResourceAmounts& limited) {
  std::vector<std::string> missing;
  const Json* containers = kube::Find(pod, {"spec", "containers"});
  if (containers == nullptr || !containers->is_array()) {
    return "";
  }
  for (const auto& [name, amount] : limited) {
    std::string_view resource = name;
    std::string_view which = "requests";
    if (resource.starts_with("limits.")) {
      which = "limits";
      resource.remove_prefix(7);
    } else if (resource.starts_with("requests.")) {
      resource.remove_prefix(9);
    }
    if (!IsCompute(resource)) {
      continue;
    }
    std::vector<std::string> without;
    for (const auto& container : *containers) {
      if (kube::Find(container, {"resources", which, resource}) == nullptr) {
        without.emplace_back(kube::FindString(container, {"name"}));
      }
    }
    if (!without.empty()) {
      std::sort(without.begin(), without.end());
      missing.push_back(name + " for: " + kube::Join(without, ","));
    }
  }
  return kube::Join(missing, "; ");
}

}  // namespace sublet::kube
