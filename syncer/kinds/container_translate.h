// Containers of a host Pod: environment, images, security context and the downward API.
// Private to syncer/kinds (pod_translate.cc).
#pragma once

#include <nlohmann/json.hpp>

#include "kube/json.h"
#include "syncer/kinds/pod_translate.h"

namespace sublet::syncer {

// Collects the annotations that translated field references need on the host pod.
struct DownwardApi {
  kube::Json annotations;  // object
};

// A host container from a virtual one. `kind` is "containers", "initContainers" or
// "ephemeralContainers".
kube::Json TranslateContainer(const kube::Json& container, const kube::Json& pod,
                              const PodContext& context, DownwardApi& downward);

// Rewrites one {fieldPath} in place to where the host pod keeps the virtual value.
void TranslateFieldRef(kube::Json& field_ref, const kube::Json& pod, const PodContext& context,
                       DownwardApi& downward);

// The annotations every host pod carries for the downward API (name, namespace, uid, labels, ...).
kube::Json DownwardAnnotations(const kube::Json& pod);

}  // namespace sublet::syncer
