// The probe's modes about memory: every allocation call, races, deaths, forks.
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

#include "gpu/testing/probe.h"

namespace sublet::gpu::testing {
namespace {

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

}  // namespace

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

}  // namespace sublet::gpu::testing
