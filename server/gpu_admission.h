// GpuAdmission: what pods may ask of the GPU layer (gpu/api/guard.h), as an admission plugin.
// Threads: request threads, several at once; keeps no state.
#pragma once

#include "apiserver/admission/admission.h"
#include "gpu/api/types.h"

namespace sublet::server {

struct GpuAdmissionOptions {
  gpu::Enforce enforce = gpu::Enforce::kOn;
  // Refuses what leads past a slice as well: for tenants. The host's own users are trusted with
  // more.
  bool guards = true;
};

// Pods on create, and on update (ephemeral containers included) when their containers, annotations
// or labels change. Errors: Invalid and Forbidden, naming the fields.
apiserver::AdmissionPlugin GpuAdmission(const GpuAdmissionOptions& options);

}  // namespace sublet::server
