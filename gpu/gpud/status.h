// What gpud tells about itself: Prometheus text and a JSON document for `sublet gpu top`. Pure.
#pragma once

#include <string>

#include "gpu/gpud/engine.h"
#include "kube/json.h"

namespace sublet::gpu {

// Prometheus text format, one line per slice and device, labels: slice, namespace, pod, tenant,
// gpu.
std::string FormatMetrics(const EngineStatus& status, const DriverInventory& inventory);

// {node, driverVersion, nowNs, devices: [{uuid, index, model, memoryBytes}], slices: [{name,
// namespace,
//  pod, tenant, processes, unmanaged, ungated, devices: [{uuid, capBytes, usedBytes, peakBytes,
//  heldBytes, bytes: {linear, ...}, refusals, shareMilli, weight, busyNs, waitNs, turns, overruns,
//  waiting}]}]}
kube::Json StatusToJson(const EngineStatus& status, const DriverInventory& inventory,
                        const std::string& node, Nanoseconds now);

}  // namespace sublet::gpu
