// GpuSlice and GpuNode to JSON and back (gpu.sublet.dev/v1alpha1). A missing or mistyped member
// reads as its default: what a field must be is ValidateSliceSpec's (gpu/api/request.h) business,
// so that gpud can answer a bad spec with a denial instead of losing it. Threads: any; pure.
#pragma once

#include "gpu/api/types.h"
#include "kube/json.h"
#include "kube/names.h"

namespace sublet::gpu {

inline kube::GroupVersionResource SliceResource() {
  return {std::string(kGroup), std::string(kVersion), std::string(kSliceResource)};
}
inline kube::GroupVersionResource NodeResource() {
  return {std::string(kGroup), std::string(kVersion), std::string(kNodeResource)};
}

// Errors: BadRequest when there is no metadata.name.
Result<GpuSlice> SliceFromJson(const kube::Json& object);
Result<GpuNode> NodeFromJson(const kube::Json& object);

// The whole object as it is created: metadata with the finalizer when has_finalizer, spec, and
// status when its phase is not Pending. resourceVersion and uid stand in it when they are set.
kube::Json SliceToJson(const GpuSlice& slice);
kube::Json NodeToJson(const GpuNode& node);
// Only {"spec"...} or {"status"...} members, for patches.
kube::Json SliceSpecToJson(const GpuSliceSpec& spec);
kube::Json SliceStatusToJson(const GpuSliceStatus& status);

// A new slice for a pod: named by the pod's UID, with the finalizer, phase Pending.
GpuSlice MakeSlice(std::string name_space, GpuSliceSpec spec);

// "sublet.dev/gpu=SLICE": what the host pod's kCdiAnnotation says.
std::string CdiDeviceName(std::string_view slice_name);

}  // namespace sublet::gpu
