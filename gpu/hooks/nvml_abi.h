// The part of NVML's binary interface that gpud, the NVML stand-in and the simulator interpret.
// Layouts follow the C structs of NVML 13 on x86-64. Depends on nothing but the compiler.
#pragma once

#include <cstdint>

namespace sublet::gpu::nvml {

using nvmlReturn_t = int;
using nvmlDevice_t = void*;

enum : int {
  kNvmlSuccess = 0,
  kNvmlUninitialized = 1,
  kNvmlInvalidArgument = 2,
  kNvmlNotSupported = 3,
  kNvmlNoPermission = 4,
  kNvmlNotFound = 6,
  kNvmlInsufficientSize = 7,
  kNvmlDriverNotLoaded = 9,
  kNvmlFunctionNotFound = 13,
  kNvmlGpuIsLost = 15,
  kNvmlInsufficientResources = 23,
};

struct nvmlMemory_t {
  unsigned long long total, free, used;
};
struct nvmlMemory_v2_t {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct nvmlBAR1Memory_t {
  unsigned long long bar1Total, bar1Free, bar1Used;
};
struct nvmlUtilization_t {
  unsigned int gpu, memory;
};
// Version 1 of the process list has no instance ids.
struct nvmlProcessInfo_v1_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
};
struct nvmlProcessInfo_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId, computeInstanceId;
};
struct nvmlProcessUtilizationSample_t {
  unsigned int pid;
  unsigned long long timeStamp;
  unsigned int smUtil, memUtil, encUtil, decUtil;
};
struct nvmlSetMemoryLimits_v1_t {
  const char* cgroupPath;
  unsigned long long softLimit, hardLimit;
};
struct nvmlGetMemoryLimits_v1_t {
  const char* cgroupPath;
  unsigned long long softLimit, hardLimit, currentUsed;
};
inline constexpr unsigned int kMemoryInfoV2 = 0x02000028;
inline constexpr unsigned long long kMemoryLimitMax = ~0ULL;

static_assert(sizeof(nvmlMemory_v2_t) == 40);
static_assert(sizeof(nvmlProcessInfo_t) == 24);
static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32);

}  // namespace sublet::gpu::nvml
