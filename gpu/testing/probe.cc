// probe: the program in the container, for the process tests. Exit 0 = as expected, 82 =
// SYSTEM_NOT_READY, anything else is a failure that it explained on standard error.
//   probe matrix              every allocation call to exhaustion, all bytes back after free
//   probe race SECONDS SEED   random allocations and frees
//   probe churn SEED          the same for ever (to be killed)
//   probe hold BYTES          allocates, says "ready", waits for end of input
//   probe fork N              N children, before and after cuInit
//   probe launch NS SECONDS   launches kernels; prints how many finished
//   probe cheat NS SECONDS    the same past the gate, by the driver's own entry
//   probe burn BYTES NS       holds memory and launches until stopped; a line a second
//   probe capture             launches while capturing are not gated
//   probe procs               cuGetProcAddress gives hooks, with the version and stream form asked for
//   probe info                prints "devices total free"
//   probe nvml                what NVML shows
//   probe gate ROUNDS         nanoseconds per launch, and per trampoline
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "gpu/testing/driver_api.h"

namespace sublet::gpu::testing {
namespace {

using Size = std::size_t;
constexpr Size kMebibyte = Size{1} << 20;

std::uint64_t Now() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

Size Free() {
  Size free_bytes = 0;
  Size total = 0;
  Check(Cu<Size*, Size*>("cuMemGetInfo_v2")(&free_bytes, &total), "cuMemGetInfo");
  return free_bytes;
}

// Allocates with `make` until it fails, frees all with `drop`, compares the free bytes.
template <typename Make, typename Drop>
int Exhaust(const char* name, Make make, Drop drop, bool may_keep = false) {
  const Size before = Free();
  CUdeviceptr all[4096];
  int count = 0;
  CUresult result = kSuccess;
  while (count < 4096 && (result = make(&all[count])) == kSuccess) {
    ++count;
  }
  const Size left = Free();
  for (int i = 0; i < count; ++i) {
    Check(drop(all[i]), name);
  }
  const Size after = Free();
  const bool good =
      result == kOutOfMemory && count > 0 && left < 70 * kMebibyte && (may_keep || after == before);
  std::printf("%-28s %s: %d allocations, answer %d, %zu bytes left, %zu before, %zu after\n", name,
              good ? "ok" : "BAD", count, result, left, before, after);
  return good ? 0 : 1;
}

int MatrixLinear() {
  const auto drop = [](CUdeviceptr p) { return Cu<CUdeviceptr>("cuMemFree_v2")(p); };
  int bad = 0;
  bad += Exhaust(
      "cuMemAlloc_v2",
      [](CUdeviceptr* p) { return Cu<CUdeviceptr*, Size>("cuMemAlloc_v2")(p, 33 * kMebibyte); },
      drop);
  bad += Exhaust(
      "cuMemAlloc_v2 small",
      [](CUdeviceptr* p) { return Cu<CUdeviceptr*, Size>("cuMemAlloc_v2")(p, kMebibyte - 512); },
      drop);
  bad += Exhaust(
      "cuMemAlloc",
      [](CUdeviceptr* p) {
        CUdeviceptr_v1 low = 0;
        const CUresult result = Cu<CUdeviceptr_v1*, unsigned>("cuMemAlloc")(
            &low, static_cast<unsigned>(64 * kMebibyte));
        *p = low;
        return result;
      },
      [](CUdeviceptr p) {
        return Cu<CUdeviceptr_v1>("cuMemFree")(static_cast<CUdeviceptr_v1>(p));
      });
  bad += Exhaust(
      "cuMemAllocPitch_v2",
      [](CUdeviceptr* p) {
        Size pitch = 0;
        return Cu<CUdeviceptr*, Size*, Size, Size, unsigned>("cuMemAllocPitch_v2")(
            p, &pitch, Size{1000}, Size{65536}, 4U);
      },
      drop);
  bad += Exhaust(
      "cuMemAllocPitch",
      [](CUdeviceptr* p) {
        CUdeviceptr_v1 low = 0;
        unsigned pitch = 0;
        const CUresult result = Cu<CUdeviceptr_v1*, unsigned*, unsigned, unsigned, unsigned>(
            "cuMemAllocPitch")(&low, &pitch, 1000U, 65536U, 4U);
        *p = low;
        return result;
      },
      [](CUdeviceptr p) {
        return Cu<CUdeviceptr_v1>("cuMemFree")(static_cast<CUdeviceptr_v1>(p));
      });
  bad += Exhaust(
      "cuMemAllocManaged",
      [](CUdeviceptr* p) {
        return Cu<CUdeviceptr*, Size, unsigned>("cuMemAllocManaged")(p, 50 * kMebibyte, 1U);
      },
      drop);
  return bad;
}

int MatrixPools() {
  int bad = 0;
  for (const char* form : {"", "_ptsz"}) {
    char allocate[64];
    char release[64];
    std::snprintf(allocate, sizeof allocate, "cuMemAllocAsync%s", form);
    std::snprintf(release, sizeof release, "cuMemFreeAsync%s", form);
    bad += Exhaust(
        allocate,
        [&](CUdeviceptr* p) {
          return Cu<CUdeviceptr*, Size, CUstream>(allocate)(p, 40 * kMebibyte, nullptr);
        },
        [&](CUdeviceptr p) { return Cu<CUdeviceptr, CUstream>(release)(p, nullptr); });
  }
  CUmemPoolProps props = {};
  props.allocType = 1;
  props.location.type = kLocationDevice;
  CUmemoryPool pool = nullptr;
  Check(Cu<CUmemoryPool*, const CUmemPoolProps*>("cuMemPoolCreate")(&pool, &props),
        "cuMemPoolCreate");
  const Size before = Free();
  std::uint64_t threshold = ~std::uint64_t{0};
  Check(Cu<CUmemoryPool, int, void*>("cuMemPoolSetAttribute")(pool, 4, &threshold), "threshold");
  // A pool that keeps everything it ever had: the charge stays with the pool until it is trimmed.
  for (const char* form : {"", "_ptsz"}) {
    char allocate[64];
    char release[64];
    std::snprintf(allocate, sizeof allocate, "cuMemAllocFromPoolAsync%s", form);
    std::snprintf(release, sizeof release, "cuMemFreeAsync%s", form);
    bad += Exhaust(
        allocate,
        [&](CUdeviceptr* p) {
          return Cu<CUdeviceptr*, Size, CUmemoryPool, CUstream>(allocate)(p, 40 * kMebibyte, pool,
                                                                          nullptr);
        },
        [&](CUdeviceptr p) { return Cu<CUdeviceptr, CUstream>(release)(p, nullptr); }, true);
    Check(Cu<CUmemoryPool, Size>("cuMemPoolTrimTo")(pool, Size{0}), "trim");
    bad += Free() == before ? 0 : 1;
  }
  Check(Cu<CUmemoryPool>("cuMemPoolDestroy")(pool), "cuMemPoolDestroy");
  return bad;
}

int MatrixVmm() {
  CUmemAllocationProp prop = {};
  prop.type = 1;
  prop.location.type = kLocationDevice;
  int bad = Exhaust(
      "cuMemCreate",
      [&](CUdeviceptr* p) {
        return Cu<CUmemHandle*, Size, const CUmemAllocationProp*, unsigned long long>(
            "cuMemCreate")(p, 64 * kMebibyte, &prop, 0ULL);
      },
      [](CUdeviceptr h) { return Cu<CUmemHandle>("cuMemRelease")(h); });
  // Released while it is mapped: the memory is still there, so is the charge.
  const Size before = Free();
  CUmemHandle handle = 0;
  CUdeviceptr address = 0;
  Check(Cu<CUmemHandle*, Size, const CUmemAllocationProp*, unsigned long long>("cuMemCreate")(
            &handle, 64 * kMebibyte, &prop, 0ULL),
        "create");
  Check(Cu<CUdeviceptr*, Size, Size, CUdeviceptr, unsigned long long>("cuMemAddressReserve")(
            &address, 64 * kMebibyte, Size{0}, CUdeviceptr{0}, 0ULL),
        "reserve");
  Check(Cu<CUdeviceptr, Size, Size, CUmemHandle, unsigned long long>("cuMemMap")(
            address, 64 * kMebibyte, Size{0}, handle, 0ULL),
        "map");
  Check(Cu<CUmemHandle>("cuMemRelease")(handle), "release");
  const Size while_mapped = Free();
  Check(Cu<CUdeviceptr, Size>("cuMemUnmap")(address, 64 * kMebibyte), "unmap");
  const bool good = while_mapped == before - 64 * kMebibyte && Free() == before;
  std::printf("%-28s %s\n", "release before unmap", good ? "ok" : "BAD");
  return bad + (good ? 0 : 1);
}

int MatrixArrays() {
  int bad = 0;
  const auto drop = [](CUdeviceptr a) {
    return Cu<CUarray>("cuArrayDestroy")(reinterpret_cast<CUarray>(a));
  };
  bad += Exhaust(
      "cuArrayCreate_v2",
      [](CUdeviceptr* p) {
        const CUDA_ARRAY_DESCRIPTOR d{1024, 4096, 0x20, 4};
        return Cu<CUarray*, const CUDA_ARRAY_DESCRIPTOR*>("cuArrayCreate_v2")(
            reinterpret_cast<CUarray*>(p), &d);
      },
      drop);
  const CUDA_ARRAY3D_DESCRIPTOR d{256, 256, 128, 0x20, 2, 0};
  bad += Exhaust(
      "cuArray3DCreate_v2",
      [&](CUdeviceptr* p) {
        return Cu<CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*>("cuArray3DCreate_v2")(
            reinterpret_cast<CUarray*>(p), &d);
      },
      drop);
  bad += Exhaust(
      "cuArrayCreate",
      [](CUdeviceptr* p) {
        const CUDA_ARRAY_DESCRIPTOR_v1 old{1024, 4096, 0x20, 4};
        return Cu<CUarray*, const CUDA_ARRAY_DESCRIPTOR_v1*>("cuArrayCreate")(
            reinterpret_cast<CUarray*>(p), &old);
      },
      drop);
  bad += Exhaust(
      "cuArray3DCreate",
      [](CUdeviceptr* p) {
        const CUDA_ARRAY3D_DESCRIPTOR_v1 old{256, 256, 128, 0x20, 2, 0};
        return Cu<CUarray*, const CUDA_ARRAY3D_DESCRIPTOR_v1*>("cuArray3DCreate")(
            reinterpret_cast<CUarray*>(p), &old);
      },
      drop);
  bad += Exhaust(
      "cuMipmappedArrayCreate",
      [&](CUdeviceptr* p) {
        return Cu<CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned>(
            "cuMipmappedArrayCreate")(reinterpret_cast<CUmipmappedArray*>(p), &d, 3U);
      },
      [](CUdeviceptr a) {
        return Cu<CUmipmappedArray>("cuMipmappedArrayDestroy")(
            reinterpret_cast<CUmipmappedArray>(a));
      });
  return bad;
}

int MatrixGraphs(bool old_call) {
  const Size before = Free();
  CUgraphExec all[256];
  int count = 0;
  CUresult result = kSuccess;
  for (; count < 256; ++count) {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    Check(Cu<CUgraph*, unsigned>("cuGraphCreate")(&graph, 0U), "graph");
    CUgraphNodeParams params = {};
    params.type = kNodeMemAlloc;
    params.alloc.poolProps.location.type = kLocationDevice;
    params.alloc.bytesize = 64 * kMebibyte;
    Check(old_call
              ? Cu<CUgraphNode*, CUgraph, const CUgraphNode*, Size, CUDA_MEM_ALLOC_NODE_PARAMS*>(
                    "cuGraphAddMemAllocNode")(&node, graph, nullptr, Size{0}, &params.alloc)
              : Cu<CUgraphNode*, CUgraph, const CUgraphNode*, Size, CUgraphNodeParams*>(
                    "cuGraphAddNode")(&node, graph, nullptr, Size{0}, &params),
          "node");
    Check(Cu<CUgraphExec*, CUgraph, unsigned long long>("cuGraphInstantiateWithFlags")(&all[count],
                                                                                       graph, 0ULL),
          "instantiate");
    result = Cu<CUgraphExec, CUstream>(count % 2 == 0 ? "cuGraphLaunch" : "cuGraphLaunch_ptsz")(
        all[count], nullptr);
    if (result != kSuccess) {
      break;
    }
  }
  const Size left = Free();
  for (int i = 0; i < count; ++i) {
    Check(Cu<CUgraphExec>("cuGraphExecDestroy")(all[i]), "destroy");
  }
  Check(Cu<CUdevice>("cuDeviceGraphMemTrim")(0), "trim");
  const bool good =
      result == kOutOfMemory && count > 0 && left < 64 * kMebibyte && Free() == before;
  std::printf("%-28s %s: %d graphs, answer %d\n",
              old_call ? "cuGraphAddMemAllocNode" : "cuGraphAddNode", good ? "ok" : "BAD", count,
              result);
  return good ? 0 : 1;
}

CUresult MakeContext(int version, CUcontext* out) {
  switch (version) {
    case 1: return Cu<CUcontext*, unsigned, CUdevice>("cuCtxCreate")(out, 0U, 0);
    case 2: return Cu<CUcontext*, unsigned, CUdevice>("cuCtxCreate_v2")(out, 0U, 0);
    case 3:
      return Cu<CUcontext*, void*, int, unsigned, CUdevice>("cuCtxCreate_v3")(
          out, static_cast<void*>(nullptr), 0, 0U, 0);
    default:
      return Cu<CUcontext*, void*, unsigned, CUdevice>("cuCtxCreate_v4")(
          out, static_cast<void*>(nullptr), 0U, 0);
  }
}

int MatrixContexts() {
  int bad = 0;
  for (int version = 1; version <= 4; ++version) {
    const Size before = Free();
    CUcontext all[64];
    int count = 0;
    CUresult result = kSuccess;
    while (count < 64 && (result = MakeContext(version, &all[count])) == kSuccess) {
      ++count;
    }
    while (count > 0) {
      Check(Cu<CUcontext>(version % 2 == 0 ? "cuCtxDestroy_v2" : "cuCtxDestroy")(all[--count]),
            "destroy");
    }
    Start();
    Check(Cu<CUdevice>("cuDevicePrimaryCtxRelease_v2")(0), "release");
    const bool good = result == kOutOfMemory && Free() == before;
    std::printf("contexts, version %d          %s: answer %d, %zu before, %zu after\n", version,
                good ? "ok" : "BAD", result, before, Free());
    bad += good ? 0 : 1;
  }
  return bad;
}

int Matrix() {
  Start();
  const int bad = MatrixLinear() + MatrixPools() + MatrixVmm() + MatrixArrays() +
                  MatrixGraphs(false) + MatrixGraphs(true) + MatrixContexts();
  std::fflush(stdout);
  return bad == 0 ? 0 : 1;
}

int Race(double seconds, unsigned seed) {
  Start(true);
  const auto allocate = Cu<CUdeviceptr*, Size>("cuMemAlloc_v2");
  const auto release = Cu<CUdeviceptr>("cuMemFree_v2");
  CUdeviceptr held[32] = {};
  const std::uint64_t until = Now() + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t refused = 0;
  while (Now() < until) {
    const int at = rand_r(&seed) % 32;
    if (held[at] != 0) {
      Check(release(held[at]), "free");
      held[at] = 0;
    }
    const Size bytes = rand_r(&seed) % 4 == 0
                           ? Size{1} + static_cast<Size>(rand_r(&seed)) % kMebibyte
                           : static_cast<Size>(1 + rand_r(&seed) % 200) * kMebibyte;
    const CUresult result = allocate(&held[at], bytes);
    if (result == kOutOfMemory) {
      held[at] = 0;
      ++refused;
    } else {
      Check(result, "alloc");
    }
  }
  for (const CUdeviceptr p : held) {
    Check(release(p), "free");
  }
  std::printf("%llu refused\n", static_cast<unsigned long long>(refused));
  return 0;
}

int Hold(Size bytes) {
  Start();
  CUdeviceptr p = 0;
  Check(Cu<CUdeviceptr*, Size>("cuMemAlloc_v2")(&p, bytes), "alloc");
  std::printf("ready\n");
  std::fflush(stdout);
  char c;
  return read(0, &c, 1) >= 0 ? 0 : 1;
}

int Fork(int count) {
  // Before cuInit: children connect by themselves. After it: the driver refuses them, and the
  // parent's books are untouched.
  for (int phase = 0; phase < 2; ++phase) {
    if (phase == 1) {
      Start(true);
      // The dead children's bytes come back when the driver no longer shows them: then only this
      // process's context is charged.
      Size total = 0;
      Check(Cu<Size*, CUdevice>("cuDeviceTotalMem_v2")(&total, 0), "total");
      for (int i = 0; i < 5000 && Free() != total - 300 * kMebibyte; ++i) {
        usleep(1000);
      }
    }
    const Size before = phase == 1 ? Free() : 0;
    pid_t children[256];
    for (int i = 0; i < count && i < 256; ++i) {
      children[i] = fork();
      if (children[i] == 0) {
        if (phase == 0) {
          Start();
          CUdeviceptr p = 0;
          const CUresult result = Cu<CUdeviceptr*, Size>("cuMemAlloc_v2")(&p, 8 * kMebibyte);
          _exit(result == kSuccess || result == kOutOfMemory ? 0 : 3);
        }
        CUdeviceptr p = 0;
        // Whatever it answers, it must not succeed and not hang.
        _exit(Cu<CUdeviceptr*, Size>("cuMemAlloc_v2")(&p, 8 * kMebibyte) == kSuccess ? 4 : 0);
      }
    }
    for (int i = 0; i < count && i < 256; ++i) {
      int status = 0;
      waitpid(children[i], &status, 0);
      // Out of memory for a context (72) is an honest answer in phase 0.
      if (!WIFEXITED(status) ||
          (WEXITSTATUS(status) != 0 && !(phase == 0 && WEXITSTATUS(status) == 72))) {
        std::fprintf(stderr, "child %d in phase %d: %x\n", i, phase, static_cast<unsigned>(status));
        return 1;
      }
    }
    if (phase == 1 && Free() != before) {
      std::fprintf(stderr, "the parent's charge changed: %zu, was %zu\n", Free(), before);
      return 1;
    }
  }
  return 0;
}

int LaunchFor(std::uint64_t ns, double seconds, bool cheats = false) {
  Start();
  Launch(nullptr, 1000);
  using Kernel = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**);
  void* real = cheats ? dlopen(std::getenv("SUBLET_REAL_LIBCUDA"), RTLD_NOW | RTLD_LOCAL) : nullptr;
  const auto past_the_gate =
      real == nullptr ? nullptr : reinterpret_cast<Kernel>(dlsym(real, "cuLaunchKernel"));
  CUstream stream = nullptr;
  Check(Cu<CUstream*, unsigned>("cuStreamCreate")(&stream, 1U), "stream");
  CUevent events[4] = {};
  for (CUevent& event : events) {
    Check(Cu<CUevent*, unsigned>("cuEventCreate")(&event, 2U), "event");
  }
  std::printf("ready\n");
  std::fflush(stdout);
  const std::uint64_t until = Now() + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t count = 0;
  while (Now() < until) {
    // At most four launches ahead, as a training loop with a bounded queue.
    if (count >= 4) {
      Check(Cu<CUevent>("cuEventSynchronize")(events[count % 4]), "synchronize");
    }
    void* parameters[] = {&ns};
    Check(past_the_gate != nullptr
              ? past_the_gate(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr)
              : Launch(stream, ns),
          "launch");
    Check(Cu<CUevent, CUstream>("cuEventRecord")(events[count % 4], stream), "record");
    ++count;
  }
  Check(Cu<>("cuCtxSynchronize")(), "synchronize");
  std::printf("%llu\n", static_cast<unsigned long long>(count));
  return 0;
}

// The example image's program: holds BYTES and launches kernels of NS until it is stopped.
int Burn(Size bytes, std::uint64_t ns) {
  Start();
  CUdeviceptr p = 0;
  Size free_bytes = 0;
  Size total = 0;
  Check(Cu<Size*, Size*>("cuMemGetInfo_v2")(&free_bytes, &total), "info");
  const CUresult held = Cu<CUdeviceptr*, Size>("cuMemAlloc_v2")(&p, bytes);
  std::printf("device shows %zu MiB, %zu MiB free; %zu MiB asked: %s\n", total / kMebibyte,
              free_bytes / kMebibyte, bytes / kMebibyte,
              held == kSuccess       ? "held"
              : held == kOutOfMemory ? "out of memory"
                                     : "error");
  CUstream stream = nullptr;
  Check(Cu<CUstream*, unsigned>("cuStreamCreate")(&stream, 1U), "stream");
  for (std::uint64_t second = Now(), count = 0;;) {
    Check(Launch(stream, ns), "launch");
    Check(Cu<CUstream>("cuStreamSynchronize")(stream), "synchronize");
    ++count;
    if (Now() - second >= 1'000'000'000) {
      std::printf("%llu kernels, %.1f %% of the device\n", static_cast<unsigned long long>(count),
                  100.0 * static_cast<double>(count * ns) / static_cast<double>(Now() - second));
      std::fflush(stdout);
      second = Now();
      count = 0;
    }
  }
}

int Capture() {
  Start();
  CUstream stream = nullptr;
  Check(Cu<CUstream*, unsigned>("cuStreamCreate")(&stream, 1U), "stream");
  Check(Cu<CUstream, int>("cuStreamBeginCapture_v2")(stream, 0), "begin");
  const std::uint64_t start = Now();
  for (int i = 0; i < 100; ++i) {
    Check(Launch(stream, 1'000'000), "launch");
  }
  const std::uint64_t took = Now() - start;
  CUgraph graph = nullptr;
  Check(Cu<CUstream, CUgraph*>("cuStreamEndCapture")(stream, &graph), "end");
  CUgraphExec exec = nullptr;
  Check(Cu<CUgraphExec*, CUgraph, unsigned long long>("cuGraphInstantiateWithFlags")(&exec, graph,
                                                                                     0ULL),
        "instantiate");
  Check(Cu<CUgraphExec, CUstream>("cuGraphLaunch")(exec, stream), "launch");
  Check(Cu<CUstream>("cuStreamSynchronize")(stream), "synchronize");
  std::printf("%llu\n", static_cast<unsigned long long>(took));
  return 0;
}

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

int Gate(long rounds) {
  Start();
  // The simulator's own launch costs microseconds; a driver that does nothing is preloaded for
  // this. Many short batches: the best of them was not disturbed by whatever else the machine does.
  const long batch = rounds / 100 + 1;
  const auto time = [&](auto call) {
    double best = 1e9;
    for (int repeat = 0; repeat < 200; ++repeat) {
      const std::uint64_t start = Now();
      for (long i = 0; i < batch; ++i) {
        call();
      }
      const double ns = static_cast<double>(Now() - start) / static_cast<double>(batch);
      best = ns < best ? ns : best;
    }
    return best;
  };
  void* real = dlopen(std::getenv("SUBLET_REAL_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  using Kernel = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**);
  using Plain = CUresult (*)(CUstream, CUevent, unsigned);
  volatile Kernel direct = reinterpret_cast<Kernel>(dlsym(real, "cuLaunchKernel"));
  volatile Kernel gated = reinterpret_cast<Kernel>(dlsym(Library(), "cuLaunchKernel"));
  volatile Plain direct_wait = reinterpret_cast<Plain>(dlsym(real, "cuStreamWaitEvent"));
  volatile Plain trampoline = reinterpret_cast<Plain>(dlsym(Library(), "cuStreamWaitEvent"));
  Launch(nullptr, 1);
  const double native =
      time([&] { direct(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); });
  const double through =
      time([&] { gated(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); });
  const double wait = time([&] { direct_wait(nullptr, nullptr, 0); });
  const double jump = time([&] { trampoline(nullptr, nullptr, 0); });
  CUdeviceptr p = 0;
  const auto allocate = Cu<CUdeviceptr*, Size>("cuMemAlloc_v2");
  const auto release = Cu<CUdeviceptr>("cuMemFree_v2");
  const double pair = time([&] {
    allocate.function(&p, 4 * kMebibyte);
    release.function(p);
  });
  std::printf(
      "{\"gate_ns\":%.2f,\"trampoline_ns\":%.2f,\"native_launch_ns\":%.2f,\"alloc_free_ns\":%.0f}"
      "\n",
      through - native, jump - wait, native, pair);
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
    return LaunchFor(std::strtoull(arguments[2], nullptr, 10), std::atof(arguments[3]));
  if (is("cheat", 2))
    return LaunchFor(std::strtoull(arguments[2], nullptr, 10), std::atof(arguments[3]), true);
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
