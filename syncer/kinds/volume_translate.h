// Volumes of a host Pod: an allow-list of kinds, every reference renamed, service account tokens
// turned into items of a Secret that the syncer keeps fresh. Private to syncer/kinds.
#pragma once

#include "base/result.h"
#include "kube/json.h"
#include "syncer/kinds/container_translate.h"

namespace sublet::syncer {

// Errors: Forbidden when the volume's kind may not reach the host (hostPath, ...).
Result<kube::Json> TranslateVolume(const kube::Json& volume, const kube::Json& pod,
                                   const PodContext& context, DownwardApi& downward, HostPod& out);

}  // namespace sublet::syncer
