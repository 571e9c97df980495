#include "kube/pod_resources.h"

#include <nlohmann/json.hpp>

namespace sublet::kube {

ResourceAmounts AmountsOf(const Json* list) {
  ResourceAmounts amounts;
  if (list == nullptr || !list->is_object()) {
    return amounts;
  }
  for (auto it = list->begin(); it != list->end(); ++it) {
    if (it->is_string()) {
      amounts[it.key()] = kube::Quantity::ParseOrZero(it->get_ref<const std::string&>());
    } else if (it->is_number_integer()) {
      amounts[it.key()] = kube::Quantity::FromInt(it->get<std::int64_t>());
    }
  }
  return amounts;
}

void AddAmounts(const ResourceAmounts& more, ResourceAmounts* to) {
  for (const auto& [name, amount] : more) {
    const auto [it, fresh] = to->emplace(name, amount);
    if (!fresh) {
      it->second += amount;
    }
  }
}

void MaxAmounts(const ResourceAmounts& other, ResourceAmounts* to) {
  for (const auto& [name, amount] : other) {
    const auto [it, fresh] = to->emplace(name, amount);
    if (!fresh && it->second < amount) {
      it->second = amount;
    }
  }
}

ResourceAmounts PodAmounts(const Json& pod, std::string_view which) {
  ResourceAmounts total;
  if (const Json* list = kube::Find(pod, {"spec", "containers"});
      list != nullptr && list->is_array()) {
    for (const auto& container : *list) {
      AddAmounts(AmountsOf(kube::Find(container, {"resources", which})), &total);
    }
  }
  ResourceAmounts sidecars;
  ResourceAmounts peak;
  if (const Json* list = kube::Find(pod, {"spec", "initContainers"});
      list != nullptr && list->is_array()) {
    for (const auto& container : *list) {
      const auto own = AmountsOf(kube::Find(container, {"resources", which}));
      if (kube::FindString(container, {"restartPolicy"}) == "Always") {
        AddAmounts(own, &sidecars);
        MaxAmounts(sidecars, &peak);
      } else {
        ResourceAmounts moment = sidecars;
        AddAmounts(own, &moment);
        MaxAmounts(moment, &peak);
      }
    }
  }
  AddAmounts(sidecars, &total);
  MaxAmounts(peak, &total);
  // Resources of the whole pod count instead of the containers' where they are set.
  for (const auto& [name, amount] : AmountsOf(kube::Find(pod, {"spec", "resources", which}))) {
    total[name] = amount;
  }
  const auto overhead = AmountsOf(kube::Find(pod, {"spec", "overhead"}));
  for (const auto& [name, amount] : overhead) {
    if (which == "requests" || total.count(name) != 0) {
      AddAmounts({{name, amount}}, &total);
    }
  }
  return total;
}

std::string FormatAmounts(const ResourceAmounts& amounts) {
  std::string text;
  for (const auto& [name, amount] : amounts) {
    text += (text.empty() ? "" : ",") + name + "=" + amount.Text();
  }
  return text;
}

Json AmountsToJson(const ResourceAmounts& amounts) {
  Json out = Json::object();
  for (const auto& [name, amount] : amounts) {
    out[name] = amount.Text();
  }
  return out;
}

}  // namespace sublet::kube
