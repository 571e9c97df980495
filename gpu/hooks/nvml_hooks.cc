// libsublet-nvml.so: libnvidia-ml.so.1 as a pod sees it. Devices: the slice's only, numbered from
// 0. Memory: the cap and what is charged. Processes: the pod's own, with the pids it knows them by.
// Everything that changes a device answers NO_PERMISSION. Other names go to the real library
// (nvml_trampolines.S), with the real handles that this library hands out. Depends on nothing but
// libc. Threads: any.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/hooks/libc_floor.h"
#include "gpu/hooks/nvml_abi.h"
#include "gpu/hooks/observer.h"
#include "gpu/hooks/state.h"

#define SUBLET_HOOK extern "C" __attribute__((visibility("default")))

namespace {

enum Symbol : unsigned {
#define SUBLET_SYMBOL(name) kSym_##name,
#include "gpu/hooks/nvml_symbols.inc"
#undef SUBLET_SYMBOL
  kSymbolCount
};
const char* const kNames[] = {
#define SUBLET_SYMBOL(name) #name,
#include "gpu/hooks/nvml_symbols.inc"
#undef SUBLET_SYMBOL
};

}  // namespace

extern "C" {
__attribute__((visibility("hidden"))) void* sublet_slots[kSymbolCount];
__attribute__((visibility("hidden"))) void* sublet_resolve(unsigned long index);
}

namespace sublet::gpu {

using namespace nvml;  // NOLINT: the library's names are the subject of this file

namespace {

void* library = nullptr;
FutexLock view_lock;
std::atomic<int> view_pid;
SliceView view;

int Missing() { return kNvmlFunctionNotFound; }
int Denied() { return kNvmlNoPermission; }

void* Library() {
  void* current = __atomic_load_n(&library, __ATOMIC_ACQUIRE);
  if (current == nullptr) {
    current = dlopen("/run/sublet/real/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    const char* told = getenv("SUBLET_REAL_NVML");
    if (current == nullptr && access(kContainerFolder, F_OK) != 0 && told != nullptr &&
        told[0] == '/') {
      current = dlopen(told, RTLD_NOW | RTLD_LOCAL);
    }
    __atomic_store_n(&library, current, __ATOMIC_RELEASE);
  }
  return current;
}

// The slice's pages; null before a successful nvmlInit. A forked child keeps its parent's view: the
// pages are the pod's.
const SliceView* View() { return view_pid.load(std::memory_order_acquire) != 0 ? &view : nullptr; }

bool OpenView() {
  LockHolder hold(view_lock);
  if (view_pid.load() != 0) {
    return true;
  }
  if (!OpenSliceView(&view)) {
    return false;
  }
  view_pid.store(static_cast<int>(getpid()), std::memory_order_release);
  return true;
}

template <typename Function>
Function Real(Symbol symbol, Function) {
  return reinterpret_cast<Function>(sublet_slots[symbol] != nullptr ? sublet_slots[symbol]
                                                                    : sublet_resolve(symbol));
}
#define REAL(name) Real(kSym_##name, &name)

extern "C" nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* text, unsigned int length);

// The control page's place of a real handle; -1: not the slice's.
int PlaceOf(nvmlDevice_t device) {
  char uuid[96] = "";
  const SliceView* mine = View();
  if (mine == nullptr || REAL(nvmlDeviceGetUUID)(device, uuid, sizeof uuid) != kNvmlSuccess) {
    return -1;
  }
  for (unsigned i = 0; i < mine->control->device_count; ++i) {
    if (strcmp(mine->control->devices[i].uuid, uuid) == 0) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace

extern "C" nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device);

SUBLET_HOOK nvmlReturn_t nvmlInit_v2() {
  const nvmlReturn_t result = REAL(nvmlInit_v2)();
  if (result != kNvmlSuccess) {
    return result;
  }
  return OpenView() ? kNvmlSuccess : kNvmlDriverNotLoaded;
}
SUBLET_HOOK nvmlReturn_t nvmlInit() { return nvmlInit_v2(); }
SUBLET_HOOK nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  (void)flags;
  return nvmlInit_v2();
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  if (View() == nullptr) {
    return kNvmlUninitialized;
  }
  *count = View()->control->device_count;
  return kNvmlSuccess;
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) {
  return nvmlDeviceGetCount_v2(count);
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  if (View() == nullptr) {
    return kNvmlUninitialized;
  }
  if (index >= View()->control->device_count) {
    return kNvmlInvalidArgument;
  }
  return REAL(nvmlDeviceGetHandleByUUID)(View()->control->devices[index].uuid, device);
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  const nvmlReturn_t result = REAL(nvmlDeviceGetHandleByUUID)(uuid, device);
  return result == kNvmlSuccess && PlaceOf(*device) < 0 ? kNvmlNotFound : result;
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus, nvmlDevice_t* device) {
  const nvmlReturn_t result = REAL(nvmlDeviceGetHandleByPciBusId_v2)(bus, device);
  return result == kNvmlSuccess && PlaceOf(*device) < 0 ? kNvmlNotFound : result;
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  const int place = PlaceOf(device);
  *index = static_cast<unsigned int>(place);
  return place < 0 ? kNvmlInvalidArgument : kNvmlSuccess;
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const int place = PlaceOf(device);
  if (place < 0) {
    return kNvmlNotFound;
  }
  memory->total = View()->control->devices[place].cap_bytes;
  const std::uint64_t used = View()->usage->devices[place].total.load();
  memory->used = used < memory->total ? used : memory->total;
  memory->free = memory->total - memory->used;
  return kNvmlSuccess;
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  nvmlMemory_t plain;
  const nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);
  if (result == kNvmlSuccess) {
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
  }
  return result;
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device,
                                                     nvmlBAR1Memory_t* memory) {
  nvmlMemory_t plain;
  const nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);
  if (result == kNvmlSuccess) {
    *memory = {plain.total, plain.free, plain.used};
  }
  return result;
}

