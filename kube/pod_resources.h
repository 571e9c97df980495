// What a pod asks for and may use, as quotas and limit ranges count it.
// Threads: any; pure functions.
// Source: k8s.io/component-helpers resource, k8s.io/kubernetes pkg/quota/v1.
#pragma once

#include <map>
#include <string>

#include "kube/json.h"
#include "kube/quantity.h"

namespace sublet::kube {

using ResourceAmounts = std::map<std::string, kube::Quantity>;

// {"cpu": "1"} of an object member; nullptr gives none.
ResourceAmounts AmountsOf(const kube::Json* list);
void AddAmounts(const ResourceAmounts& more, ResourceAmounts* to);
// Per resource the larger one.
void MaxAmounts(const ResourceAmounts& other, ResourceAmounts* to);

// Sum over containers, at least the largest init container (restartable ones run along), plus
// overhead. `which` is "requests" or "limits".
ResourceAmounts PodAmounts(const kube::Json& pod, std::string_view which);

// "cpu=1,memory=2Gi" in order of names.
std::string FormatAmounts(const ResourceAmounts& amounts);
kube::Json AmountsToJson(const ResourceAmounts& amounts);

}  // namespace sublet::kube
