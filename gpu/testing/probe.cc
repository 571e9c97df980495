// probe: the program in the container, for the process tests. Exit 0 = as expected, 82 =
// SYSTEM_NOT_READY, anything else is a failure that it explained on standard error.
//   probe matrix              every allocation call to exhaustion, all bytes back after free
//   probe race SECONDS SEED   random allocations and frees
//   probe churn SEED          the same for ever (to be killed)
//   probe hold BYTES          allocates, says "ready", waits for end of input
//   probe fork N              N children, before and after cuInit
//   probe launch NS SECONDS   launches kernels; prints how many finished
//   probe tick NS LINES       the same; prints how many in every second
//   probe cheat NS SECONDS    the same past the gate, by the driver's own entry
//   probe burn BYTES NS       holds memory and launches until stopped; a line a second
//   probe capture             launches while capturing are not gated
//   probe procs               cuGetProcAddress gives hooks, with the version and stream form asked for
//   probe info                prints "devices total free"
//   probe nvml                what NVML shows
//   probe gate ROUNDS         nanoseconds per launch, and per trampoline
#include "gpu/testing/probe.h"

#include <cstring>
#include <initializer_list>

namespace sublet::gpu::testing {
namespace {

int Procs() {
  struct Row {
    const char* name;
    int version;
    int per_thread;
    const char* symbol;
  };
  static const Row rows[] = {
#define SUBLET_PROC(name, version, ptsz, function) {#name, version, ptsz, #function},
#include "gpu/hooks/cuda_procs.inc"
#undef SUBLET_PROC
  };
  Check(Cu<unsigned>("cuInit")(0U), "cuInit");
  void* real = dlopen(std::getenv("SUBLET_REAL_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  int hooked = 0;
  int bad = 0;
  for (const Row& row : rows) {
    void* got = nullptr;
    int status = 0;
    const CUresult result =
        Cu<const char*, void**, int, unsigned long long, int*>("cuGetProcAddress_v2")(
            row.name, &got, row.version, row.per_thread != 0 ? 2ULL : 1ULL, &status);
    void* ours = dlsym(Library(), row.symbol);
    void* theirs = dlsym(real, row.symbol);
    // A hook, or the driver's own function of exactly this version and form.
    const bool good = result == kSuccess && ours != nullptr && (got == ours || got == theirs);
    hooked += got == ours ? 1 : 0;
    if (!good) {
      std::fprintf(stderr, "%s %d %d gives %p, not %s\n", row.name, row.version, row.per_thread,
                   got, row.symbol);
      ++bad;
    }
  }
  for (const char* name : {"cuMemAlloc", "cuMemAllocAsync", "cuLaunchKernel", "cuGetProcAddress",
                           "cuMemCreate", "cuMemGetInfo", "cuGraphLaunch", "cuCtxCreate",
                           "cuArray3DCreate", "cuMemPoolCreate", "cuDeviceTotalMem"}) {
    void* got = nullptr;
    Check(Cu<const char*, void**, int, unsigned long long>("cuGetProcAddress")(name, &got, 13000,
                                                                               0ULL),
          name);
    Dl_info info;
    if (dladdr(got, &info) == 0 || std::strstr(info.dli_fname, "sublet") == nullptr) {
      std::fprintf(stderr, "%s is not hooked\n", name);
      ++bad;
    }
  }
  static const char* const needs[] = {
#define SUBLET_SYMBOL(name) #name,
#include "gpu/hooks/cudart_needs.inc"
#undef SUBLET_SYMBOL
  };
  for (const char* name : needs) {
    void* got = nullptr;
    const CUresult result = Cu<const char*, void**, int, unsigned long long>("cuGetProcAddress")(
        name, &got, 13050, 2ULL);
    if (result != kSuccess && dlsym(Library(), name) == nullptr) {
      std::fprintf(stderr, "libcudart's %s is missing\n", name);
      ++bad;
    }
  }
  std::printf("%zu entry points, %d hooked\n", sizeof rows / sizeof rows[0], hooked);
  return bad == 0 && hooked > 90 ? 0 : 1;
}

int Info() {
  Start();
  int count = 0;
  Check(Cu<int*>("cuDeviceGetCount")(&count), "count");
  Size free_bytes = 0;
  Size total = 0;
  Size device_total = 0;
  Check(Cu<Size*, Size*>("cuMemGetInfo_v2")(&free_bytes, &total), "info");
  Check(Cu<Size*, CUdevice>("cuDeviceTotalMem_v2")(&device_total, 0), "total");
  CUdevice foreign = 0;
  CUcontext context = nullptr;
  const CUresult beyond = Cu<CUdevice*, int>("cuDeviceGet")(&foreign, count);
  const CUresult stolen = Cu<CUcontext*, CUdevice>("cuDevicePrimaryCtxRetain")(&context, 1);
  std::printf("%d %zu %zu %zu %d %d\n", count, total, free_bytes, device_total, beyond, stolen);
  return 0;
}

// What NVML shows: "devices total used processes first-pid answer-to-a-setter".
int Nvml() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  const auto find = [&](const char* name) { return dlsym(library, name); };
  struct Memory {
    unsigned long long total, free, used;
  } memory = {};
  struct Info {
    unsigned pid;
    unsigned long long bytes;
    unsigned a, b;
  } list[8] = {};
  unsigned devices = 0;
  unsigned count = 8;
  void* device = nullptr;
  if (library == nullptr || reinterpret_cast<int (*)()>(find("nvmlInit_v2"))() != 0) {
    return 1;
  }
  reinterpret_cast<int (*)(unsigned*)>(find("nvmlDeviceGetCount_v2"))(&devices);
  reinterpret_cast<int (*)(unsigned, void**)>(find("nvmlDeviceGetHandleByIndex_v2"))(0, &device);
  reinterpret_cast<int (*)(void*, Memory*)>(find("nvmlDeviceGetMemoryInfo"))(device, &memory);
  reinterpret_cast<int (*)(void*, unsigned*, Info*)>(
      find("nvmlDeviceGetComputeRunningProcesses_v3"))(device, &count, list);
  const int setter =
      reinterpret_cast<int (*)(void*, int)>(find("nvmlDeviceSetPersistenceMode"))(device, 1);
  std::printf("%u %llu %llu %u %u %d\n", devices, memory.total, memory.used, count, list[0].pid,
              setter);
  return 0;
}

}  // namespace

int Main(int count, char** arguments) {
  const auto is = [&](const char* mode, int more) {
    return count == 2 + more && std::strcmp(arguments[1], mode) == 0;
  };
  if (is("matrix", 0)) return Matrix();
  if (is("race", 2))
    return Race(std::atof(arguments[2]), static_cast<unsigned>(std::atoi(arguments[3])));
  if (is("churn", 1)) return Race(1e6, static_cast<unsigned>(std::atoi(arguments[2])));
  if (is("hold", 1)) return Hold(std::strtoull(arguments[2], nullptr, 10));
  if (is("fork", 1)) return Fork(std::atoi(arguments[2]));
  if (is("launch", 2))
    return LaunchFor(std::strtoull(arguments[2], nullptr, 10), std::atof(arguments[3]),
                     LaunchMode::kPlain);
  if (is("tick", 2))
    return LaunchFor(std::strtoull(arguments[2], nullptr, 10), std::atof(arguments[3]),
                     LaunchMode::kTick);
  if (is("cheat", 2))
    return LaunchFor(std::strtoull(arguments[2], nullptr, 10), std::atof(arguments[3]),
                     LaunchMode::kCheat);
  if (is("burn", 2))
    return Burn(std::strtoull(arguments[2], nullptr, 10), std::strtoull(arguments[3], nullptr, 10));
  if (is("capture", 0)) return Capture();
  if (is("procs", 0)) return Procs();
  if (is("info", 0)) return Info();
  if (is("nvml", 0)) return Nvml();
  if (is("gate", 1)) return Gate(std::atol(arguments[2]));
  std::fprintf(stderr, "unknown mode\n");
  return 64;
}

}  // namespace sublet::gpu::testing

int main(int count, char** arguments) { return sublet::gpu::testing::Main(count, arguments); }
