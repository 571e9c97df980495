// The plugin that puts the scheduler into the API server's admission list: its rules
// (scheduler/admission.h) for Queue, PodGroup and Topology (requests for GPUs are judged by
// server/gpu_admission.h); and the pod grouper's work, done while the pod is created: the link to its PodGroup is part of the pod from
// the start, and a PodGroup that does not exist yet commits with it. The grouper itself
// (scheduler/service/pod_grouper.h) then only finds pods that were there before. Threads: any
// request thread.
#pragma once

#include <vector>

#include "apiserver/admission/registry.h"
#include "scheduler/profile.h"

namespace sublet::server {

// `profiles`: whose pods are grouped; empty when the embedded scheduler is off.
apiserver::AdmissionPlugin KaiAdmission(const apiserver::AdmissionEnvironment& environment,
                                        std::vector<scheduler::Profile> profiles);

}  // namespace sublet::server