namespace {

// Fills a process list of any of its versions; `put` writes one entry.
template <typename Put>
nvmlReturn_t Processes(nvmlDevice_t device, unsigned int* count, bool has_room, Put put) {
  const int place = PlaceOf(device);
  if (place < 0) {
    return kNvmlNotFound;
  }
  unsigned int found = 0;
  for (const Slot& slot : View()->usage->slots) {
    const std::uint64_t bytes = slot.generation.load() != 0 ? SlotBytes(slot, place) : 0;
    if (bytes == 0) {
      continue;
    }
    if (has_room && found < *count) {
      put(found, slot.pid.load(), bytes);
    }
    ++found;
  }
  const bool fits = has_room && found <= *count;
  *count = found;
  return fits || found == 0 ? kNvmlSuccess : kNvmlInsufficientSize;
}

nvmlReturn_t WithInstances(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_t* out) {
  return Processes(device, count, out != nullptr,
                   [&](unsigned int at, unsigned int pid, std::uint64_t bytes) {
                     out[at] = nvmlProcessInfo_t{pid, bytes, ~0U, ~0U};
                   });
}

nvmlReturn_t NoProcesses(unsigned int* count) {
  *count = 0;
  return kNvmlSuccess;
}

}  // namespace

SUBLET_HOOK nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                 unsigned int* count,
                                                                 nvmlProcessInfo_t* out) {
  return WithInstances(device, count, out);
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                                 unsigned int* count,
                                                                 nvmlProcessInfo_t* out) {
  return WithInstances(device, count, out);
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device,
                                                              unsigned int* count,
                                                              nvmlProcessInfo_v1_t* out) {
  return Processes(device, count, out != nullptr,
                   [&](unsigned int at, unsigned int pid, std::uint64_t bytes) {
                     out[at] = nvmlProcessInfo_v1_t{pid, bytes};
                   });
}
#define NO_PROCESSES(name)                                                             \
  SUBLET_HOOK nvmlReturn_t name(nvmlDevice_t device, unsigned int* count, void* out) { \
    (void)out;                                                                         \
    return PlaceOf(device) < 0 ? kNvmlNotFound : NoProcesses(count);                   \
  }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

// Others' activity is none of the pod's business.
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void* out,
                                                         unsigned int* count,
                                                         unsigned long long since) {
  (void)out, (void)since;
  return PlaceOf(device) < 0 ? kNvmlNotFound : NoProcesses(count);
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, void* out) {
  (void)device, (void)out;
  return kNvmlNotSupported;
}
SUBLET_HOOK nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, void* out) {
  (void)device, (void)out;
  return kNvmlNotSupported;
}

}  // namespace sublet::gpu

void* sublet_resolve(unsigned long index) {
  const char* name = kNames[index];
  // What changes a device is not for a pod that has a part of it.
  const bool changes =
      strncmp(name, "nvmlDeviceSet", 13) == 0 || strncmp(name, "nvmlDeviceReset", 15) == 0 ||
      strncmp(name, "nvmlDeviceClear", 15) == 0 || strncmp(name, "nvmlDeviceFreeze", 16) == 0 ||
      strstr(name, "CreateGpuInstance") != nullptr ||
      strstr(name, "CreateComputeInstance") != nullptr ||
      strstr(name, "InstanceDestroy") != nullptr || strncmp(name, "nvmlDeviceModify", 16) == 0 ||
      strncmp(name, "nvmlDeviceRemoveGpu", 19) == 0 || strncmp(name, "nvmlSystemSet", 13) == 0;
  void* function = changes ? reinterpret_cast<void*>(&sublet::gpu::Denied) : nullptr;
  if (function == nullptr) {
    void* library = sublet::gpu::Library();
    function = library == nullptr ? nullptr : dlsym(library, name);
  }
  if (function == nullptr) {
    return reinterpret_cast<void*>(&sublet::gpu::Missing);
  }
  __atomic_store_n(&sublet_slots[index], function, __ATOMIC_RELAXED);
  return function;
}
