#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/logic_functions.h"
#include "kube/object.h"
#include "kube/quantity.h"
#include "kube/timestamp.h"

namespace sublet::kube::logic {
namespace {

bool IsPositive(const Json* list, std::string_view name) {
  if (list == nullptr) {
    return false;
  }
  const std::string_view text = FindString(*list, {name});
  return !text.empty() && Quantity::ParseOrZero(text).Sign() > 0;
}

// What the containers of a pod ask for, as far as the class depends on it.
struct QosFacts {
  bool any = false;        // some request or limit of cpu or memory
  bool guaranteed = true;  // every container has limits for both, equal to its requests
};

void Look(const Json& container, QosFacts* facts) {
  const Json* requests = Find(container, {"resources", "requests"});
  const Json* limits = Find(container, {"resources", "limits"});
  for (const char* name : {"cpu", "memory"}) {
    const bool requested = IsPositive(requests, name);
    const bool limited = IsPositive(limits, name);
    facts->any |= requested || limited;
    const bool equal =
        limited && (!requested || Quantity::ParseOrZero(FindString(*requests, {name})) ==
                                      Quantity::ParseOrZero(FindString(*limits, {name})));
    facts->guaranteed &= equal;
  }
}

// The pod's own values of the named labels become conditions of a term's selector.
void AddLabelKeys(const Json& labels, const char* keys, const char* verb, Json* term) {
  Json* selector = Find(*term, {"labelSelector"});
  const Json* list = Find(*term, {keys});
  if (selector == nullptr || !selector->is_object() || list == nullptr || !list->is_array()) {
    return;
  }
  for (const Json& key : *list) {
    const std::string name = key.is_string() ? key.get<std::string>() : "";
    if (const Json* value = Find(labels, {name})) {
      EnsureArray(selector, "matchExpressions")
          .push_back({{"key", name}, {"operator", verb}, {"values", Json::array({*value})}});
    }
  }
}

void SelectOwnLabels(const Json& labels, Json* spec) {
  const auto each = [](Json* list, const auto& visit) {
    if (list != nullptr && list->is_array()) {
      for (Json& item : *list) {
        visit(&item);
      }
    }
  };
  const auto term = [&labels](Json* item) {
    AddLabelKeys(labels, "matchLabelKeys", "In", item);
    AddLabelKeys(labels, "mismatchLabelKeys", "NotIn", item);
  };
  for (const char* affinity : {"podAffinity", "podAntiAffinity"}) {
    each(Find(*spec, {"affinity", affinity, "preferredDuringSchedulingIgnoredDuringExecution"}),
         [&](Json* item) {
           if (Json* inner = Find(*item, {"podAffinityTerm"})) {
             term(inner);
           }
         });
    each(Find(*spec, {"affinity", affinity, "requiredDuringSchedulingIgnoredDuringExecution"}),
         term);
  }
  each(Find(*spec, {"topologySpreadConstraints"}),
       [&](Json* item) { AddLabelKeys(labels, "matchLabelKeys", "In", item); });
}

}  // namespace

std::string_view QosClassOf(const Json& spec) {
  QosFacts facts;
  const Json* whole = Find(spec, {"resources"});
  if (whole != nullptr &&
      (Find(*whole, {"requests"}) != nullptr || Find(*whole, {"limits"}) != nullptr)) {
    Look({{"resources", *whole}}, &facts);
  } else {
    for (const char* list : {"containers", "initContainers"}) {
      if (const Json* containers = Find(spec, {list});
          containers != nullptr && containers->is_array()) {
        for (const Json& container : *containers) {
          Look(container, &facts);
        }
      }
    }
  }
  if (!facts.any) {
    return "BestEffort";
  }
  return facts.guaranteed ? "Guaranteed" : "Burstable";
}

void PreparePodCreate(const WriteContext& context, Json* pod) {
  const Json none = Json::object();
  const Json* spec = Find(*pod, {"spec"});
  (*pod)["status"] = {{"phase", "Pending"},
                      {"qosClass", std::string(QosClassOf(spec == nullptr ? none : *spec))}};
  const Json* gates = spec == nullptr ? nullptr : Find(*spec, {"schedulingGates"});
  if (gates != nullptr && gates->is_array() && !gates->empty()) {
    (*pod)["status"]["conditions"] =
        Json::array({{{"type", "PodScheduled"},
                      {"status", "False"},
                      {"reason", "SchedulingGated"},
                      {"message", "Scheduling is blocked due to non-empty scheduling gates"},
                      {"lastProbeTime", nullptr},
                      {"lastTransitionTime", FormatTime(context.now)}}});
  }
  if (Json* own = Find(*pod, {"spec"})) {
    const Json* labels = Find(*pod, {"metadata", "labels"});
    SelectOwnLabels(labels == nullptr ? none : *labels, own);
  }
}

void PreparePodStatus(const WriteContext&, const Json& old, Json* pod) {
  // Only the kubelet's side may be told: a write of the status neither deletes nor adopts.
  Json& metadata = EnsureObject(pod, "metadata");
  if (const Json* owners = Find(old, {"metadata", "ownerReferences"})) {
    metadata["ownerReferences"] = *owners;
  } else {
    EraseMember(&metadata, "ownerReferences");
  }
  // The class is settled at creation; who does not know it keeps it.
  Json& status = EnsureObject(pod, "status");
  if (const std::string qos(FindString(old, {"status", "qosClass"}));
      !qos.empty() && FindString(status, {"qosClass"}).empty()) {
    status["qosClass"] = qos;
  }
}

namespace {

// The containers of `old` with the resources that were sent; as sent when they are not the same
// ones in the same order: validation says so.
Json Resized(const Json& sent, const Json& old) {
  Json result = old;
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (FindString(sent[i], {"name"}) != FindString(old[i], {"name"})) {
      return sent;
    }
    for (const char* field : {"resources", "resizePolicy"}) {
      if (const Json* value = Find(sent[i], {field})) {
        result[i][field] = *value;
      } else {
        EraseMember(&result[i], field);
      }
    }
  }
  return result;
}

std::size_t Count(const Json& spec, const char* list) {
  const Json* items = Find(spec, {list});
  return items == nullptr ? 0 : items->size();
}

}  // namespace

void PreparePodSubresource(std::string_view subresource, const WriteContext&, const Json& old,
                           Json* pod) {
  const Json none = Json::object();
  const Json* found = Find(*pod, {"spec"});
  const Json sent = found == nullptr ? none : *found;
  const Json* old_found = Find(old, {"spec"});
  const Json& old_spec = old_found == nullptr ? none : *old_found;
  if (subresource == "resize" &&
      (Count(sent, "containers") != Count(old_spec, "containers") ||
       Count(sent, "initContainers") != Count(old_spec, "initContainers"))) {
    return;
  }
  Json result = old;
  result["metadata"] = (*pod)["metadata"];
  for (const char* key : {"labels", "annotations", "finalizers", "ownerReferences"}) {
    TakeMember(old["metadata"], key, &result["metadata"]);
  }
  if (subresource == "ephemeralcontainers") {
    TakeMember(sent, "ephemeralContainers", &result["spec"]);
  } else if (subresource == "resize") {
    TakeMember(sent, "resources", &result["spec"]);
    for (const char* list : {"containers", "initContainers"}) {
      if (const Json* mine = Find(sent, {list})) {
        result["spec"][list] = Resized(*mine, *Find(old_spec, {list}));
      }
    }
  }
  *pod = std::move(result);
}

}  // namespace sublet::kube::logic
