// The virtual pods with what each of them mentions, indexed: how ConfigMaps, Secrets and claims
// learn that they are used. One informer, shared by all kinds of the syncer.
#pragma once

#include "syncer/kind_syncer.h"
#include "syncer/kinds/pod_translate.h"

namespace sublet::syncer {

// Index values: "configmaps/NAMESPACE/NAME", "secrets/...", "persistentvolumeclaims/...".
inline constexpr std::string_view kReferenceIndex = "reference";

// The informer; the record of each pod is its PodReferences.
client::Informer& PodsWithReferences(SyncContext& context);

}  // namespace sublet::syncer
