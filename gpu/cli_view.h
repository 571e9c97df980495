// What `sublet gpu list` and `sublet gpu top` print, from GpuNode and GpuSlice objects and from
// gpud's /status document (gpu/gpud/status.h). Pure. Threads: any.
#pragma once

#include <string>
#include <vector>

#include "gpu/api/types.h"
#include "kube/json.h"

namespace sublet::gpu {

// One line per device: node, index, model, memory, free memory, free share, slices, health; then
// one per slice: tenant, pod, where, memory, share, phase. "No GPUs found" without any.
std::string FormatGpuList(const std::vector<GpuNode>& nodes, const std::vector<GpuSlice>& slices);
// {"items": [{node, index, uuid, model, memoryBytes, freeMemoryBytes, freeShareMilli, healthy,
//   slices: [{namespace, name, pod, tenant, memoryBytes, shareMilli, phase, ready}]}]}
kube::Json GpuListToJson(const std::vector<GpuNode>& nodes, const std::vector<GpuSlice>& slices);

// Per GPU its slices: tenant, pod, cap, used, peak, share wanted and got, waits, refusals. `before`
// is an earlier document of the same gpud, or nullptr; without one the shares got are "-".
std::string FormatGpuTop(const kube::Json& status, const kube::Json* before);
// {"node", "gpus": [{uuid, index, model, memoryBytes, slices: [{tenant, namespace, pod, capBytes,
// usedBytes,
//   peakBytes, shareWantedMilli, shareGotMilli and waitMsPerSecond (null without `before`), waitMs,
//   enforced, refusals, processes}]}]}
kube::Json GpuTopToJson(const kube::Json& status, const kube::Json* before);

// "16.0Gi", "512Mi", "0".
std::string HumanBytes(std::int64_t bytes);

}  // namespace sublet::gpu
