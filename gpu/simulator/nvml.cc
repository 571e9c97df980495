// The simulated libnvidia-ml.so.1: inventory, memory, processes with host pids, utilisation, the
// per-cgroup memory limits of newer drivers when the state says so. Every other name of the real
// library is present and answers NOT_SUPPORTED. Threads: any.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gpu/hooks/nvml_abi.h"
#include "gpu/simulator/state.h"

#define SUBLET_EXPORT extern "C" __attribute__((visibility("default")))

namespace sublet::gpu::simulator {

using namespace nvml;  // NOLINT: the library's names are the subject of this file

namespace {

struct CgroupLimit {
  char path[512];
  std::uint64_t hard_bytes;
};
CgroupLimit limits[64];

class Locked {
 public:
  Locked() { Machine::Get().Lock(); }
  ~Locked() { Machine::Get().Unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

// Handles are device indices plus one, so that none is null.
int IndexOf(nvmlDevice_t device) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}

nvmlReturn_t Check(nvmlDevice_t device) {
  if (Machine::Get().state() == nullptr) {
    return kNvmlUninitialized;
  }
  const int index = IndexOf(device);
  if (index < 0 || index >= static_cast<int>(Machine::Get().state()->device_count)) {
    return kNvmlInvalidArgument;
  }
  return Machine::Get().state()->devices[index].is_lost != 0 ? kNvmlGpuIsLost : kNvmlSuccess;
}

const Device& At(nvmlDevice_t device) { return Machine::Get().state()->devices[IndexOf(device)]; }

}  // namespace

SUBLET_EXPORT nvmlReturn_t nvmlInit_v2() {
  return Machine::Get().Init(false) == 0 ? kNvmlSuccess : kNvmlDriverNotLoaded;
}
SUBLET_EXPORT nvmlReturn_t nvmlInit() { return nvmlInit_v2(); }
SUBLET_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  (void)flags;
  return nvmlInit_v2();
}
SUBLET_EXPORT nvmlReturn_t nvmlShutdown() { return kNvmlSuccess; }
SUBLET_EXPORT const char* nvmlErrorString(nvmlReturn_t result) {
  return result == kNvmlSuccess ? "Success" : "Error";
}
SUBLET_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char* text, unsigned int length) {
  std::snprintf(text, length, "%s", "580.0.0-sim");
  return kNvmlSuccess;
}
SUBLET_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = Machine::Get().state() != nullptr
                 ? static_cast<int>(Machine::Get().state()->driver_version)
                 : 13000;
  return kNvmlSuccess;
}
SUBLET_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  if (Machine::Get().state() == nullptr) {
    return kNvmlUninitialized;
  }
  *count = Machine::Get().state()->device_count;
  return kNvmlSuccess;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) {
  return nvmlDeviceGetCount_v2(count);
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  if (Machine::Get().state() == nullptr) {
    return kNvmlUninitialized;
  }
  if (index >= Machine::Get().state()->device_count) {
    return kNvmlInvalidArgument;
  }
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<std::uintptr_t>(index) + 1);
  return kNvmlSuccess;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  for (unsigned int i = 0;
       Machine::Get().state() != nullptr && i < Machine::Get().state()->device_count; ++i) {
    if (std::strcmp(Machine::Get().state()->devices[i].uuid, uuid) == 0) {
      return nvmlDeviceGetHandleByIndex_v2(i, device);
    }
  }
  return kNvmlNotFound;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* text, unsigned int length) {
  const nvmlReturn_t result = Check(device);
  if (result == kNvmlSuccess || result == kNvmlGpuIsLost) {
    std::snprintf(text, length, "%s", At(device).uuid);
    return kNvmlSuccess;
  }
  return result;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* text, unsigned int length) {
  const nvmlReturn_t result = Check(device);
  if (result == kNvmlSuccess) {
    std::snprintf(text, length, "%s", At(device).model);
  }
  return result;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  *index = static_cast<unsigned int>(IndexOf(device));
  return Check(device);
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minor) {
  return nvmlDeviceGetIndex(device, minor);
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major,
                                                              int* minor) {
  *major = 9;
  *minor = 0;
  return Check(device);
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const nvmlReturn_t result = Check(device);
  if (result == kNvmlSuccess) {
    Locked lock;
    memory->total = At(device).total_bytes;
    memory->used = Machine::Get().UsedBytes(IndexOf(device));
    memory->free = memory->total - memory->used;
  }
  return result;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device,
                                                      nvmlMemory_v2_t* memory) {
  const nvmlReturn_t result = Check(device);
  if (result == kNvmlSuccess) {
    Locked lock;
    memory->total = At(device).total_bytes;
    memory->reserved = At(device).reserved_bytes;
    memory->used = Machine::Get().UsedBytes(IndexOf(device)) - memory->reserved;
    memory->free = memory->total - memory->used - memory->reserved;
  }
  return result;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
                                                         nvmlUtilization_t* rates) {
  const nvmlReturn_t result = Check(device);
  if (result == kNvmlSuccess) {
    Locked lock;
    Machine::Get().Advance(IndexOf(device));
    rates->gpu = At(device).running >= 0 ? 100 : 0;
    rates->memory = 0;
  }
  return result;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                   unsigned int* count,
                                                                   nvmlProcessInfo_t* out) {
  const nvmlReturn_t result = Check(device);
  if (result != kNvmlSuccess) {
    return result;
  }
  Locked lock;
  Machine::Get().Reap();
  const State& state = *Machine::Get().state();
  unsigned int found = 0;
  for (std::uint32_t i = 0; i < state.process_high_water; ++i) {
    const Process& process = state.processes[i];
    const std::uint64_t bytes =
        process.is_used != 0 ? BytesOf(At(device), process.devices[IndexOf(device)]) : 0;
    const int pid = bytes > 0 ? Machine::Get().PidOf(static_cast<int>(i)) : 0;
    if (pid <= 0) {
      continue;
    }
    if (out != nullptr && found < *count) {
      out[found] =
          nvmlProcessInfo_t{static_cast<unsigned int>(pid), bytes, 0xffffffffU, 0xffffffffU};
    }
    ++found;
  }
  const bool fits = out != nullptr && found <= *count;
  *count = found;
  return fits || found == 0 ? kNvmlSuccess : kNvmlInsufficientSize;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                           nvmlProcessUtilizationSample_t* out,
                                                           unsigned int* count,
                                                           unsigned long long since) {
  // What every slot had done when it was asked for the last time, by this process.
  static std::uint64_t done_before[kDevicesMax][kProcessesMax];
  static std::uint64_t asked_before[kDevicesMax];
  const nvmlReturn_t result = Check(device);
  if (result != kNvmlSuccess) {
    return result;
  }
  Locked lock;
  const int index = IndexOf(device);
  Machine::Get().Advance(index);
  const State& state = *Machine::Get().state();
  const std::uint64_t now = Machine::Get().Now();
  const std::uint64_t passed = asked_before[index] == 0 ? 0 : now - asked_before[index];
  unsigned int found = 0;
  for (std::uint32_t i = 0; i < state.process_high_water; ++i) {
    const ProcessDevice& process = state.processes[i].devices[index];
    const int pid = state.processes[i].is_used != 0 && process.submitted_ns > 0
                        ? Machine::Get().PidOf(static_cast<int>(i))
                        : 0;
    const std::uint64_t before = done_before[index][i];
    done_before[index][i] = process.done_ns;
    if (pid <= 0 || passed == 0) {
      continue;
    }
    if (out != nullptr && found < *count) {
      // A slot that another process took over starts from nothing.
      const std::uint64_t did =
          process.done_ns >= before ? process.done_ns - before : process.done_ns;
      std::memset(&out[found], 0, sizeof out[found]);
      out[found].pid = static_cast<unsigned int>(pid);
      out[found].timeStamp = since + 1;
      out[found].smUtil =
          static_cast<unsigned int>(did * 100 / passed > 100 ? 100 : did * 100 / passed);
    }
    ++found;
  }
  asked_before[index] = now;
  const bool fits = out != nullptr && found <= *count;
  *count = found;
  return found == 0 ? kNvmlNotFound : fits ? kNvmlSuccess : kNvmlInsufficientSize;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device,
                                                        const nvmlSetMemoryLimits_v1_t* request) {
  const nvmlReturn_t result = Check(device);
  if (result != kNvmlSuccess) {
    return result;
  }
  if (Machine::Get().state()->has_memory_limits == 0) {
    return kNvmlNotSupported;
  }
  CgroupLimit* place = nullptr;
  for (CgroupLimit& limit : limits) {
    if (std::strcmp(limit.path, request->cgroupPath) == 0) {
      place = &limit;
      break;
    }
    if (place == nullptr && limit.path[0] == 0) {
      place = &limit;
    }
  }
  if (place == nullptr) {
    return kNvmlInsufficientResources;
  }
  std::snprintf(place->path, sizeof place->path, "%s", request->cgroupPath);
  place->hard_bytes = request->hardLimit;
  return kNvmlSuccess;
}
SUBLET_EXPORT nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device,
                                                        nvmlGetMemoryLimits_v1_t* answer) {
  const nvmlReturn_t result = Check(device);
  if (result != kNvmlSuccess) {
    return result;
  }
  for (const CgroupLimit& limit : limits) {
    if (limit.path[0] != 0 && std::strcmp(limit.path, answer->cgroupPath) == 0) {
      answer->hardLimit = limit.hard_bytes;
      answer->softLimit = 0;
      answer->currentUsed = 0;
      return kNvmlSuccess;
    }
  }
  return kNvmlNotFound;
}

}  // namespace sublet::gpu::simulator
