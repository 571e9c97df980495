// GuardSlicePod: what a pod that gets a part of a GPU may not ask for, because it would lead past the
// slice. Used by the tenant's admission and, once more, by the syncer before it makes the host pod
// (which tells the tenant by an Event). Rows 33 and 34 of the hostile cases.
// Pure. Threads: any.
#pragma once

#include "base/result.h"
#include "kube/json.h"

namespace sublet::gpu {

// `pod` is the whole Pod. Checks every container, init and ephemeral ones too:
//   env NVIDIA_VISIBLE_DEVICES (but void/none), NVIDIA_DRIVER_CAPABILITIES, CUDA_VISIBLE_DEVICES,
//   CUDA_MPS_*, LD_PRELOAD, LD_LIBRARY_PATH, LD_AUDIT, SUBLET_*;
//   privileged, or SYS_ADMIN, SYS_PTRACE, SYS_RAWIO, MKNOD, ALL added;
//   a mount at or above /run/sublet, /etc/ld.so.preload, the driver's library folder or nvidia-smi;
//   a hostPath volume into /dev, /run/sublet, /var/lib/sublet or /proc, or "/"; hostPID, hostIPC.
// Errors: Forbidden, one cause per find with its field (spec.containers[0].env[2].name).
// Differs: KAI refuses NVIDIA_VISIBLE_DEVICES only; the rest would lead past an interceptor.
Result<void> GuardSlicePod(const kube::Json& pod);

}  // namespace sublet::gpu
