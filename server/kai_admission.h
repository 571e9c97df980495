// The plugin that puts the scheduler's admission rules (scheduler/admission.h) into the API server's
// list: GPU sharing requests of pods, Queue, PodGroup and Topology. Also gives a bare pod of a KAI-like
// scheduler the link to its PodGroup.
// Threads: any request thread.
#pragma once

#include "apiserver/admission/registry.h"

namespace sublet::server {

apiserver::AdmissionPlugin KaiAdmission(const apiserver::AdmissionEnvironment& environment);

}  // namespace sublet::server
