// GpuRequest: what a pod's annotations ask of the GPU layer, with exact numbers. Used by the
// admission rule and the scheduler (tenant side) and by the syncer when it writes a GpuSlice.
// Source: KAI's annotations (gpu-fraction, gpu-memory, gpu-fraction-num-devices,
// gpu-fraction-container-name) plus ours under gpu.sublet.dev/. Threads: any; pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gpu/api/types.h"

namespace sublet::gpu {

inline constexpr std::string_view kFractionAnnotation = "gpu-fraction";
inline constexpr std::string_view kMemoryAnnotation = "gpu-memory";
inline constexpr std::string_view kNumDevicesAnnotation = "gpu-fraction-num-devices";
inline constexpr std::string_view kContainerAnnotation = "gpu-fraction-container-name";
inline constexpr std::string_view kMpsAnnotation = "mps";
inline constexpr std::string_view kWeightAnnotation = "gpu.sublet.dev/compute-weight";
inline constexpr std::string_view kRequestAnnotation = "gpu.sublet.dev/compute-request";
inline constexpr std::string_view kLimitAnnotation = "gpu.sublet.dev/compute-limit";
inline constexpr std::string_view kModeAnnotation = "gpu.sublet.dev/compute-mode";

// A fraction is kept in billionths, so that "0.333333333" times a device is the same on every
// machine.
inline constexpr std::int64_t kFractionNanoWhole = 1'000'000'000;

struct GpuRequest {
  std::int64_t fraction_nano = 0;  // 1..999,999,999 when asked by gpu-fraction, else 0
  std::int64_t memory_bytes = 0;   // a multiple of 1 MiB when asked by gpu-memory, else 0
  std::int32_t num_devices = 1;    // 1..16
  std::string container_name;      // "" = the first container
  std::int32_t weight = 0;         // 0 = by share
  std::int32_t request_milli = 0;  // 0 = the part of the device's memory
  std::int32_t limit_milli = kShareMilliWhole;
  ComputeMode mode = ComputeMode::kFair;
  bool operator==(const GpuRequest&) const = default;
};

// Returns the request, or nullopt when no annotation of ours or KAI's sharing ones is present.
// Shapes: gpu-fraction a plain decimal in (0,1) with at most 9 digits after the point; gpu-memory
// whole MiB ≥ 1; num-devices 1..16; compute-weight 1..1,000,000; compute-request and compute-limit
// percent of a device, 1..100 with at most one digit after the point, request ≤ limit; compute-mode
// fair|strict. Errors: Invalid with one cause per bad annotation, field metadata.annotations[KEY].
// Differs: KAI takes whatever ParseFloat takes ("5e-1", " 0.5" after trimming, "0x1p-1"); a number
// here is digits, because the same text must mean the same bytes to every reader.
Result<std::optional<GpuRequest>> ParseGpuRequest(
    const std::map<std::string, std::string, std::less<>>& annotations);

// The device amounts of `request` on a device with `device_memory_bytes` usable bytes: a fraction
// is rounded down to the byte, a gpu-memory stays exact; share is compute-request, else the
// memory's part, rounded down and at least 1. Errors: Invalid when the memory is more than the
// device has.
Result<SliceDevice> AmountsOn(const GpuRequest& request, std::string_view uuid,
                              std::int64_t device_memory_bytes);

// The compute policy a slice of this request carries.
ComputePolicy PolicyOf(const GpuRequest& request);

// Checks a spec before it is created or granted: names, 1..16 distinct devices, amounts in range.
// Errors: Invalid naming the fields (spec.devices[i].memoryBytes, ...).
Result<void> ValidateSliceSpec(std::string_view slice_name, const GpuSliceSpec& spec);

}  // namespace sublet::gpu
