// What a pod that asks for a GPU may say, and what it may not: the shapes of its request, and
// whatever would lead past its slice. Used by admission (server/gpu_admission.h) and, once more, by
// the syncer before it makes the host pod (which tells the tenant by an Event). Rows 33, 34 and 36
// of the hostile cases. Pure. Threads: any.
#pragma once

#include "base/result.h"
#include "gpu/api/types.h"
#include "kube/json.h"

namespace sublet::gpu {

// kShared: gpu-fraction or gpu-memory; kWhole: nvidia.com/gpu or a MIG resource in a container's
// limits.
enum class GpuUse : std::uint8_t { kNone, kWhole, kShared };
GpuUse UseOf(const kube::Json& pod);

// The containers that see the pod's devices, separated by commas: of a sharing pod the one named by
// gpu-fraction-container-name, else the first; of others those that have GPUs in their resources.
// "" = the pod asks for none.
std::string DeviceContainersOf(const kube::Json& pod);
// True when this container gets the pod's slice: by kContainersAnnotation, which a syncer writes
// where the request itself does not travel, else by DeviceContainersOf; a pod with neither gives it
// to all. Used by the node agent. Differs: containerd gives annotated CDI devices to every
// container.
bool SeesDevices(const kube::Json& pod, std::string_view container);

// The request itself, the one place that judges it for every scheduler: annotations that parse
// (ParseGpuRequest), a container that exists, not a part and whole devices together, MPS only with a
// fraction; on a pod not yet bound no device of its own choosing (label runai-gpu-group, which the
// scheduler writes); on one that has a node (`old`, nullptr for a create) no other request. Words as
// KAI's where it has the rule. Errors: Invalid with one cause per find, field
// metadata.annotations[KEY], metadata.labels[KEY] or
// spec.containers[i].resources.limits[nvidia.com/gpu].
// Differs: KAI lets the annotations of a placed pod change and then counts it by a number that its
// device does not hold.
Result<void> CheckGpuRequest(const kube::Json& pod, const kube::Json* old);

// For a pod that shares a GPU. Checks every container, init and ephemeral ones too:
//   env NVIDIA_VISIBLE_DEVICES (but void/none), NVIDIA_DRIVER_CAPABILITIES, CUDA_VISIBLE_DEVICES,
//   CUDA_MPS_*, LD_PRELOAD, LD_LIBRARY_PATH, LD_AUDIT, SUBLET_*;
//   privileged, or SYS_ADMIN, SYS_PTRACE, SYS_RAWIO, MKNOD, ALL added;
//   a mount at or above /run/sublet, /etc/ld.so.preload, the driver's library folder or nvidia-smi;
//   a hostPath volume into /dev, /run/sublet, /var/lib/sublet or /proc, or "/"; hostPID, hostIPC;
//   annotations cdi.k8s.io/*.
// Errors: Forbidden, one cause per find with its field (spec.containers[0].env[2].name).
// Differs: KAI refuses NVIDIA_VISIBLE_DEVICES only; the rest would lead past an interceptor.
Result<void> GuardSlicePod(const kube::Json& pod);

// For every other pod of a tenant: NVIDIA_VISIBLE_DEVICES (but void/none) only, which under
// NVIDIA's own runtime hands devices to any container that names them. Errors: as above.
Result<void> GuardVisibleDevices(const kube::Json& pod);

// The guard for this pod: GuardSlicePod when it shares a GPU and its slice is enforced, else
// GuardVisibleDevices (which is all that KAI refuses).
Result<void> GuardPod(const kube::Json& pod, Enforce enforce);

}  // namespace sublet::gpu
